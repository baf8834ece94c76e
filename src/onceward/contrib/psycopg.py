"""psycopg 3 connections, sync and async, whatever their factories of cursors and rows are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg.rows import tuple_row

from onceward.calls import Call, Row


def kinds(*, is_async: bool) -> type[Any]:
    return psycopg.AsyncConnection if is_async else psycopg.Connection


def fetch(connection: psycopg.Connection[Any], call: Call[Any]) -> Sequence[Row]:
    with _cursor(connection) as cursor:
        return cursor.execute(call.sql, call.params, binary=True).fetchall()


async def fetch_async(connection: psycopg.AsyncConnection[Any], call: Call[Any]) -> Sequence[Row]:
    async with _async_cursor(connection) as cursor:
        await cursor.execute(call.sql, call.params, binary=True)
        return await cursor.fetchall()


def _cursor(connection: psycopg.Connection[Any]) -> psycopg.Cursor[Row]:
    """Of the connection's own kind, which may be there to watch, unless that has other placeholders or no binary values."""
    if issubclass(connection.cursor_factory, psycopg.ClientCursor | psycopg.RawCursor):
        return psycopg.Cursor(connection, row_factory=tuple_row)
    return connection.cursor(row_factory=tuple_row)


def _async_cursor(connection: psycopg.AsyncConnection[Any]) -> psycopg.AsyncCursor[Row]:
    if issubclass(connection.cursor_factory, psycopg.AsyncClientCursor | psycopg.AsyncRawCursor):
        return psycopg.AsyncCursor(connection, row_factory=tuple_row)
    return connection.cursor(row_factory=tuple_row)
