"""The link of a worker that listens: whatever is said is heard, whether or not a call is under way."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import psycopg
import pytest

from onceward.calls.base import Call, scalar
from onceward.worker.link import Link
from tests.sdk.test_worker import until


@asynccontextmanager
async def listening(dsn):
    heard: asyncio.Queue[str] = asyncio.Queue()
    link = Link(dsn, "listener", on_note=heard.put_nowait)
    try:
        yield link, heard
    finally:
        await link.close()


def value(sql: str) -> Call[object]:
    return Call(sql, {}, scalar)


async def next_of(heard: asyncio.Queue[str]) -> str:
    async with asyncio.timeout(30):
        return await heard.get()


def test_what_is_said_between_two_calls_is_heard_without_a_third(onceward_database):
    async def main():
        async with listening(onceward_database) as (link, heard):
            await link.run(value("select 1"))
            with psycopg.connect(onceward_database, autocommit=True) as other:
                other.execute("notify onceward, 'mail'")
                assert await next_of(heard) == "mail"
                other.execute("notify onceward, 'ocr'; notify onceward, 'mail'")
                assert [await next_of(heard), await next_of(heard)] == ["ocr", "mail"]

    asyncio.run(main())


def test_what_comes_with_an_answer_is_heard(onceward_database):
    async def main():
        async with listening(onceward_database) as (link, heard):
            await link.run(value("select pg_notify('onceward', 'mail')"))
            assert await next_of(heard) == "mail"

    asyncio.run(main())


def test_a_call_that_was_refused_leaves_the_link_listening(onceward_database):
    async def main():
        async with listening(onceward_database) as (link, heard):
            with pytest.raises(psycopg.errors.DivisionByZero):
                await link.run(value("select 1 / 0"))
            await link.run(value("select 1"))
            with psycopg.connect(onceward_database, autocommit=True) as other:
                other.execute("notify onceward, 'mail'")
            assert await next_of(heard) == "mail"

    asyncio.run(main())


def test_a_connection_that_ends_while_nobody_calls_is_replaced_and_listens_again(onceward_database):
    async def main():
        async with listening(onceward_database) as (link, heard):
            first = await link.run(value("select pg_backend_pid()"))
            with psycopg.connect(onceward_database, autocommit=True) as other:
                other.execute("select pg_terminate_backend(%s, 30000)", [first])
                # The loop was told once, and is not told again and again.
                await until(lambda: link._watched is None)
                assert await link.run(value("select pg_backend_pid()")) != first
                other.execute("notify onceward, 'mail'")
                assert await next_of(heard) == "mail"

    asyncio.run(main())


def test_a_call_that_was_sent_ahead_gets_its_answer_and_the_link_goes_on_listening(onceward_database):
    async def main():
        async with listening(onceward_database) as (link, heard):
            await link.run(value("select 1"))
            call = value("select pg_notify('onceward', 'mail')::text || 'sent'")
            begun = link.send(call)
            assert begun is not None
            # Its answer is there before anybody waits for it.
            with psycopg.connect(onceward_database, autocommit=True) as other:
                other.execute("notify onceward, 'ocr'")
                until_idle = "select count(*) = 0 from pg_stat_activity where application_name = 'listener' and state = 'active'"
                await until(lambda: other.execute(until_idle).fetchone()[0])
            assert await link.run(call, begun) == "sent"
            assert {await next_of(heard), await next_of(heard)} == {"mail", "ocr"}
            assert await link.run(value("select 2")) == 2

    asyncio.run(main())


def test_nothing_is_sent_ahead_without_a_connection_or_beside_another_call(onceward_database):
    async def main():
        async with listening(onceward_database) as (link, _):
            call = value("select 1")
            assert link.send(call) is None
            assert await link.run(call, None) == 1
            begun = link.send(call)
            assert link.send(call) is None
            assert await link.run(call, begun) == 1
            link.cut_off()
            lost = link.send(call)
            with pytest.raises(psycopg.OperationalError):
                await link.run(call, lost)
            assert await link.run(call) == 1

    asyncio.run(main())
