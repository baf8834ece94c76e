"""The calls of the schema intake: on the connection of a step, or in a transaction of a user."""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, LiteralString, ParamSpec, TypeVar
from uuid import UUID

from psycopg import AsyncConnection, Error, OperationalError
from psycopg.rows import dict_row, tuple_row
from psycopg.types.json import Jsonb

from onceward.errors import OncewardError, PermanentFailure
from onceward.pools import AsyncPool
from onceward_apps.kit import schema

Connection = AsyncConnection[Any]
Row = dict[str, Any]
P = ParamSpec("P")
R = TypeVar("R")
SCHEMA = "intake"
# The driver numbers what it prepares, and a pooler may hand us a session where another client's has that number.
_CONNECTING = {"autocommit": True, "prepare_threshold": None}


class StoreFailed(OncewardError):
    """What was read could not be stored."""


def private(function: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R]]:
    """For calls that carry what stands in documents: the database's own message may quote it, and must not get out."""

    @functools.wraps(function)
    async def quietly(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return await function(*args, **kwargs)
        except OperationalError:
            raise
        except Error as error:
            raise StoreFailed(f"could not be stored: SQLSTATE {error.sqlstate}") from None

    return quietly


def install(dsn: str) -> bool:
    """Apply the schema unless it is there; whether it was applied.  The engine must be installed."""
    return schema.install(dsn, "intake", SCHEMA)


async def call(connection: Connection, statement: LiteralString, *params: object) -> Any:
    """The one value of a call."""
    cursor = connection.cursor(row_factory=tuple_row)
    row = await (await cursor.execute(statement, params)).fetchone()
    return row[0] if row else None


async def rows(connection: Connection, statement: LiteralString, *params: object) -> list[Row]:
    cursor = connection.cursor(row_factory=dict_row)
    return await (await cursor.execute(statement, params)).fetchall()


# ------------------------------------------------------------ transactions in somebody's name


@dataclass(slots=True)
class Database:
    """A few connections.  Every transaction says for whom it is: the database's own rules decide what it sees."""

    dsn: str
    size: int = 8
    _pool: AsyncPool[Connection] | None = field(default=None, repr=False)

    async def open(self) -> None:
        if self._pool is None:
            pool: AsyncPool[Connection] = AsyncPool(
                self.dsn, min_size=0, max_size=self.size, open=False, kwargs=_CONNECTING
            )
            await pool.open()
            self._pool = pool

    async def close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()

    @contextlib.asynccontextmanager
    async def _as(self, role: LiteralString, user: UUID | None) -> AsyncIterator[Connection]:
        await self.open()
        assert self._pool is not None
        async with self._pool.connection(30) as connection, connection.transaction():
            claims = "" if user is None else json.dumps({"sub": str(user), "role": role})
            await connection.execute(
                "select set_config('request.jwt.claims', %s, true), set_config('onceward.tenant', '*', true)",
                [claims],
            )
            await connection.execute("set local role " + role)
            yield connection

    def reading(self, user: UUID) -> contextlib.AbstractAsyncContextManager[Connection]:
        """As the user: row-level security shows what they have access to."""
        return self._as("authenticated", user)

    def serving(self, user: UUID | None = None) -> contextlib.AbstractAsyncContextManager[Connection]:
        """As the service role, on behalf of a user or of nobody."""
        return self._as("service_role", user)


# ------------------------------------------------------------ the fast queue


async def begin_file(connection: Connection, file_id: UUID) -> Row:
    found: Row = await call(connection, "select intake.begin_file(%s)", file_id)
    if found["id"] is None:
        raise PermanentFailure(f"file {file_id} does not exist")
    return found


async def refuse_file(connection: Connection, file_id: UUID, code: str, message: str) -> None:
    await call(connection, "select intake.refuse_file(%s, %s, %s)", file_id, code, message)


@private
async def store_page(
    connection: Connection, file_id: UUID, page: Mapping[str, Any], words: Sequence[Row]
) -> int:
    stored: int = await call(
        connection,
        "select intake.store_page(%s, %s, %s, %s, %s, %s)",
        file_id, page["number"], page["width"], page["height"], page["path"], Jsonb(list(words)),
    )  # fmt: skip
    return stored


async def finish_ocr(
    connection: Connection, file_id: UUID, pages: int, tokens: int, provider: Mapping[str, str]
) -> str:
    job: UUID = await call(
        connection, "select intake.finish_ocr(%s, %s, %s, %s)", file_id, pages, tokens, Jsonb(dict(provider))
    )
    return str(job)


@private
async def record_error(connection: Connection, file_id: UUID, error: Row, *, is_last: bool) -> None:
    await call(
        connection, "select intake.record_processing_error(%s, %s, %s)", file_id, Jsonb(error), is_last
    )


# ------------------------------------------------------------ the AI queue


async def enqueue_pass(
    connection: Connection, file_id: UUID, number: int, tokens: int, provider: Mapping[str, str]
) -> str:
    job: UUID = await call(
        connection,
        "select intake.enqueue_pass(%s, %s, %s, %s, %s)",
        file_id, number, tokens, provider["provider_name"], provider["api_endpoint"],
    )  # fmt: skip
    return str(job)


async def read_document(connection: Connection, file_id: UUID) -> Row:
    found: Row | None = await call(connection, "select intake.read_document(%s)", file_id)
    if found is None:
        raise PermanentFailure(f"file {file_id} does not exist")
    return found


async def read_facts(connection: Connection, file_id: UUID) -> list[Row]:
    found: list[Row] = await call(connection, "select intake.read_facts(%s)", file_id)
    return found


@private
async def store_classification(
    connection: Connection, file_id: UUID, job_id: UUID, found: Mapping[str, Any], used: Row
) -> None:
    await call(
        connection,
        "select intake.store_classification(%s, %s, %s, %s, %s, %s, %s)",
        file_id, job_id, found["kind"], found["language"], found["confidence"], Jsonb(found["entities"]), Jsonb(used),
    )  # fmt: skip


@private
async def store_facts(
    connection: Connection, file_id: UUID, job_id: UUID, facts: Sequence[Row], used: Row
) -> int:
    stored: int = await call(
        connection,
        "select intake.store_facts(%s, %s, %s, %s)",
        file_id,
        job_id,
        Jsonb(list(facts)),
        Jsonb(used),
    )
    return stored


@private
async def store_timeline(
    connection: Connection, file_id: UUID, job_id: UUID, normal: Sequence[Row], entry: Row
) -> None:
    await call(
        connection,
        "select intake.store_timeline(%s, %s, %s, %s)",
        file_id,
        job_id,
        Jsonb(list(normal)),
        Jsonb(entry),
    )
