"""Verifying the audit log for a page: in a thread, told piece by piece, and given up when nobody reads on."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from onceward import audit
from onceward.errors import OncewardError
from onceward.web.identity import Identity
from onceward.web.looking import looking

# A longer one is for the command line, which nobody's browser has to wait for.
MOST_SECONDS = 600.0
# How often the page hears that it goes on.
EVERY = 0.5


@dataclass(frozen=True, slots=True)
class News:
    """How far it is; at the end, what was found, or why it came to no end."""

    done: int = 0
    seals: int = 0
    found: audit.Verification | None = None
    stopped: str | None = None


class _NobodyReads(Exception):
    """The page is closed, or the time is over."""


def verify(
    dsn: str, identity: Identity, checkpoints: Sequence[audit.Checkpoint], lock: threading.Lock
) -> Iterator[News]:
    """One at a time for each lock: it keeps a core busy."""
    if not lock.acquire(blocking=False):
        yield News(stopped="Another verification is running; this one has not begun.")
        return
    told: queue.Queue[News] = queue.Queue()
    closed = threading.Event()
    until = time.monotonic() + MOST_SECONDS

    def progress(done: int, seals: int) -> None:
        if closed.is_set() or time.monotonic() > until:
            raise _NobodyReads
        told.put(News(done, seals))

    def work() -> None:
        try:
            with looking(dsn, identity) as look:
                told.put(News(found=audit.Audit(look).verify(checkpoints, progress=progress)))
        except _NobodyReads:
            minutes = MOST_SECONDS / 60
            told.put(
                News(
                    stopped=f"It took longer than {minutes:.0f} minutes. Run “onceward audit verify” instead."
                )
            )
        except OncewardError as error:
            told.put(News(stopped=f"{error.message[0].upper()}{error.message[1:]}."))
        except Exception as error:
            told.put(News(stopped=f"It broke off: {type(error).__name__}."))
            raise
        finally:
            lock.release()

    threading.Thread(target=work, name="onceward-web-verify", daemon=True).start()
    try:
        last = 0.0
        while True:
            news = told.get()
            # Small seals come in thousands a second; a page wants to hear of them now and then.
            is_last = news.found is not None or news.stopped is not None
            if not is_last and time.monotonic() - last < EVERY:
                continue
            last = time.monotonic()
            yield news
            if is_last:
                return
    finally:
        closed.set()
