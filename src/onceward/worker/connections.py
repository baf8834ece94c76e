"""Connections that handlers borrow for their transactions.  None is opened until somebody asks."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager
from typing import Any

import psycopg
from psycopg.types.json import set_json_loads

from onceward import jsonsafe
from onceward.pools import AsyncPool, Pool

# Idle ones are closed after a while, in seconds.
MAX_IDLE = 60.0
# Who finds none free waits for the others to end, as long as the job may take: to fail would use up an attempt.
LONGEST_WAIT = 86_400.0


class Connections:
    """A pool for async handlers and one for sync ones."""

    def __init__(self, dsn: str, most: int) -> None:
        self._dsn = dsn
        self._most = most
        self._async: AsyncPool[psycopg.AsyncConnection[Any]] | None = None
        self._sync: Pool[psycopg.Connection[Any]] | None = None
        self._opening = threading.Lock()

    @asynccontextmanager
    async def lend_async(self) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        async with (await self._pool()).connection(LONGEST_WAIT) as connection:
            yield connection

    def lend(self) -> AbstractContextManager[psycopg.Connection[Any]]:
        with self._opening:
            if self._sync is None:
                self._sync = Pool(
                    self._dsn, kwargs=_OPTIONS, configure=_configure, min_size=0, max_size=self._most,
                    max_idle=MAX_IDLE, open=True,
                )  # fmt: skip
        return self._sync.connection(LONGEST_WAIT)

    async def _pool(self) -> AsyncPool[psycopg.AsyncConnection[Any]]:
        if self._async is None:
            self._async = AsyncPool(
                self._dsn, kwargs=_OPTIONS, configure=_configure_async, min_size=0, max_size=self._most,
                max_idle=MAX_IDLE, open=False,
            )  # fmt: skip
            await self._async.open()
        return self._async

    async def close(self) -> None:
        if self._async is not None:
            await self._async.close(timeout=1.0)
        if self._sync is not None:
            self._sync.close(timeout=1.0)


_OPTIONS: dict[str, Any] = {
    "autocommit": True,
    "application_name": "onceward worker transactions",
    # The driver numbers what it prepares, and a pooler may hand us a session where another client's has that number.
    "prepare_threshold": None,
    "connect_timeout": 5,
    "keepalives_idle": 5,
    "keepalives_interval": 3,
    "keepalives_count": 3,
}


def _configure(connection: psycopg.Connection[Any]) -> None:
    set_json_loads(jsonsafe.loads, connection)


async def _configure_async(connection: psycopg.AsyncConnection[Any]) -> None:
    set_json_loads(jsonsafe.loads, connection)
