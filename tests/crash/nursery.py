"""Forks worker processes from one that has imported everything: a start costs milliseconds instead of half a second.

Reads one JSON object per line: {"life": 7, "folder": "...", "dsn": "...", "handlers_dsn": "...", "sink": 0,
"skew": 0, "settings": {...}}.  Answers `started LIFE PID`, and `exited LIFE STATUS MONO` as soon as a process is gone.  When its
input ends, it kills what is left.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import sys
import time
import traceback
from datetime import timedelta
from pathlib import Path
from typing import Any

import uvloop  # noqa: F401 - imported before the fork, as everything a worker needs

from onceward.worker import WorkerSettings, run_worker
from tests.crash import chains, flows, handlers, provider  # noqa: F401 - they add their tasks to the application of handlers

PR_SET_PDEATHSIG = 1


def main() -> None:
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(woken, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    lives: dict[int, int] = {}
    rest = b""
    while True:
        ready, _, _ = select.select([0, woken], [], [])
        if woken in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(woken, 4096)
            _reap(lives)
        if 0 in ready:
            more = os.read(0, 65536)
            if not more:
                break
            *lines, rest = (rest + more).split(b"\n")
            for line in lines:
                _start(json.loads(line), lives)
    for pid in lives:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def _start(spec: dict[str, Any], lives: dict[int, int]) -> None:
    pid = os.fork()
    if pid == 0:
        _live(spec)
    lives[pid] = spec["life"]
    _say("started", spec["life"], pid)


def _reap(lives: dict[int, int]) -> None:
    while lives:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        _say("exited", lives.pop(pid), os.waitstatus_to_exitcode(status), time.monotonic_ns())


def _live(spec: dict[str, Any]) -> None:
    """In the child; does not return."""
    code = 1
    try:
        # Whatever happens to the nursery, nobody is left behind.
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        folder = Path(spec["folder"])
        output = os.open(folder / "workers.txt", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        handlers.configure(
            folder=folder,
            life=spec["life"],
            dsn=spec["handlers_dsn"],
            sink=spec["sink"],
            skew=spec["skew"],
        )
        settings = spec["settings"]
        for name in ("lease", "grace", "poll"):
            if name in settings:
                settings[name] = timedelta(seconds=settings[name])
        code = run_worker(
            "tests.crash.handlers:app",
            WorkerSettings(dsn=spec["dsn"], name=f"life-{spec['life']}", log_format="json", **settings),
        )
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
