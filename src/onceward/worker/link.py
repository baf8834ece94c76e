"""One connection of a worker: opened when needed, every call with a deadline, replaced when anything is odd."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import socket
import time
from collections.abc import Callable
from typing import Any, TypeVar

import psycopg
from psycopg.types.json import set_json_loads

from onceward import jsonsafe, wire
from onceward.calls import Call
from onceward.calls.rights import WORKER, not_allowed
from onceward.connecting import connect_error, is_refusal
from onceward.errors import CannotConnect, from_database, is_pooler_trouble
from onceward.wire import WiredAsyncConnection

T = TypeVar("T")
# A call that takes longer is given up and repeated on a new connection; all worker calls are repeatable.
# So a half-open connection is replaced, and its call repeated, within a quarter of a minute.
DEADLINE = 12.0
FIRST_PAUSE, LAST_PAUSE = 0.05, 2.0


class Link:
    """An async connection that may be broken at any time."""

    def __init__(self, dsn: str, name: str, *, on_note: Callable[[str], None] | None = None) -> None:
        """`on_note`: called in the loop with the text of each NOTIFY, also between calls."""
        self._dsn = dsn
        self._name = name
        self._on_note = on_note
        # The socket that the loop watches for us while no call is under way.
        self._watched: int | None = None
        self._conn: WiredAsyncConnection | None = None
        self._pause = FIRST_PAUSE
        self._prepare_after: int | None = 3
        self._was_open = False
        # What was done last has failed for want of the database; set by the worker, which tells when that is over.
        self.in_trouble = False

    @property
    def _user(self) -> str | None:
        return self._conn.info.user if self._conn is not None and not self._conn.closed else None

    def send(self, call: Call[Any]) -> wire.Begun | None:
        """Send a call before the task has begun that will `run` it, so that the database works meanwhile.

        None: nothing was sent, or the connection is lost by that; `run` sees to both.
        """
        conn = self._conn
        if conn is None or conn.closed or wire.is_under_way(conn):
            return None
        # Whoever watches the socket would read the answer.
        self._unwatch()
        try:
            return wire.begin(conn, call)
        except psycopg.Error:
            if wire.is_under_way(conn):
                self.cut_off()
            return None

    async def run(self, call: Call[T], begun: wire.Begun | None = None) -> T:
        """Raises the Onceward error, or whatever the driver raised; then the connection is gone.

        `begun`: what `send` said of this call.
        """
        began = time.monotonic()
        # Not by cancelling: the driver would first ask the server, which does not answer, to end the call.
        timer = asyncio.get_running_loop().call_later(DEADLINE, self.cut_off)
        try:
            self._unwatch()  # The call waits for the same socket.
            conn = self._conn
            if conn is None or conn.closed:
                conn = await self._open()
                begun = None
            rows = await wire.fetch_async(conn, call, begun)
        except BaseException as error:
            ours = from_database(error) or not_allowed(error, call.sql, user=self._user, role=WORKER)
            if ours is not None:
                raise ours from error
            await self.close()
            if is_pooler_trouble(error):
                self._prepare_after = None
                return await self.run(call)
            if isinstance(error, psycopg.OperationalError) and time.monotonic() - began >= DEADLINE:
                raise TimeoutError(f"no answer within {DEADLINE:g} s") from error
            raise
        finally:
            timer.cancel()
            self._watch()
        self._pause = FIRST_PAUSE
        return call.parse(rows)

    def cut_off(self) -> None:
        """End a call that hangs on a dead connection: it raises at once."""
        if self._conn is not None:
            cut_off(self._conn)

    async def rest(self) -> None:
        """Wait before the next try, longer each time, with jitter so that a fleet does not return as a herd."""
        await asyncio.sleep(self._pause * random.uniform(0.5, 1.0))  # noqa: S311 - spread, not secrecy
        self._pause = min(self._pause * 2, LAST_PAUSE)

    def _watch(self) -> None:
        conn = self._conn
        if self._on_note is None or conn is None or conn.closed:
            return
        self._watched = conn.fileno()
        asyncio.get_running_loop().add_reader(self._watched, self._hear, conn)
        # What came with the last answer has been read from the socket already.
        self._tell(conn)

    def _unwatch(self) -> None:
        if self._watched is not None:
            asyncio.get_running_loop().remove_reader(self._watched)
            self._watched = None

    def _hear(self, conn: psycopg.AsyncConnection[Any]) -> None:
        try:
            conn.pgconn.consume_input()
        except psycopg.Error:
            # It is gone: the next call finds that out, and opens a new one.
            self._unwatch()
        else:
            self._tell(conn)

    def _tell(self, conn: psycopg.AsyncConnection[Any]) -> None:
        assert self._on_note is not None
        while note := conn.pgconn.notifies():
            self._on_note(note.extra.decode())

    async def close(self) -> None:
        self._unwatch()
        conn, self._conn = self._conn, None
        if conn is not None:
            with contextlib.suppress(Exception):
                await conn.close()

    async def _open(self) -> WiredAsyncConnection:
        # The driver's own timeout holds for each address of a host.
        async with asyncio.timeout(DEADLINE):
            self._conn = await WiredAsyncConnection.connect(
                self._dsn,
                autocommit=True,
                application_name=self._name,
                prepare_threshold=self._prepare_after,
                connect_timeout=5,
                keepalives_idle=5,
                keepalives_interval=3,
                keepalives_count=3,
            )
            set_json_loads(jsonsafe.loads, self._conn)
            if (on_note := self._on_note) is not None:
                self._conn.add_notify_handler(lambda note: on_note(note.payload))
                # Behind a transaction pooler this hears nothing, and polling does the work.
                await self._conn.execute("listen onceward")
        self._was_open = True
        return self._conn

    def refusal(self, error: BaseException) -> CannotConnect | None:
        """The error to end with, when the server has never let us in and says that it will not: user, password, pg_hba.

        Once it has let us in, a refusal passes: somebody is changing the password, or restarts the server.
        """
        if self._was_open or not isinstance(error, psycopg.OperationalError) or not is_refusal(error):
            return None
        return connect_error(self._dsn, error)


def cut_off(conn: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
    """Shut a connection's socket down, so that whoever waits for it hears of its end.

    Only from the thread that uses the connection: another one may find that its descriptor is somebody else's by now.
    """
    # On a duplicate: the descriptor itself stays libpq's to close.
    with contextlib.suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(conn.fileno())) as sock:
        sock.shutdown(socket.SHUT_RDWR)
