"""asyncpg connections, and connections of its pools."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import asyncpg

from onceward.calls import Call, Row
from onceward.contrib import numbered_placeholders


async def fetch_async(connection: asyncpg.Connection[Any], call: Call[Any]) -> Sequence[Row]:
    sql, names = numbered_placeholders(call.sql)
    return cast("Sequence[Row]", await connection.fetch(sql, *(call.params[name] for name in names)))
