"""When the server has ended every session, whoever comes next gets a connection at once, and not after one pause for each."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack, ExitStack

import psycopg
import pytest

from onceward import AsyncClient, Client
from onceward.calls.base import Call, scalar
from onceward.requests import CONNECT_TIMEOUT
from onceward.worker.connections import Connections

ENDED = """
select pg_terminate_backend(pid, 10000) from pg_stat_activity
 where datname = current_database() and application_name = %s
"""
# With the driver's pauses of 0, 1, 2, 4 … seconds, the last one would be reached after two minutes.
MANY = 8
WITHIN = 60.0
ONE = Call("select 1", {}, scalar)


@pytest.fixture
def end_all(onceward_database):
    """Ends all sessions of this name, as a restart of the server does."""

    def end(name: str) -> None:
        with psycopg.connect(onceward_database, autocommit=True) as conn:
            assert conn.execute(ENDED, [name]).fetchall() == [(True,)] * MANY

    return end


def test_a_client(onceward_database, end_all):
    with Client(onceward_database, pool_size=MANY) as client:
        pool = client._connections()
        for connection in [pool.getconn() for _ in range(MANY)]:
            pool.putconn(connection)
        end_all("onceward client")
        # It has so long to find one, and would say then that all are in use.
        began = time.monotonic()
        assert client.run(ONE) == 1
        assert time.monotonic() - began < CONNECT_TIMEOUT


def test_an_async_client(onceward_database, end_all):
    async def main() -> None:
        async with AsyncClient(onceward_database, pool_size=MANY) as client:
            lender = await client._connections()
            for connection in [await lender.take(CONNECT_TIMEOUT) for _ in range(MANY)]:
                await lender.give_back(connection)
            await asyncio.to_thread(end_all, "onceward client")
            assert await client.run(ONE) == 1

    asyncio.run(main())


def test_a_transaction_of_an_async_handler(onceward_database, end_all):
    async def main() -> None:
        connections = Connections(onceward_database, MANY)
        async with AsyncExitStack() as all_of_them:
            for _ in range(MANY):
                await all_of_them.enter_async_context(connections.lend_async())
        await asyncio.to_thread(end_all, "onceward worker transactions")
        async with asyncio.timeout(WITHIN), connections.lend_async() as connection:
            await connection.execute("select 1")
        await connections.close()

    asyncio.run(main())


def test_a_transaction_of_a_handler_in_a_thread(onceward_database, end_all):
    connections = Connections(onceward_database, MANY)
    with ExitStack() as all_of_them:
        for _ in range(MANY):
            all_of_them.enter_context(connections.lend())
    end_all("onceward worker transactions")
    began = time.monotonic()
    with connections.lend() as connection:
        connection.execute("select 1")
    assert time.monotonic() - began < WITHIN
    asyncio.run(connections.close())
