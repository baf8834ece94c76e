"""Heartbeats and cancellations: a thread with a connection of its own, or of the parent.

A handler that hogs the event loop or computes for minutes must not make a healthy worker look dead, so nothing
here depends on the loop.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from uuid import UUID

from onceward import logs
from onceward.errors import WorkerExpired
from onceward.model import Heartbeat
from onceward.worker.pulse import Pulse
from onceward.worker.relay import ParentGone, Relayed, RelayFailed, patience

log = logs.get("onceward.worker")


class Heart:
    """Beats once a second for one worker identity until stopped or until the lease is lost."""

    def __init__(
        self,
        dsn: str,
        worker_id: UUID,
        *,
        lease: timedelta,
        relay: Relayed | None,
        on_cancel: Callable[[Sequence[UUID]], None],
        on_lost: Callable[[str], None],
    ) -> None:
        self._worker_id = worker_id
        self._lease = lease.total_seconds()
        self._interval = min(1.0, self._lease / 6)
        self._patience = patience(lease)
        # With a parent to ask, the connection is opened only when that does not help.
        self._relay = relay
        self._is_relayed = relay is not None
        self._own = Pulse(dsn, "onceward heart", lease=self._lease)
        self._on_cancel = on_cancel
        self._on_lost = on_lost
        # Heartbeats that failed; written by this thread only.
        self.failures = 0
        self._stop = threading.Event()
        self._last_ok = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="onceward-heart", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._own.unblock()

    @property
    def silence(self) -> float:
        """Seconds since the last heartbeat that the database confirmed."""
        return time.monotonic() - self._last_ok

    def watch(self) -> None:
        """Called by the loop now and then: a call that hangs for a third of the lease is cut off."""
        self._own.watch()

    def _run(self) -> None:
        pause = 0.05
        while not self._stop.is_set():
            # The lease runs from when it was asked for: the answer may have been under way for long.
            asked = time.monotonic()
            try:
                answer = self._beat()
            except WorkerExpired as error:
                if not self._stop.is_set():
                    self._on_lost(error.message)
                break
            except Exception as error:
                if self._stop.is_set():
                    break
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
                    break
                self._stop.wait(pause * random.uniform(0.5, 1.0))  # noqa: S311 - spread, not secrecy
                pause = min(pause * 2, 1.0)
            else:
                pause = 0.05
                self._last_ok = asked
                if answer.cancel_job_ids:
                    self._on_cancel(answer.cancel_job_ids)
                self._stop.wait(self._interval)
        self._own.close()

    def _beat(self) -> Heartbeat:
        if self._relay is not None:
            try:
                answer = self._relay.beat(self._worker_id, within=self._patience, stopped=self._stop)
            except ParentGone as error:
                self._relay = None
                self._go_alone(error)
            except RelayFailed as error:
                if self._stop.is_set() or (self._is_relayed and self.silence < self._patience):
                    # Its connection may have broken: asked again, in a moment, it opens another one.
                    raise
                self._go_alone(error)
            else:
                if not self._is_relayed:
                    self._is_relayed = True
                    self._own.close()
                    log.info("heartbeats_relayed", worker=str(self._worker_id))
                return answer
        return self._own.beat(self._worker_id)

    def _go_alone(self, why: Exception) -> None:
        if self._is_relayed:
            self._is_relayed = False
            log.warning("heartbeats_on_own_connection", worker=str(self._worker_id), why=str(why))
