"""The link of a worker that listens: whatever is said is heard, whether or not a call is under way."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from contextlib import asynccontextmanager
from pathlib import Path

import psycopg
import pytest
import uvloop

from onceward.calls.base import Call, scalar
from onceward.worker.link import Link
from tests.sdk.test_worker import until

# A message of the protocol that asks for nothing.
SYNC = b"S\0\0\0\4"


@pytest.fixture(params=[asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def run(request):
    """Workers have uvloop where it is installed; it differs in what it tells of a socket that has failed."""
    return request.param


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


def descriptors() -> int:
    return len(list(Path("/dev/fd").iterdir()))


def test_what_is_said_between_two_calls_is_heard_without_a_third(onceward_database, run):
    async def main():
        async with listening(onceward_database) as (link, heard):
            await link.run(value("select 1"))
            with psycopg.connect(onceward_database, autocommit=True) as other:
                other.execute("notify onceward, 'mail'")
                assert await next_of(heard) == "mail"
                other.execute("notify onceward, 'ocr'; notify onceward, 'mail'")
                assert [await next_of(heard), await next_of(heard)] == ["ocr", "mail"]

    run(main())


def test_what_comes_with_an_answer_is_heard(onceward_database, run):
    async def main():
        async with listening(onceward_database) as (link, heard):
            await link.run(value("select pg_notify('onceward', 'mail')"))
            assert await next_of(heard) == "mail"

    run(main())


def test_a_call_that_was_refused_leaves_the_link_listening(onceward_database, run):
    async def main():
        async with listening(onceward_database) as (link, heard):
            with pytest.raises(psycopg.errors.DivisionByZero):
                await link.run(value("select 1 / 0"))
            await link.run(value("select 1"))
            with psycopg.connect(onceward_database, autocommit=True) as other:
                other.execute("notify onceward, 'mail'")
            assert await next_of(heard) == "mail"

    run(main())


def test_a_connection_that_ends_while_nobody_calls_is_replaced_and_listens_again(onceward_database, run):
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

    run(main())


def test_a_call_that_was_sent_ahead_gets_its_answer_and_the_link_goes_on_listening(onceward_database, run):
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

    run(main())


def test_nothing_is_sent_ahead_without_a_connection_or_beside_another_call(onceward_database, run):
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

    run(main())


def test_a_call_that_is_larger_than_a_socket_takes_leaves_the_link_listening(onceward_database, run):
    async def main():
        async with listening(onceward_database) as (link, heard):
            text = "x" * 20_000_000
            for _ in range(2):
                assert await link.run(Call("select %(text)s::text", {"text": text}, scalar)) == text
            with psycopg.connect(onceward_database, autocommit=True) as other:
                other.execute("notify onceward, 'mail'")
            assert await next_of(heard) == "mail"

    run(main())


def test_a_call_that_is_cancelled_leaves_the_link_usable(onceward_database, run):
    async def main():
        async with listening(onceward_database) as (link, heard):
            await link.run(value("select 1"))
            task = asyncio.ensure_future(link.run(value("select pg_sleep(60)")))
            with psycopg.connect(onceward_database, autocommit=True) as other:
                sleeping = "select true from pg_stat_activity where wait_event = 'PgSleep'"
                await until(lambda: other.execute(sleeping).fetchone())
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                assert await link.run(value("select 2")) == 2
                other.execute("notify onceward, 'mail'")
                assert await next_of(heard) == "mail"

    run(main())


def test_the_last_words_of_a_server_that_breaks_off_do_not_hide_its_end(onceward_database, run):
    """They come together with an error of the socket, because it had not read everything; uvloop tells of that once."""

    async def main():
        async with listening(onceward_database) as (link, _):
            first = await link.run(value("select pg_backend_pid()"))
            call = asyncio.ensure_future(link.run(value("select pg_sleep(60)")))
            with psycopg.connect(onceward_database, autocommit=True) as other:
                sleeping = "select wait_event = 'PgSleep' from pg_stat_activity where pid = %s"
                await until(lambda: other.execute(sleeping, [first]).fetchone()[0])
                with socket.socket(fileno=os.dup(link._conn.fileno())) as same:
                    same.send(SYNC)
                other.execute("select pg_terminate_backend(%s, 30000)", [first])
            async with asyncio.timeout(30):
                with pytest.raises(psycopg.OperationalError):
                    await call
                assert await link.run(value("select pg_backend_pid()")) != first

    run(main())


def test_no_descriptor_is_left_behind(onceward_database, run):
    async def main():
        async with listening(onceward_database) as (link, _):
            await link.run(value("select 1"))
            before = descriptors()
            for _ in range(3):
                link.cut_off()
                with contextlib.suppress(psycopg.OperationalError):
                    await link.run(value("select 1"))
                await link.run(value("select 1"))
            assert descriptors() == before

    run(main())
