"""A client that was closed: says so, opens nothing again, and lets nobody wait."""

from __future__ import annotations

import asyncio
import threading

import psycopg
import pytest

from onceward import AsyncClient, Client
from onceward.calls.base import Call, scalar
from onceward.errors import ClientClosed
from tests.sdk import shop
from tests.sdk.test_worker import until

PID = Call("select pg_backend_pid()", {}, scalar)
OPEN = "select pid from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"


@pytest.fixture
def watch(onceward_database):
    """Asks the database beside the client."""
    with psycopg.connect(onceward_database, autocommit=True) as conn:
        yield lambda sql, *params: [row[0] for row in conn.execute(sql, params)]


@pytest.mark.parametrize("used", [True, False])
def test_a_closed_client_refuses_and_opens_nothing(client, watch, used):
    if used:
        client.enqueue(shop.greet, {"name": "Ada"})
    client.close()
    client.close()

    for call in (
        lambda: client.enqueue(shop.greet, {"name": "Grace"}),
        lambda: client.enqueue_many(shop.greet, [{"name": "Grace"}]),
        client.jobs,
    ):
        with pytest.raises(ClientClosed, match="The client was closed") as caught:
            call()
        assert caught.value.hint == "Make a new one, or close it when nothing uses it any more."
    assert watch("select count(*) from onceward.jobs") == [int(used)]
    asyncio.run(until(lambda: watch(OPEN) == []))


def test_the_callers_own_connection_needs_none_of_the_clients(onceward_database, watch):
    client = Client(onceward_database, app=shop.app)
    client.close()
    with psycopg.connect(onceward_database) as conn:
        client.enqueue(shop.greet, {"name": "Ada"}, connection=conn)
    assert watch("select count(*) from onceward.jobs") == [1]


def test_threads_that_wait_for_a_connection_are_told(onceward_database, watch):
    client = Client(onceward_database, pool_size=1)
    told: list[BaseException] = []

    def ask() -> None:
        try:
            client.run(PID)
        except Exception as error:
            told.append(error)

    pool = client._connections()
    taken = pool.getconn()
    waiting = [threading.Thread(target=ask) for _ in range(3)]
    for thread in waiting:
        thread.start()
    asyncio.run(until(lambda: pool.get_stats().get("requests_waiting") == 3))
    client.close()
    for thread in waiting:
        thread.join(60)
    pool.putconn(taken)

    assert [type(error) for error in told] == [ClientClosed] * 3
    asyncio.run(until(lambda: watch(OPEN) == []))


def test_tasks_that_wait_for_a_connection_are_told(onceward_database, watch):
    async def story() -> list[object]:
        client = AsyncClient(onceward_database, pool_size=1)
        lender = await client._connections()
        taken = await lender.take(60)
        waiting = [asyncio.create_task(client.run(PID)) for _ in range(3)]
        await until(lambda: lender._waiting == 3)
        await client.close()
        told = await asyncio.gather(*waiting, return_exceptions=True)
        await lender.give_back(taken)
        return [type(answer) for answer in told]

    assert asyncio.run(story()) == [ClientClosed] * 3
    asyncio.run(until(lambda: watch(OPEN) == []))


def test_a_client_that_is_closed_while_it_opens_stays_closed(onceward_database, watch):
    async def story() -> object:
        client = AsyncClient(onceward_database)
        call = asyncio.create_task(client.run(PID))
        # It has begun to connect, and is not there yet.
        await asyncio.sleep(0)
        await client.close()
        (answer,) = await asyncio.gather(call, return_exceptions=True)
        return type(answer)

    assert asyncio.run(story()) is ClientClosed
    asyncio.run(until(lambda: watch(OPEN) == []))
