"""Heartbeats and cancellations: a thread with a connection of its own.

A handler that hogs the event loop or computes for minutes must not make a healthy worker look dead, so nothing
here depends on the loop.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg

from onceward import calls, contrib, logs
from onceward.errors import WorkerExpired
from onceward.worker.link import DEADLINE, cut_off

log = logs.get("onceward.worker")


class Heart:
    """Beats once a second for one worker identity until stopped or until the lease is lost."""

    def __init__(
        self,
        dsn: str,
        worker_id: UUID,
        *,
        lease: timedelta,
        on_cancel: Callable[[Sequence[UUID]], None],
        on_lost: Callable[[str], None],
    ) -> None:
        self._dsn = dsn
        self._worker_id = worker_id
        self._lease = lease.total_seconds()
        self._interval = min(1.0, self._lease / 6)
        self._on_cancel = on_cancel
        self._on_lost = on_lost
        # Heartbeats that failed; written by this thread only.
        self.failures = 0
        self._stop = threading.Event()
        self._conn: psycopg.Connection[tuple[Any, ...]] | None = None
        self._last_ok = time.monotonic()
        self._began = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="onceward-heart", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self.unblock()

    @property
    def silence(self) -> float:
        """Seconds since the last heartbeat that the database confirmed."""
        return time.monotonic() - self._last_ok

    def unblock(self) -> None:
        """End a call that hangs on a dead connection.  Safe from any thread."""
        conn = self._conn
        if conn is not None:
            cut_off(conn)

    def watch(self) -> None:
        """Called by the loop now and then: a call that hangs for a third of the lease is cut off."""
        if time.monotonic() - self._began > min(self._lease / 3, DEADLINE):
            self._began = time.monotonic()
            self.unblock()

    def _run(self) -> None:
        pause = 0.05
        while not self._stop.is_set():
            try:
                self._began = time.monotonic()
                self._beat()
                pause = 0.05
            except WorkerExpired as error:
                self._close()
                if not self._stop.is_set():
                    self._on_lost(error.message)
                return
            except Exception as error:
                self._close()
                if self._stop.is_set():
                    return
                self.failures += 1
                log.warning(
                    "heartbeat_failed",
                    worker=str(self._worker_id),
                    error=str(error),
                    silence=round(self.silence, 1),
                )
                if self.silence > self._lease / 2:
                    # Stop before anybody may take the jobs away: the lease is half over and nobody answers.
                    self._on_lost("no heartbeat for half the lease")
                    return
                self._stop.wait(pause * random.uniform(0.5, 1.0))  # noqa: S311 - spread, not secrecy
                pause = min(pause * 2, 1.0)
        self._close()

    def _beat(self) -> None:
        if self._conn is None:
            self._conn = psycopg.connect(
                self._dsn,
                autocommit=True,
                application_name="onceward heart",
                # One short call a second gains nothing from being prepared, and a pooler may not keep it.
                prepare_threshold=None,
                connect_timeout=max(2, int(self._lease / 6)),
            )
        asked = time.monotonic()
        answer = contrib.run(self._conn, calls.heartbeat(self._worker_id))
        # The lease runs from when it was asked for: the answer may have been under way for long.
        self._last_ok = asked
        if answer.cancel_job_ids:
            self._on_cancel(answer.cancel_job_ids)
        self._began = time.monotonic()
        self._stop.wait(self._interval)

    def _close(self) -> None:
        conn, self._conn = self._conn, None
        if conn is not None:
            with contextlib.suppress(Exception):
                conn.close()
