"""The connections that a client keeps: opened when they are needed, looked at before they are used."""

from __future__ import annotations

import select
from collections.abc import Mapping
from typing import Any

import psycopg
from psycopg.types.json import set_json_loads
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from onceward import jsonsafe

SyncConnection = psycopg.Connection[tuple[Any, ...]]
AsyncConnection = psycopg.AsyncConnection[tuple[Any, ...]]


def open_pool(dsn: str, options: Mapping[str, Any], *, size: int) -> ConnectionPool[SyncConnection]:
    return ConnectionPool(
        dsn, min_size=0, max_size=size, kwargs=dict(options), check=_check, configure=_configure, open=True
    )


def async_pool(dsn: str, options: Mapping[str, Any], *, size: int) -> AsyncConnectionPool[AsyncConnection]:
    """Not open yet: that is awaited."""
    return AsyncConnectionPool(
        dsn,
        min_size=0,
        max_size=size,
        kwargs=dict(options),
        check=_check_async,
        configure=_configure_async,
        open=False,
    )


def _configure(connection: SyncConnection) -> None:
    set_json_loads(jsonsafe.loads, connection)


async def _configure_async(connection: AsyncConnection) -> None:
    set_json_loads(jsonsafe.loads, connection)


def _check(connection: SyncConnection) -> None:
    if _is_stale(connection):
        ConnectionPool.check_connection(connection)


async def _check_async(connection: AsyncConnection) -> None:
    if _is_stale(connection):
        await AsyncConnectionPool.check_connection(connection)


def _is_stale(connection: SyncConnection | AsyncConnection) -> bool:
    """Whether an idle connection has something to read: a farewell, most likely.  Costs no round trip."""
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))
