"""Heartbeats of several worker processes on one connection, which their parent has.

The parent beats when it is asked to, and never by itself: a process that hangs, is stopped or is dead asks for nothing,
and its lease runs out.
"""

from __future__ import annotations

import contextlib
import threading
import time
from datetime import timedelta
from multiprocessing.connection import Connection
from uuid import UUID

from onceward import logs
from onceward.dsn import resolve_dsn
from onceward.errors import OncewardError, WorkerExpired
from onceward.model import Heartbeat
from onceward.worker.pulse import Pulse

log = logs.get("onceward.worker")
# Seconds that a process waits for its parent at most, before it beats by itself.
LONGEST = 3.0
# How often it looks meanwhile whether it has been told to stop.
GLANCE = 0.1


class RelayFailed(Exception):
    """The parent has not answered in time, or could not beat."""


class ParentGone(Exception):
    """There is nobody to ask any more."""


def patience(lease: timedelta) -> float:
    return min(LONGEST, lease.total_seconds() / 6)


class Relay:
    """In the parent: a thread for each child, so that none waits for another's pipe, and one connection for all."""

    def __init__(self, dsn: str | None, *, lease: timedelta) -> None:
        self._dsn = dsn
        self._lease = lease
        self._patience = patience(lease)
        self._pulse: Pulse | None = None
        self._one_at_a_time = threading.Lock()

    def serve(self, pipe: Connection) -> None:
        """Answer what comes through the pipe, until its other end is gone."""
        threading.Thread(target=self._serve, args=(pipe,), name="onceward-relay", daemon=True).start()

    def watch(self) -> None:
        """Called now and then: a call that hangs is cut off."""
        if self._pulse is not None:
            self._pulse.watch()

    def close(self) -> None:
        """When nobody is left who could ask."""
        if self._one_at_a_time.acquire(timeout=1.0) and self._pulse is not None:
            self._pulse.close()

    def _serve(self, pipe: Connection) -> None:
        with pipe, contextlib.suppress(EOFError, OSError):
            while True:
                asked, worker_id = pipe.recv()
                pipe.send(self._answer(asked, worker_id))

    def _answer(self, asked: float, worker_id: UUID) -> Heartbeat | WorkerExpired | str:
        with self._one_at_a_time:
            if time.monotonic() - asked > self._patience:
                # Whoever asked has given up, and may be dead by now.
                return "the parent was too busy"
            try:
                if self._pulse is None:
                    # Not before a child has reached the database: until then, what is wrong is theirs to tell.
                    self._pulse = Pulse(
                        resolve_dsn(self._dsn), "onceward hearts", lease=self._lease.total_seconds()
                    )
                return self._pulse.beat(worker_id)
            except WorkerExpired as error:
                return WorkerExpired(error.message)
            except Exception as error:
                return str(error).strip() or type(error).__name__


class Relayed:
    """In a child: asks the parent.  At most one question is open, however long its answer takes."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._lock = threading.Lock()
        # A question has been asked and not been answered.
        self._is_open = False

    def beat(self, worker_id: UUID, *, within: float, stopped: threading.Event) -> Heartbeat:
        """Raises WorkerExpired, RelayFailed or ParentGone."""
        if not self._lock.acquire(timeout=within):
            raise RelayFailed("the heart before this one has not stopped")
        try:
            answer = self._ask(worker_id, within, stopped)
        except (EOFError, OSError) as error:
            raise ParentGone("the parent is gone") from error
        finally:
            self._lock.release()
        if isinstance(answer, Heartbeat):
            return answer
        raise answer if isinstance(answer, OncewardError) else RelayFailed(answer)

    def _ask(self, worker_id: UUID, within: float, stopped: threading.Event) -> object:
        self._hear(0)  # What comes too late is asked again.
        if not self._is_open:
            # By a clock that is the same for all processes.
            asked = time.monotonic()
            self._pipe.send((asked, worker_id))
            self._is_open = True
            while not stopped.is_set() and (left := asked + within - time.monotonic()) > 0:
                if (answer := self._hear(min(left, GLANCE))) is not None:
                    return answer
        return "the parent does not answer"

    def _hear(self, seconds: float) -> object:
        """The answer to the open question, if it comes in this time."""
        if not self._is_open or not self._pipe.poll(seconds):
            return None
        answer: object = self._pipe.recv()
        self._is_open = False
        return answer
