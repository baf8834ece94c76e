"""PgQueuer in its best documented configuration: the asyncpg driver, and batches of 200."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import Any

import asyncpg

from .producer import Batch, Producer
from .tally import Tally

ENTRYPOINT = "count"


def make_producer() -> Producer:
    return PgQueuerProducer()


async def install(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    await _queries(connection).install()
    await connection.close()


def work(dsn: str, run: Callable[..., None], batch: int = 200) -> None:
    run(_work(dsn, batch))


async def _work(dsn: str, batch: int) -> None:
    logging.disable(logging.WARNING)
    package = importlib.import_module("pgqueuer")
    queue = package.PgQueuer(package.AsyncpgDriver(await asyncpg.connect(dsn)))
    tally = Tally()

    async def count(job: Any) -> None:
        tally.hit(int(job.payload))

    queue.entrypoint(ENTRYPOINT)(count)
    await queue.run(batch_size=batch)


def _queries(connection: Any) -> Any:
    # Not installed where this is checked: it lives in the environment that the benchmark makes.
    package = importlib.import_module("pgqueuer")
    return package.Queries(package.AsyncpgDriver(connection))


class PgQueuerProducer(Producer):
    async def open(self, dsn: str) -> None:
        self._connection = await asyncpg.connect(dsn)
        self._queries = _queries(self._connection)

    async def close(self) -> None:
        await self._connection.close()

    async def one(self, sent: int) -> None:
        await self._queries.enqueue(ENTRYPOINT, b"%d" % sent)

    async def many(self, batch: Batch) -> None:
        payload = b"0" + b" " * batch.filling
        later = [timedelta(days=1)] * batch.count if batch.later else None
        await self._queries.enqueue(
            [ENTRYPOINT] * batch.count, [payload] * batch.count, [0] * batch.count, later
        )

    def transaction(self) -> AbstractAsyncContextManager[object]:
        return self._connection.transaction()

    async def write(self) -> None:
        await self._connection.execute("insert into caller_row (note) values ('paid')")
