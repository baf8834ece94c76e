"""Onceward, used as an application would: its clients, and its worker with default settings."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from typing import Any

import psycopg

from onceward import AsyncClient, Client
from onceward.registry import Task
from onceward.requests import EnqueueOptions

from .engine_tasks import app, count, count_filled, count_in_thread, count_limited, hold, stepped
from .engine_tasks import work as work_task
from .producer import Batch, Producer

A_DAY = timedelta(days=1)
TASKS: dict[str, Task[Any, Any]] = {
    "count": count,
    "count_in_thread": count_in_thread,
    "count_limited": count_limited,
    "work": work_task,
    "hold": hold,
    "stepped": stepped,
}


def make_producer(client: str = "async", task: str = "count", tenant: str | None = None) -> Producer:
    return AsyncProducer(task, tenant) if client == "async" else SyncProducer()


def work(dsn: str, run: Callable[..., None], concurrency: int = 50, processes: int = 1) -> None:
    from onceward.worker import WorkerSettings, run_worker

    # Its own choice of loop, not ours: this is the program that `onceward worker` runs.
    target = f"{count.handler.__module__}:app"
    run_worker(target, WorkerSettings(dsn=dsn, concurrency=concurrency, processes=processes))


def serve(dsn: str) -> None:
    """The web pages, on a free port that is told as the first answer."""
    import asyncio
    import json

    from onceward.web import ApiSettings, WebSettings
    from onceward.web.server import make_server, open_socket

    opened = open_socket("127.0.0.1", 0)
    address = f"http://localhost:{opened.getsockname()[1]}"
    # One caller asks as fast as it can, which is what the limits are there to stop.
    settings = WebSettings(dsn=dsn, api=ApiSettings(rate=1e6, burst=1e6))
    server = make_server(settings, started=lambda: print(json.dumps({"address": address}), flush=True))
    asyncio.run(server.serve([opened]))


class CountingCursor(psycopg.AsyncCursor[Any]):
    sent = 0

    async def execute(self, *args: Any, **kwargs: Any) -> CountingCursor:
        CountingCursor.sent += 1
        await super().execute(*args, **kwargs)
        return self


class CountingSyncCursor(psycopg.Cursor[Any]):
    sent = 0

    def execute(self, *args: Any, **kwargs: Any) -> CountingSyncCursor:
        CountingSyncCursor.sent += 1
        super().execute(*args, **kwargs)
        return self


def bulk_arguments(batch: Batch, task: Any) -> tuple[Any, list[dict[str, Any]], dict[str, Any]]:
    if batch.filling:
        text = "x" * batch.filling
        return count_filled, [{"sent": 0, "filling": text} for _ in range(batch.count)], {}
    keys = [f"key {batch.first + i}" for i in range(batch.count)] if batch.keyed else None
    options = EnqueueOptions()
    if batch.later:
        options["delay"] = A_DAY
    if batch.concurrency_key is not None:
        options["concurrency_key"] = batch.concurrency_key
    turns = None
    if batch.keys_in_turn:
        turns = [f"key {(batch.first + i) % batch.keys_in_turn}" for i in range(batch.count)]
    payload: dict[str, Any] = {} if task is hold else {"sent": 0}
    return (
        task,
        [dict(payload) for _ in range(batch.count)],
        {"keys": keys, "concurrency_keys": turns, **options},
    )


class AsyncProducer(Producer):
    def __init__(self, task: str, tenant: str | None) -> None:
        self._task = TASKS[task]
        self._tenant = tenant
        self._inside: psycopg.AsyncConnection[Any] | None = None

    async def open(self, dsn: str) -> None:
        self._client = AsyncClient(dsn, app=app, tenant=self._tenant)
        self._connection = await psycopg.AsyncConnection.connect(dsn, cursor_factory=CountingCursor)

    async def close(self) -> None:
        await self._client.close()
        await self._connection.close()

    async def one(self, sent: int) -> None:
        await self._client.enqueue(self._task, {"sent": sent}, connection=self._inside)

    async def many(self, batch: Batch) -> None:
        task, payloads, options = bulk_arguments(batch, self._task)
        await self._client.enqueue_many(task, payloads, connection=self._inside, **options)

    def transaction(self) -> AbstractAsyncContextManager[object]:
        return self._transaction()

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[None]:
        async with self._connection.transaction():
            self._inside = self._connection
            try:
                yield
            finally:
                self._inside = None

    async def write(self) -> None:
        await self._connection.execute("insert into caller_row (note) values ('paid')")

    @property
    def statements(self) -> int:
        return CountingCursor.sent


class SyncProducer(Producer):
    """The sync client.  Its calls block, which is right: there is nothing else to do."""

    def __init__(self) -> None:
        self._inside: psycopg.Connection[Any] | None = None

    async def open(self, dsn: str) -> None:
        self._client = Client(dsn, app=app)
        self._connection = psycopg.connect(dsn, cursor_factory=CountingSyncCursor)

    async def close(self) -> None:
        self._client.close()
        self._connection.close()

    async def one(self, sent: int) -> None:
        self._client.enqueue(count, {"sent": sent}, connection=self._inside)

    async def many(self, batch: Batch) -> None:
        task, payloads, options = bulk_arguments(batch, count)
        self._client.enqueue_many(task, payloads, connection=self._inside, **options)

    def transaction(self) -> AbstractAsyncContextManager[object]:
        return self._transaction()

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[None]:
        with self._connection.transaction():
            self._inside = self._connection
            try:
                yield
            finally:
                self._inside = None

    async def write(self) -> None:
        self._connection.execute("insert into caller_row (note) values ('paid')")

    @property
    def statements(self) -> int:
        return CountingSyncCursor.sent
