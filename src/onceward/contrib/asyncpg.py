"""asyncpg connections, and connections of its pools."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, cast

import asyncpg

from onceward.calls import Call, Row
from onceward.contrib import numbered_placeholders

# A connection may have a codec of its own for jsonb, and would make JSON of our JSON text.
_JSONB = re.compile(r"(\$\d+)::jsonb\b")


def kinds(*, is_async: bool) -> tuple[type[Any], ...]:
    # Not a pool, which runs each call on whichever connection is free: that is not the caller's transaction.
    return (asyncpg.Connection, asyncpg.pool.PoolConnectionProxy) if is_async else ()


async def fetch_async(connection: asyncpg.Connection[Any], call: Call[Any]) -> Sequence[Row]:
    sql, names = _as_text(call.sql)
    return cast("Sequence[Row]", await connection.fetch(sql, *(call.params[name] for name in names)))


@lru_cache(maxsize=256)
def _as_text(sql: str) -> tuple[str, tuple[str, ...]]:
    numbered, names = numbered_placeholders(sql)
    return _JSONB.sub(r"\1::text::jsonb", numbered), names
