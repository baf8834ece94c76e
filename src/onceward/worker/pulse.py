"""The connection on which heartbeats go."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from typing import Any
from uuid import UUID

import psycopg

from onceward import calls, contrib
from onceward.errors import WorkerExpired
from onceward.model import Heartbeat
from onceward.worker.link import DEADLINE


class Pulse:
    """Opened when needed, closed when anything is odd.  One thread beats; another one watches it."""

    def __init__(self, dsn: str, name: str, *, lease: float) -> None:
        self._dsn = dsn
        self._name = name
        self._connect_timeout = max(2, int(lease / 6))
        self._most = min(lease / 3, DEADLINE)
        self._conn: psycopg.Connection[tuple[Any, ...]] | None = None
        # A second descriptor of its socket, by which another thread cuts it off.  The connection's own number is not ours: the
        # beating thread, or libpq when the connection breaks, may close it at any moment, and the next socket that the
        # program opens has the same number.
        self._cord: socket.socket | None = None
        self._cord_lock = threading.Lock()
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
                self._cord = socket.socket(fileno=os.dup(self._conn.fileno()))
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
        with self._cord_lock:
            if self._cord is not None:
                with contextlib.suppress(OSError):
                    self._cord.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with self._cord_lock:
            cord, self._cord = self._cord, None
            if cord is not None:
                cord.close()
        conn, self._conn = self._conn, None
        if conn is not None:
            with contextlib.suppress(Exception):
                conn.close()
