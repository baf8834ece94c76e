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
