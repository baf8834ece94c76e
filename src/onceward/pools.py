"""The connections that a client keeps: opened when they are needed, looked at before they are used."""

from __future__ import annotations

import asyncio
import select
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import psycopg
from psycopg import pq
from psycopg.types.json import set_json_loads
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from onceward import jsonsafe
from onceward.wire import WiredAsyncConnection, WiredConnection

# A connection goes back to the pool when nobody has used it for so long, or has used it for so long without a break: the
# pool closes what is idle or old.
IDLE_SECONDS, KEPT_SECONDS = 10.0, 60.0
C = TypeVar("C", bound=psycopg.Connection[Any])
A = TypeVar("A", bound=psycopg.AsyncConnection[Any])


class Pool(ConnectionPool[C]):
    """Gives no connection that has ended.

    The driver's own check rests after each one that it finds, twice as long each time.  After a restart of the server all
    have ended: whoever came upon ten of them in a row would wait for minutes, with a fresh one ready.
    """

    def getconn(self, timeout: float | None = None) -> C:
        deadline = time.monotonic() + (self.timeout if timeout is None else timeout)
        while True:
            connection = super().getconn(deadline - time.monotonic())
            try:
                check(connection)
            except BaseException as error:
                # The pool opens another one instead.
                connection.close()
                self.putconn(connection)
                if not isinstance(error, psycopg.Error):
                    raise
            else:
                return connection


class AsyncPool(AsyncConnectionPool[A]):
    """The same for asyncio."""

    async def getconn(self, timeout: float | None = None) -> A:
        deadline = time.monotonic() + (self.timeout if timeout is None else timeout)
        while True:
            connection = await super().getconn(deadline - time.monotonic())
            try:
                await check_async(connection)
            except BaseException as error:
                await connection.close()
                await self.putconn(connection)
                if not isinstance(error, psycopg.Error):
                    raise
            else:
                return connection


def open_pool(dsn: str, options: Mapping[str, Any], *, size: int) -> Pool[WiredConnection]:
    return Pool(
        dsn,
        connection_class=WiredConnection,
        min_size=0,
        max_size=size,
        kwargs=dict(options),
        configure=_configure,
        open=True,
    )


def async_pool(
    dsn: str, options: Mapping[str, Any], *, size: int, loads: Callable[[str | bytes], Any] = jsonsafe.loads
) -> AsyncPool[WiredAsyncConnection]:
    """Not open yet: that is awaited.  `loads` reads JSON."""

    async def configure(connection: WiredAsyncConnection) -> None:
        set_json_loads(loads, connection)

    return AsyncPool(
        dsn,
        connection_class=WiredAsyncConnection,
        min_size=0,
        max_size=size,
        kwargs=dict(options),
        configure=configure,
        open=False,
    )


class Lender:
    """A pool for asyncio, and the connection that was used last beside it.

    To get a connection from the pool takes several times as long as to send a call over it, and most clients make one
    call at a time.
    """

    def __init__(self, pool: AsyncPool[WiredAsyncConnection]) -> None:
        self._pool = pool
        self._spare: WiredAsyncConnection | None = None
        self._used_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._returning: asyncio.Task[None] | None = None
        # Callers to whom the pool could not give one yet.
        self._waiting = 0
        self._is_closed = False

    async def take(self, timeout: float) -> WiredAsyncConnection:
        spare, self._spare = self._spare, None
        if spare is not None:
            if not is_stale(spare):
                return spare
            await self._pool.putconn(spare)
        self._waiting += 1
        try:
            # Not pool.connection(), which also commits: nothing is open outside of our own transactions.
            connection = await self._pool.getconn(timeout)
        finally:
            self._waiting -= 1
        connection.lent_at = asyncio.get_running_loop().time()
        return connection

    async def give_back(self, connection: WiredAsyncConnection) -> None:
        now = asyncio.get_running_loop().time()
        if (
            self._spare is not None
            or self._waiting
            or self._is_closed
            or now - connection.lent_at > KEPT_SECONDS
            or connection.pgconn.transaction_status != pq.TransactionStatus.IDLE
        ):
            await self._pool.putconn(connection)
            return
        self._spare, self._used_at = connection, now
        if self._timer is None:
            self._watch(IDLE_SECONDS)

    async def close(self) -> None:
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._returning is not None:
            await self._returning
        spare, self._spare = self._spare, None
        if spare is not None:
            await self._pool.putconn(spare)
        await self._pool.close()

    def _watch(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._look)

    def _look(self) -> None:
        self._timer = None
        if self._spare is None:
            return  # Watched again when it comes back.
        left = self._used_at + IDLE_SECONDS - asyncio.get_running_loop().time()
        if left > 0:
            self._watch(left)
        else:
            spare, self._spare = self._spare, None
            self._returning = asyncio.ensure_future(self._pool.putconn(spare))


def _configure(connection: WiredConnection) -> None:
    set_json_loads(jsonsafe.loads, connection)


def check(connection: psycopg.Connection[Any]) -> None:
    """Asks the server only when something seems to be wrong."""
    if is_stale(connection):
        ConnectionPool.check_connection(connection)


async def check_async(connection: psycopg.AsyncConnection[Any]) -> None:
    if is_stale(connection):
        await AsyncConnectionPool.check_connection(connection)


def is_stale(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    """Whether an idle connection has something to read: a farewell, most likely.  Costs no round trip."""
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))
