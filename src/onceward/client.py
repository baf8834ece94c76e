"""Clients: two shells, sync and async, over one description of each call.

Given a `connection`, a call runs on the caller's own connection and transaction: psycopg, asyncpg, SQLAlchemy or
Django.  Rolling back leaves neither row nor job.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

import psycopg
from psycopg.types.json import set_json_loads
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from onceward import calls, contrib, jsonsafe
from onceward.calls import Call
from onceward.errors import is_connection_trouble, is_pooler_trouble
from onceward.model import AttemptInfo, JobFilter, JobInfo, JobRef, Json, LaneInfo
from onceward.requests import (
    CONNECT_TIMEOUT,
    TRIES,
    AnyJob,
    AnyTask,
    EnqueueOptions,
    Payload,
    Requests,
    check_timeout,
    ended,
    gave_up,
    is_stale,
    job_id_of,
    no_such_job,
)

if TYPE_CHECKING:
    from onceward.app import Onceward

T = TypeVar("T")
SyncConnection = psycopg.Connection[tuple[Any, ...]]
AsyncConnection = psycopg.AsyncConnection[tuple[Any, ...]]
A_MINUTE = timedelta(minutes=1)


class Client(Requests):
    """For synchronous code.  Threads may share one."""

    def __init__(
        self,
        dsn: str | None = None,
        *,
        app: Onceward | None = None,
        tenant: str | None = None,
        pool_size: int = 4,
    ) -> None:
        super().__init__(dsn, app, tenant=tenant, pool_size=pool_size)
        self._pool: ConnectionPool[SyncConnection] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    def run(self, call: Call[T], *, connection: Any = None) -> T:
        """Run any call, on the caller's connection or on one of our own."""
        if connection is not None:
            return contrib.run(connection, call)
        tries = TRIES if call.repeatable else 1
        while True:
            tries -= 1
            try:
                with self._connections().connection(CONNECT_TIMEOUT) as conn:
                    if self._tenant is None:
                        return contrib.run(conn, call)
                    with conn.transaction():
                        contrib.run(conn, calls.set_tenant(self._tenant))
                        return contrib.run(conn, call)
            except Exception as error:
                if is_pooler_trouble(error) and self._prepare_after is not None:
                    self._prepare_after = None
                    self.close()
                    tries += 1
                elif not tries or not is_connection_trouble(error):
                    raise

    def enqueue(
        self,
        task: AnyTask,
        payload: Payload | None = None,
        *,
        connection: Any = None,
        **options: Unpack[EnqueueOptions],
    ) -> JobRef:
        """Enqueue one job; with `connection`, in the caller's transaction."""
        call = self._enqueue(task, payload, options)
        self._declare(connection)
        return self.run(call, connection=connection)

    def enqueue_many(
        self,
        task: AnyTask,
        payloads: Iterable[Payload],
        *,
        keys: Sequence[str | None] | None = None,
        connection: Any = None,
        **options: Unpack[EnqueueOptions],
    ) -> list[JobRef]:
        """One job per payload, all with the same options, in one statement."""
        call = self._enqueue_many(task, payloads, keys, options)
        self._declare(connection)
        return self.run(call, connection=connection)

    def wait(self, job: AnyJob, timeout: timedelta = A_MINUTE) -> Json:
        """The job's result.  Raises JobFailed when it ended without one, WaitTimeout when it goes on."""
        job_id = job_id_of(job)
        deadline = time.monotonic() + check_timeout(timeout)
        pause = 0.005
        while True:
            over, result = ended(job_id, self.run(calls.outcome(job_id)))
            if over:
                return result
            if time.monotonic() + pause > deadline:
                raise gave_up(job_id, timeout)
            time.sleep(pause)
            pause = min(pause * 1.5, 0.25)

    def job(self, job: AnyJob) -> JobInfo:
        return _found(job, self.run(calls.job(job_id_of(job))))

    def jobs(self, wanted: JobFilter | None = None) -> list[JobInfo]:
        return self.run(calls.jobs(wanted or JobFilter()))

    def attempts(self, job: AnyJob) -> list[AttemptInfo]:
        return self.run(calls.attempts(job_id_of(job)))

    def lanes(self) -> list[LaneInfo]:
        return self.run(calls.lanes())

    def cancel(self, job: AnyJob, reason: str | None = None) -> str:
        """`cancelled`, or `cancelling` when the job runs: its worker hears of it within two seconds."""
        return self.run(calls.cancel(job_id_of(job), reason))

    def requeue(
        self, job: AnyJob, *, payload: Mapping[str, Json] | None = None, run_at: datetime | None = None
    ) -> str:
        return self.run(calls.requeue(job_id_of(job), payload=_edited(payload), run_at=run_at))

    def resolve(self, job: AnyJob, note: str, *, override: bool = False) -> None:
        self.run(calls.resolve(job_id_of(job), note, override=override))

    def run_now(self, job: AnyJob) -> str:
        return self.run(calls.run_now(job_id_of(job)))

    def add_lane(self, lane: str) -> bool:
        return self.run(calls.add_lane(lane))

    def pause_lane(self, lane: str, reason: str | None = None) -> bool:
        return self.run(calls.pause_lane(lane, reason))

    def resume_lane(self, lane: str) -> bool:
        return self.run(calls.resume_lane(lane))

    def _declare(self, connection: Any) -> None:
        if not self._lanes_declared and self._app is not None:
            created = self.run(calls.declare_lanes(self._app.lanes), connection=connection)
            self._learn_of_lanes(created, in_callers_transaction=connection is not None)

    def _connections(self) -> ConnectionPool[SyncConnection]:
        if self._pool is None:
            self._pool = ConnectionPool(
                self._resolve(),
                min_size=0,
                max_size=self._pool_size,
                kwargs=self._connection_options(),
                check=_check,
                configure=_configure,
                open=True,
            )
        return self._pool


class AsyncClient(Requests):
    """For asyncio code."""

    def __init__(
        self,
        dsn: str | None = None,
        *,
        app: Onceward | None = None,
        tenant: str | None = None,
        pool_size: int = 4,
    ) -> None:
        super().__init__(dsn, app, tenant=tenant, pool_size=pool_size)
        self._pool: AsyncConnectionPool[AsyncConnection] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        if self._pool is not None:
            await self._pool.close()
            self._pool = None

    async def run(self, call: Call[T], *, connection: Any = None) -> T:
        """Run any call, on the caller's connection or on one of our own."""
        if connection is not None:
            return await contrib.run_async(connection, call)
        tries = TRIES if call.repeatable else 1
        while True:
            tries -= 1
            try:
                async with (await self._connections()).connection(CONNECT_TIMEOUT) as conn:
                    if self._tenant is None:
                        return await contrib.run_async(conn, call)
                    async with conn.transaction():
                        await contrib.run_async(conn, calls.set_tenant(self._tenant))
                        return await contrib.run_async(conn, call)
            except Exception as error:
                if is_pooler_trouble(error) and self._prepare_after is not None:
                    self._prepare_after = None
                    await self.close()
                    tries += 1
                elif not tries or not is_connection_trouble(error):
                    raise

    async def enqueue(
        self,
        task: AnyTask,
        payload: Payload | None = None,
        *,
        connection: Any = None,
        **options: Unpack[EnqueueOptions],
    ) -> JobRef:
        """Enqueue one job; with `connection`, in the caller's transaction."""
        call = self._enqueue(task, payload, options)
        await self._declare(connection)
        return await self.run(call, connection=connection)

    async def enqueue_many(
        self,
        task: AnyTask,
        payloads: Iterable[Payload],
        *,
        keys: Sequence[str | None] | None = None,
        connection: Any = None,
        **options: Unpack[EnqueueOptions],
    ) -> list[JobRef]:
        """One job per payload, all with the same options, in one statement."""
        call = self._enqueue_many(task, payloads, keys, options)
        await self._declare(connection)
        return await self.run(call, connection=connection)

    async def wait(self, job: AnyJob, timeout: timedelta = A_MINUTE) -> Json:
        """The job's result.  Raises JobFailed when it ended without one, WaitTimeout when it goes on."""
        job_id = job_id_of(job)
        deadline = time.monotonic() + check_timeout(timeout)
        pause = 0.005
        while True:
            over, result = ended(job_id, await self.run(calls.outcome(job_id)))
            if over:
                return result
            if time.monotonic() + pause > deadline:
                raise gave_up(job_id, timeout)
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, 0.25)

    async def job(self, job: AnyJob) -> JobInfo:
        return _found(job, await self.run(calls.job(job_id_of(job))))

    async def jobs(self, wanted: JobFilter | None = None) -> list[JobInfo]:
        return await self.run(calls.jobs(wanted or JobFilter()))

    async def attempts(self, job: AnyJob) -> list[AttemptInfo]:
        return await self.run(calls.attempts(job_id_of(job)))

    async def lanes(self) -> list[LaneInfo]:
        return await self.run(calls.lanes())

    async def cancel(self, job: AnyJob, reason: str | None = None) -> str:
        """`cancelled`, or `cancelling` when the job runs: its worker hears of it within two seconds."""
        return await self.run(calls.cancel(job_id_of(job), reason))

    async def requeue(
        self, job: AnyJob, *, payload: Mapping[str, Json] | None = None, run_at: datetime | None = None
    ) -> str:
        return await self.run(calls.requeue(job_id_of(job), payload=_edited(payload), run_at=run_at))

    async def resolve(self, job: AnyJob, note: str, *, override: bool = False) -> None:
        await self.run(calls.resolve(job_id_of(job), note, override=override))

    async def run_now(self, job: AnyJob) -> str:
        return await self.run(calls.run_now(job_id_of(job)))

    async def add_lane(self, lane: str) -> bool:
        return await self.run(calls.add_lane(lane))

    async def pause_lane(self, lane: str, reason: str | None = None) -> bool:
        return await self.run(calls.pause_lane(lane, reason))

    async def resume_lane(self, lane: str) -> bool:
        return await self.run(calls.resume_lane(lane))

    async def _declare(self, connection: Any) -> None:
        if not self._lanes_declared and self._app is not None:
            created = await self.run(calls.declare_lanes(self._app.lanes), connection=connection)
            self._learn_of_lanes(created, in_callers_transaction=connection is not None)

    async def _connections(self) -> AsyncConnectionPool[AsyncConnection]:
        if self._pool is None:
            pool: AsyncConnectionPool[AsyncConnection] = AsyncConnectionPool(
                self._resolve(),
                min_size=0,
                max_size=self._pool_size,
                kwargs=self._connection_options(),
                check=_check_async,
                configure=_configure_async,
                open=False,
            )
            self._pool = pool
            await pool.open()
        return self._pool


def _found(job: AnyJob, found: JobInfo | None) -> JobInfo:
    if found is None:
        raise no_such_job(job_id_of(job))
    return found


def _edited(payload: Mapping[str, Json] | None) -> str | None:
    return None if payload is None else jsonsafe.dumps(payload)


def _configure(connection: SyncConnection) -> None:
    set_json_loads(jsonsafe.loads, connection)


async def _configure_async(connection: AsyncConnection) -> None:
    set_json_loads(jsonsafe.loads, connection)


def _check(connection: SyncConnection) -> None:
    if is_stale(connection):
        ConnectionPool.check_connection(connection)


async def _check_async(connection: AsyncConnection) -> None:
    if is_stale(connection):
        await AsyncConnectionPool.check_connection(connection)
