"""The connections that handlers borrow: none that has ended meanwhile, and whoever finds none free waits."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from onceward.worker.connections import LONGEST_WAIT, Connections
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


def test_who_finds_no_connection_free_waits_for_one(onceward_database):
    async def main() -> None:
        connections = Connections(onceward_database, 1)

        async def second() -> bool:
            async with connections.lend_async():
                return True

        async with connections.lend_async():
            waiting = asyncio.ensure_future(second())
            pool = await connections._pool()
            await until(lambda: pool.get_stats()["requests_waiting"] == 1)
        assert await waiting
        await connections.close()

    asyncio.run(main())
    # The driver's pools give up after half a minute; a job that waits its turn has done nothing wrong.
    assert LONGEST_WAIT >= 3600
