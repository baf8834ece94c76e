"""The connections that a client keeps: opened when they are needed, looked at before they are used."""

from __future__ import annotations

import select
from collections.abc import Mapping
from typing import Any

from psycopg.types.json import set_json_loads
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from onceward import jsonsafe
from onceward.wire import WiredAsyncConnection, WiredConnection


def open_pool(dsn: str, options: Mapping[str, Any], *, size: int) -> ConnectionPool[WiredConnection]:
    return ConnectionPool(
        dsn,
        connection_class=WiredConnection,
        min_size=0,
        max_size=size,
        kwargs=dict(options),
        check=_check,
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
        check=_check_async,
        configure=_configure_async,
        open=False,
    )


def _configure(connection: WiredConnection) -> None:
    set_json_loads(jsonsafe.loads, connection)


async def _configure_async(connection: WiredAsyncConnection) -> None:
    set_json_loads(jsonsafe.loads, connection)


def _check(connection: WiredConnection) -> None:
    if _is_stale(connection):
        ConnectionPool.check_connection(connection)


async def _check_async(connection: WiredAsyncConnection) -> None:
    if _is_stale(connection):
        await AsyncConnectionPool.check_connection(connection)


def _is_stale(connection: WiredConnection | WiredAsyncConnection) -> bool:
    """Whether an idle connection has something to read: a farewell, most likely.  Costs no round trip."""
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))
