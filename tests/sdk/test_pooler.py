"""Behind PgBouncer in transaction mode: nothing depends on the session.  Under load and blows: tests/crash/faults_pooler.py."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from onceward import AsyncClient, Client
from onceward.calls.base import Call, scalar
from onceward.worker import Worker
from onceward.worker.connections import Connections
from tests.sdk import shop
from tests.support import pgbouncer
from tests.support.pgbouncer import PgBouncer

pytestmark = pytest.mark.skipif(pgbouncer.PROGRAM is None, reason=pgbouncer.MISSING)


@pytest.fixture
def pooled(onceward_database, tmp_path_factory):
    """The same database through a transaction-mode pooler with two server connections."""
    folder = tmp_path_factory.mktemp("pgbouncer")
    with PgBouncer(folder, onceward_database, pool_size=2) as bouncer:
        yield bouncer.dsn(conninfo_to_dict(onceward_database)["dbname"])


@contextmanager
def elsewhere(pooled: str) -> Iterator[None]:
    """Whoever has used one server connection up to now uses the other one meanwhile."""
    with psycopg.connect(pooled, prepare_threshold=None) as holder:
        # The one that was used last is given away first.
        holder.execute("select 1")
        yield


def test_clients_and_workers_share_two_server_connections(pooled):
    with Client(pooled, app=shop.app) as client, Client(pooled, app=shop.app) as another:
        jobs = [one.enqueue(shop.greet, {"name": str(i)}) for i in range(20) for one in (client, another)]
        assert asyncio.run(Worker(shop.app, dsn=pooled, concurrency=5).drain()) == 40
        assert [client.wait(job) for job in jobs] == [f"Hello {i}" for i in range(20) for _ in "ab"]


def test_the_tenant_of_one_call_does_not_leak_into_the_next(pooled):
    with (
        Client(pooled, app=shop.app, tenant="acme") as acme,
        psycopg.connect(pooled, autocommit=True, prepare_threshold=None) as other,
    ):
        for _ in range(10):
            acme.enqueue(shop.greet, {"name": "Ada"})
            assert other.execute("select onceward.current_tenant()").fetchone() == (None,)


def plus_one(number: int) -> Call[int]:
    return Call("select %(n)s::int + 1", {"n": number}, scalar)


def times_ten(number: int) -> Call[int]:
    return Call("select %(n)s::int * 10", {"n": number}, scalar)


def test_a_prepared_call_never_runs_what_another_client_has_prepared(pooled):
    with Client(pooled, pool_size=1) as one, Client(pooled, pool_size=1) as other:
        assert [one.run(plus_one(n)) for n in range(5)] == [1, 2, 3, 4, 5]
        with elsewhere(pooled):
            assert [other.run(times_ten(n)) for n in range(5)] == [0, 10, 20, 30, 40]
            assert one.run(plus_one(7)) == 8


def test_an_awaited_prepared_call_never_runs_what_another_client_has_prepared(pooled):
    async def main() -> None:
        async with AsyncClient(pooled, pool_size=1) as one, AsyncClient(pooled, pool_size=1) as other:
            assert [await one.run(plus_one(n)) for n in range(5)] == [1, 2, 3, 4, 5]
            with elsewhere(pooled):
                assert [await other.run(times_ten(n)) for n in range(5)] == [0, 10, 20, 30, 40]
                assert await one.run(plus_one(7)) == 8

    asyncio.run(main())


def test_transactions_of_handlers_leave_nothing_in_a_session(pooled):
    async def main() -> None:
        connections = Connections(pooled, 1)
        for _ in range(10):
            async with connections.lend_async() as connection:
                await connection.execute("select %s::int", [1])
        with elsewhere(pooled):
            async with connections.lend_async() as connection:
                assert await (await connection.execute("select %s::int", [1])).fetchone() == (1,)
        await connections.close()

    asyncio.run(main())


def test_transactions_of_handlers_in_threads_leave_nothing_in_a_session(pooled):
    connections = Connections(pooled, 1)
    for _ in range(10):
        with connections.lend() as connection:
            connection.execute("select %s::int", [1])
    with elsewhere(pooled), connections.lend() as connection:
        assert connection.execute("select %s::int", [1]).fetchone() == (1,)
    asyncio.run(connections.close())
