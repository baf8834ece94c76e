"""The connection on which heartbeats go."""

from __future__ import annotations

import contextlib
import time
from typing import Any
from uuid import UUID

import psycopg

from onceward import calls, contrib
from onceward.errors import WorkerExpired
from onceward.model import Heartbeat
from onceward.worker.link import DEADLINE, cut_off


class Pulse:
    """Opened when needed, closed when anything is odd.  One thread beats; another one watches it."""

    def __init__(self, dsn: str, name: str, *, lease: float) -> None:
        self._dsn = dsn
        self._name = name
        self._connect_timeout = max(2, int(lease / 6))
        self._most = min(lease / 3, DEADLINE)
        self._conn: psycopg.Connection[tuple[Any, ...]] | None = None
        # Since when a call is under way.
        self._began: float | None = None

    def beat(self, worker_id: UUID) -> Heartbeat:
        """Renew the lease.  Raises WorkerExpired, or whatever the driver raised; then the connection is gone."""
        self._began = time.monotonic()
        try:
            if self._conn is None:
                self._conn = psycopg.connect(
                    self._dsn,
                    autocommit=True,
                    application_name=self._name,
                    # One short call a second gains nothing from being prepared, and a pooler may not keep it.
                    prepare_threshold=None,
                    connect_timeout=self._connect_timeout,
                )
            return contrib.run(self._conn, calls.heartbeat(worker_id))
        except WorkerExpired:
            raise
        except BaseException:
            self.close()
            raise
        finally:
            self._began = None

    def watch(self) -> None:
        """Called now and then: a call that hangs for a third of the lease is cut off.  Safe from any thread."""
        began = self._began
        if began is not None and time.monotonic() - began > self._most:
            self.unblock()

    def unblock(self) -> None:
        """End a call that hangs on a dead connection.  Safe from any thread."""
        conn = self._conn
        if conn is not None:
            cut_off(conn)

    def close(self) -> None:
        conn, self._conn = self._conn, None
        if conn is not None:
            with contextlib.suppress(Exception):
                conn.close()
