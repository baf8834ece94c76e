"""Which signals tell a process to stop."""

from __future__ import annotations

import signal


def stop_signals() -> list[signal.Signals]:
    """SIGHUP says that the terminal is closed; whoever started us with `nohup` wants us to outlive it."""
    numbers = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        numbers.append(signal.SIGHUP)
    return numbers


def ignore_terminal() -> None:
    """For children: Ctrl-C and the end of a terminal reach the whole group, and the parent decides what they mean."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
