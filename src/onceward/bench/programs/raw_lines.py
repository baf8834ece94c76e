"""One connection of the raw loop, by asyncpg where that is installed and by psycopg elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any


class Line(ABC):
    """Statements have parameters as $1, $2."""

    @abstractmethod
    async def open(self, dsn: str) -> None: ...

    @abstractmethod
    async def close(self) -> None: ...

    @abstractmethod
    async def run(self, sql: str, *args: object) -> None: ...

    @abstractmethod
    async def rows(self, sql: str, *args: object) -> Sequence[Any]: ...

    @abstractmethod
    async def copy(self, table: str, columns: list[str], records: list[tuple[str, ...]]) -> None: ...

    @abstractmethod
    def transaction(self) -> AbstractAsyncContextManager[object]: ...

    @abstractmethod
    async def listen(self, channel: str) -> None: ...

    @abstractmethod
    async def heard(self, timeout: float) -> None:
        """Return at the next notification, or one that has come meanwhile, or after so many seconds."""


def make_line(driver: str) -> Line:
    return AsyncpgLine() if driver == "asyncpg" else PsycopgLine()


class AsyncpgLine(Line):
    async def open(self, dsn: str) -> None:
        import asyncpg

        self._connection = await asyncpg.connect(dsn)
        self._wake = asyncio.Event()

    async def close(self) -> None:
        await self._connection.close()

    async def run(self, sql: str, *args: object) -> None:
        await self._connection.execute(sql, *args)

    async def rows(self, sql: str, *args: object) -> Sequence[Any]:
        return await self._connection.fetch(sql, *args)

    async def copy(self, table: str, columns: list[str], records: list[tuple[str, ...]]) -> None:
        await self._connection.copy_records_to_table(table, records=records, columns=columns)

    def transaction(self) -> AbstractAsyncContextManager[object]:
        return self._connection.transaction()

    async def listen(self, channel: str) -> None:
        await self._connection.add_listener(channel, lambda *_: self._wake.set())

    async def heard(self, timeout: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), timeout)
        self._wake.clear()


class PsycopgLine(Line):
    async def open(self, dsn: str) -> None:
        import psycopg

        self._connection = await psycopg.AsyncConnection.connect(
            dsn, autocommit=True, cursor_factory=psycopg.AsyncRawCursor, prepare_threshold=0
        )

    async def close(self) -> None:
        await self._connection.close()

    async def run(self, sql: str, *args: object) -> None:
        # Bytes pass unparsed; the statements are constants of this package.
        await self._connection.execute(sql.encode(), args)

    async def rows(self, sql: str, *args: object) -> Sequence[Any]:
        cursor = await self._connection.execute(sql.encode(), args, binary=True)
        return await cursor.fetchall()

    async def copy(self, table: str, columns: list[str], records: list[tuple[str, ...]]) -> None:
        statement = f"copy {table} ({', '.join(columns)}) from stdin"
        async with self._connection.cursor() as cursor, cursor.copy(statement.encode()) as copy:
            for record in records:
                await copy.write_row(record)

    def transaction(self) -> AbstractAsyncContextManager[object]:
        return self._connection.transaction()

    async def listen(self, channel: str) -> None:
        await self._connection.execute(f"listen {channel}".encode())

    async def heard(self, timeout: float) -> None:
        async for _ in self._connection.notifies(timeout=timeout, stop_after=1):
            pass
