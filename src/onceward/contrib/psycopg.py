"""psycopg 3 connections, sync and async.  Rows are read as tuples whatever the connection's row factory is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg
from psycopg.rows import tuple_row

from onceward.calls import Call, Row


def fetch(connection: psycopg.Connection[Any], call: Call[Any]) -> Sequence[Row]:
    with connection.cursor(binary=True, row_factory=tuple_row) as cursor:
        return cursor.execute(call.sql, call.params).fetchall()


async def fetch_async(connection: psycopg.AsyncConnection[Any], call: Call[Any]) -> Sequence[Row]:
    async with connection.cursor(binary=True, row_factory=tuple_row) as cursor:
        await cursor.execute(call.sql, call.params)
        return await cursor.fetchall()
