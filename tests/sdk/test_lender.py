"""The connection that an AsyncClient keeps beside its pool: one call after the other, many at once, lost, idle, closed."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from onceward import AsyncClient, pools
from onceward.calls.base import Call, scalar
from tests.sdk.test_worker import until

PID = Call("select pg_backend_pid()", {}, scalar)
OPEN = "select pid from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"


@pytest.fixture
def watch(onceward_database):
    """Asks the database beside the client."""
    with psycopg.connect(onceward_database, autocommit=True) as conn:
        yield lambda sql, *params: [row[0] for row in conn.execute(sql, params)]


def run(client, story):
    async def whole():
        async with client:
            return await story(client)

    return asyncio.run(whole())


def test_calls_in_a_row_share_a_connection(onceward_database):
    async def story(client):
        return {await client.run(PID) for _ in range(5)}

    assert len(run(AsyncClient(onceward_database), story)) == 1


@pytest.mark.parametrize("size", [1, 2, 4])
def test_calls_at_once_have_the_whole_pool_and_nobody_is_forgotten(onceward_database, watch, size):
    async def story(client):
        for _ in range(3):
            async with asyncio.timeout(60):
                pids = await asyncio.gather(*(client.run(PID) for _ in range(20)))
            assert len(set(pids)) <= size
        return watch(OPEN)

    assert len(run(AsyncClient(onceward_database, pool_size=size), story)) <= size
    asyncio.run(until(lambda: watch(OPEN) == []))


def test_a_connection_that_the_server_ended_is_replaced_before_it_is_used(onceward_database, watch):
    async def story(client):
        first = await client.run(PID)
        assert watch("select pg_terminate_backend(%s, 10000)", first) == [True]
        return first, await client.run(PID)

    first, second = run(AsyncClient(onceward_database, pool_size=1), story)
    assert first != second


def test_a_connection_that_nobody_uses_goes_back_to_the_pool(onceward_database, monkeypatch):
    monkeypatch.setattr(pools, "IDLE_SECONDS", 0.0)

    async def story(client):
        first = await client.run(PID)
        await until(lambda: client._lender._pool.get_stats()["pool_available"] == 1)
        return first, await client.run(PID)

    first, second = run(AsyncClient(onceward_database), story)
    assert first == second


def test_a_connection_that_is_always_in_use_goes_back_now_and_then(onceward_database, monkeypatch):
    monkeypatch.setattr(pools, "KEPT_SECONDS", -1.0)

    async def story(client):
        await client.run(PID)
        return client._lender._pool.get_stats()["pool_available"]

    assert run(AsyncClient(onceward_database), story) == 1


def test_a_call_that_ends_after_the_client_was_closed_leaves_no_connection(onceward_database, watch):
    async def story():
        client = AsyncClient(onceward_database)
        await client.run(PID)
        late = asyncio.ensure_future(client.run(Call("select pg_advisory_lock(7)", {}, scalar)))
        await until(lambda: watch("select pid from pg_locks where locktype = 'advisory' and not granted"))
        await client.close()
        assert watch("select pg_advisory_unlock(7)") == [True]
        await late

    assert watch("select true from pg_advisory_lock(7)") == [True]
    asyncio.run(story())
    asyncio.run(until(lambda: watch(OPEN) == []))
