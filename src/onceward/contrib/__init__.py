"""Running a call on a connection of the caller's own: psycopg, asyncpg, SQLAlchemy or Django.

The kind of connection is known by the package its class comes from, so that none of them has to be installed.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache
from importlib import import_module
from typing import Any, TypeVar

from onceward.calls import Call, Row
from onceward.calls.arguments import unfit
from onceward.calls.rights import not_allowed
from onceward.errors import InvalidArgument, OncewardError, from_database

T = TypeVar("T")
_PLACEHOLDER = re.compile(r"%\((\w+)\)s")
_SYNC = {
    "onceward": "onceward.wire",
    "psycopg": "onceward.contrib.psycopg",
    "sqlalchemy": "onceward.contrib.sqlalchemy",
    "django": "onceward.contrib.django",
}
_ASYNC = {
    "onceward": "onceward.wire",
    "psycopg": "onceward.contrib.psycopg",
    "sqlalchemy": "onceward.contrib.sqlalchemy",
    "asyncpg": "onceward.contrib.asyncpg",
}


# What _find_adapter has found: looking for it took longer than everything else here.
_known: dict[tuple[type[Any], bool], Any] = {}


def run(connection: Any, call: Call[T]) -> T:
    fetch: Callable[[Any, Call[Any]], Sequence[Row]] = _adapter(type(connection), is_async=False)
    try:
        result = call.parse(fetch(connection, call))
        if result is None and call.otherwise is not None:
            call = call.otherwise()
            result = call.parse(fetch(connection, call))
        return result
    except Exception as error:
        ours = _ours(error, connection, call)
        if ours is None:
            raise
        raise ours from error


async def run_async(connection: Any, call: Call[T]) -> T:
    fetch: Callable[[Any, Call[Any]], Awaitable[Sequence[Row]]] = _adapter(type(connection), is_async=True)
    try:
        result = call.parse(await fetch(connection, call))
        if result is None and call.otherwise is not None:
            call = call.otherwise()
            result = call.parse(await fetch(connection, call))
        return result
    except Exception as error:
        ours = _ours(error, connection, call)
        if ours is None:
            raise
        raise ours from error


def _ours(error: Exception, connection: Any, call: Call[Any]) -> OncewardError | None:
    if isinstance(error, OncewardError):
        return None
    return (
        from_database(error)
        or not_allowed(error, call.sql, user=_user(connection))
        or unfit(error, call)
        or _elsewhere(connection)
    )


def _elsewhere(connection: Any) -> OncewardError | None:
    """Libraries that speak to many databases: what is said when this one is not PostgreSQL."""
    try:
        bind = connection.get_bind() if hasattr(connection, "get_bind") else connection
        engine = getattr(connection, "vendor", None) or bind.dialect.name
    except Exception:
        return None
    if engine == "postgresql":
        return None
    return InvalidArgument(
        f"connection must be one to PostgreSQL, got one to {engine}",
        detail="Nothing was written.",
        hint="A job lives in the database of its transaction; without connection=, the client uses its own.",
    )


def _user(connection: Any) -> str | None:
    """Who is connected, where the driver says so: psycopg does."""
    user = getattr(getattr(connection, "info", None), "user", None)
    return user if isinstance(user, str) else None


def named_placeholders(sql: str) -> str:
    """`%(name)s` → `:name`, for SQLAlchemy."""
    return _PLACEHOLDER.sub(r":\1", sql.replace("::", r"\:\:")).replace("%%", "%")


@lru_cache(maxsize=256)
def numbered_placeholders(sql: str) -> tuple[str, tuple[str, ...]]:
    """`%(name)s` → `$1`, for asyncpg, and the names in order."""
    names: list[str] = []

    def number(match: re.Match[str]) -> str:
        if match.group(1) not in names:
            names.append(match.group(1))
        return f"${names.index(match.group(1)) + 1}"

    return _PLACEHOLDER.sub(number, sql).replace("%%", "%"), tuple(names)


def _adapter(kind: type[Any], *, is_async: bool) -> Any:
    known = _known.get((kind, is_async))
    if known is None:
        known = _known[kind, is_async] = _find_adapter(kind, is_async=is_async)
    return known


def _find_adapter(kind: type[Any], *, is_async: bool) -> Any:
    table = _ASYNC if is_async else _SYNC
    for base in kind.__mro__:
        name = table.get(base.__module__.partition(".")[0])
        if name is not None:
            module = import_module(name)
            if issubclass(kind, module.kinds(is_async=is_async)):
                return getattr(module, "fetch_async" if is_async else "fetch")
            # Asked before anything is sent: the wrong kind would send it, and fail afterwards.
            raise InvalidArgument(
                f"connection must be an open {'async' if is_async else 'sync'} connection or session, "
                f"got {kind.__module__}.{kind.__qualname__}",
                detail="Nothing was written.",
                hint="Async connections go with AsyncClient, others with Client; an engine, a pool or a cursor is none.",
            )
    wanted = ", ".join(sorted(set(table) - {"onceward"}))
    raise InvalidArgument(
        f"connection must be of {wanted}, got {kind.__module__}.{kind.__qualname__}",
        hint="Async connections go with AsyncClient, others with Client.",
    )
