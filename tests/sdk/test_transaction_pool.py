"""The connections that handlers borrow: none that has ended meanwhile, and whoever finds none free waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta

import psycopg
import pytest
from psycopg_pool import PoolTimeout

from onceward.worker import connections
from onceward.worker.connections import Connections
from tests.sdk.test_worker import until

OURS = "select pid from pg_stat_activity where application_name = 'onceward worker transactions'"
MOST = 4


@pytest.fixture
def end_all(onceward_database):
    """Ends the session of every borrowed connection, as a restart of the server does."""

    def end() -> int:
        with psycopg.connect(onceward_database, autocommit=True) as conn:
            pids = [row[0] for row in conn.execute(OURS)]
            for pid in pids:
                conn.execute("select pg_terminate_backend(%s, 10000)", [pid])
            return len(pids)

    return end


def test_async_handlers_get_no_connection_that_has_ended(onceward_database, end_all):
    async def borrow(connections: Connections, together: asyncio.Barrier) -> None:
        async with connections.lend_async() as connection:
            await together.wait()
            await connection.execute("select 1")

    async def main() -> None:
        connections = Connections(onceward_database, MOST)
        for _ in range(3):
            together = asyncio.Barrier(MOST)
            async with asyncio.timeout(60), asyncio.TaskGroup() as group:
                for _ in range(MOST):
                    group.create_task(borrow(connections, together))
            assert await asyncio.to_thread(end_all) == MOST
        await connections.close()

    asyncio.run(main())


def test_sync_handlers_get_no_connection_that_has_ended(onceward_database, end_all):
    connections = Connections(onceward_database, 1)
    for _ in range(3):
        with connections.lend() as connection:
            connection.execute("select 1")
        assert end_all() == 1
    asyncio.run(connections.close())


async def second_of(connections: Connections, then: Callable[[], None] = lambda: None) -> None:
    """Borrow while the only connection is lent, and give it back then."""
    async with connections.lend_async():
        then()
        waiting = asyncio.ensure_future(connections.lend_async().__aenter__())
        pool = await connections._pool()
        await until(lambda: pool.get_stats()["requests_waiting"] == 1 or waiting.done())
    await waiting


def test_who_finds_no_connection_free_waits_for_one(onceward_database):
    asyncio.run(second_of(Connections(onceward_database, 1)))


def test_the_wait_is_ours_and_not_the_half_minute_of_the_pool(onceward_database, monkeypatch):
    """To give up uses an attempt of a job up that has done nothing wrong."""
    assert timedelta(seconds=connections.LONGEST_WAIT) >= timedelta(hours=1)

    def hurry() -> None:
        # Not before the first one is lent: to connect takes longer.
        monkeypatch.setattr(connections, "LONGEST_WAIT", 0.01)

    with pytest.raises(PoolTimeout):
        asyncio.run(second_of(Connections(onceward_database, 1), hurry))
    monkeypatch.undo()
    sync = Connections(onceward_database, 1)
    with sync.lend():
        hurry()
        with pytest.raises(PoolTimeout), sync.lend():
            pass
    asyncio.run(sync.close())
