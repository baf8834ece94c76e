"""The connections that a client keeps: opened when they are needed, looked at before they are used."""

from __future__ import annotations

import asyncio
import select
from collections.abc import Mapping
from typing import Any

import psycopg
from psycopg import pq
from psycopg.types.json import set_json_loads
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from onceward import jsonsafe
from onceward.wire import WiredAsyncConnection, WiredConnection

# A connection goes back to the pool when nobody has used it for so long, or has used it for so long without a break: the
# pool closes what is idle or old.
IDLE_SECONDS, KEPT_SECONDS = 10.0, 60.0


def open_pool(dsn: str, options: Mapping[str, Any], *, size: int) -> ConnectionPool[WiredConnection]:
    return ConnectionPool(
        dsn,
        connection_class=WiredConnection,
        min_size=0,
        max_size=size,
        kwargs=dict(options),
        check=check,
        configure=_configure,
        open=True,
    )


def async_pool(
    dsn: str, options: Mapping[str, Any], *, size: int
) -> AsyncConnectionPool[WiredAsyncConnection]:
    """Not open yet: that is awaited."""
    return AsyncConnectionPool(
        dsn,
        connection_class=WiredAsyncConnection,
        min_size=0,
        max_size=size,
        kwargs=dict(options),
        check=check_async,
        configure=_configure_async,
        open=False,
    )


class Lender:
    """A pool for asyncio, and the connection that was used last beside it.

    To get a connection from the pool takes several times as long as to send a call over it, and most clients make one
    call at a time.
    """

    def __init__(self, pool: AsyncConnectionPool[WiredAsyncConnection]) -> None:
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


async def _configure_async(connection: WiredAsyncConnection) -> None:
    set_json_loads(jsonsafe.loads, connection)


def check(connection: psycopg.Connection[Any]) -> None:
    """For pools: asks the server only when something seems to be wrong."""
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
