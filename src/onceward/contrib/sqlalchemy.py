"""SQLAlchemy sessions and connections, sync and async, over psycopg or asyncpg."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sqlalchemy import engine, orm, text

from onceward.calls import Call, Row
from onceward.contrib import named_placeholders

if TYPE_CHECKING:
    from sqlalchemy import Connection

    # Importing this while the program runs needs greenlet, which sync users may not have.
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
    from sqlalchemy.orm import Session


def kinds(*, is_async: bool) -> tuple[type[Any], ...]:
    if is_async:
        from sqlalchemy.ext import asyncio

        return asyncio.AsyncSession, asyncio.AsyncConnection, asyncio.async_scoped_session
    return orm.Session, engine.Connection, orm.scoped_session


def fetch(connection: Session | Connection, call: Call[Any]) -> Sequence[Row]:
    return connection.execute(text(named_placeholders(call.sql)), dict(call.params)).fetchall()


async def fetch_async(connection: AsyncSession | AsyncConnection, call: Call[Any]) -> Sequence[Row]:
    result = await connection.execute(text(named_placeholders(call.sql)), dict(call.params))
    return result.fetchall()
