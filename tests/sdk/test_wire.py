"""Calls straight over libpq: any size, any error, any interruption, and the next call is right."""

from __future__ import annotations

import asyncio
import signal
import threading

import psycopg
import pytest

from onceward import AsyncClient, Client, wire
from onceward.calls.base import Call, rows_of, scalar
from onceward.errors import ConnectionLost, UnknownLane
from tests.sdk.test_worker import until

PREPARED = "select name, statement from pg_prepared_statements"


def value(sql: str, **params: object) -> Call[object]:
    return Call(sql, params, scalar)


@pytest.fixture(params=["sync", "async"])
def run(request, onceward_database):
    """Runs a call on the only connection of a client."""
    if request.param == "sync":
        with Client(onceward_database, pool_size=1) as client:
            yield client.run
        return
    with asyncio.Runner() as runner:
        client = AsyncClient(onceward_database, pool_size=1)
        yield lambda call: runner.run(client.run(call))
        runner.run(client.close())


def test_what_is_sent_often_is_prepared_once(run):
    for number in range(6):
        assert run(value("select %(n)s::int + 1", n=number)) == number + 1

    prepared = [name for name, text in run(Call(PREPARED, {}, rows_of(lambda *row: row))) if "+ 1" in text]
    assert len(prepared) == 1


def test_calls_that_last_are_told_apart_and_outlive_their_connection(run):
    one, other = (value("select %(n)s::int + 1", n=number)._replace(lasts=True) for number in (1, 10))
    for _ in range(5):
        assert run(one) == run(one) == 2
        assert run(value("select %(n)s::int + 1", n=5)) == 6
        assert run(other) == 11
    with pytest.raises(ConnectionLost):
        run(value("select pg_terminate_backend(pg_backend_pid())"))
    assert (run(one), run(other)) == (2, 11)


def test_a_connection_keeps_a_bounded_number_of_statements(run, monkeypatch):
    monkeypatch.setattr(wire, "MOST_PREPARED", 2)
    for number in range(5):
        for _ in range(5):
            assert run(value(f"select {number}")) == number

    assert run(value("select count(*) from pg_prepared_statements")) == 2


def test_values_of_each_kind_come_back(run):
    call = Call(
        "select %(text)s::text, %(number)s::bigint, %(flag)s::boolean, %(nothing)s::text, %(many)s::text[], %(json)s::jsonb",
        {"text": "ä\n🙂", "number": 2**40, "flag": True, "nothing": None, "many": ["a", None, "b,c"], "json": '{"n": [1]}'},
        lambda rows: rows[0],
    )  # fmt: skip
    expected = ("ä\n🙂", 2**40, True, None, ["a", None, "b,c"], {"n": [1]})
    for _ in range(5):
        assert run(call) == expected


def test_more_than_a_socket_holds_goes_there_and_back(run):
    text = "0123456789" * 1_000_000

    for _ in range(2):
        assert run(value("select %(text)s::text || '!'", text=text)) == text + "!"


def test_an_error_of_the_server_leaves_the_connection_as_it_was(run):
    before = run(value("select pg_backend_pid()"))
    for _ in range(5):
        with pytest.raises(psycopg.errors.DivisionByZero):
            run(value("select 1 / %(n)s::int", n=0))

    assert run(value("select pg_backend_pid()")) == before


def test_a_connection_that_is_cut_in_a_call_says_so_and_is_replaced(run):
    with pytest.raises((psycopg.OperationalError, ConnectionLost)):
        run(value("select pg_terminate_backend(pg_backend_pid())"))

    assert run(value("select 1")) == 1


def is_sleeping(dsn) -> bool:
    with psycopg.connect(dsn, autocommit=True) as conn:
        found = conn.execute(
            "select count(*) from pg_stat_activity where query like %s and state = 'active' and pid <> pg_backend_pid()",
            ["%pg_sleep(600)%"],
        ).fetchone()
        return found[0] > 0


def test_an_awaited_call_that_is_cancelled_ends_in_the_server_and_the_next_is_right(onceward_database):
    async def main():
        async with AsyncClient(onceward_database, pool_size=1) as client:
            call = asyncio.ensure_future(client.run(value("select 1 from pg_sleep(600)")))
            await until(lambda: is_sleeping(onceward_database))
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            assert await client.run(value("select 2")) == 2
            await until(lambda: not is_sleeping(onceward_database))

    asyncio.run(main())


def test_an_interrupted_call_ends_in_the_server_and_the_next_is_right(onceward_database):
    def interrupt():
        asyncio.run(until(lambda: is_sleeping(onceward_database)))
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    # Whoever starts the tests in the background may have it ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with Client(onceward_database, pool_size=1) as client:
        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            client.run(value("select 1 from pg_sleep(600)"))
        thread.join()
        assert client.run(value("select 2")) == 2
        asyncio.run(until(lambda: not is_sleeping(onceward_database)))


def test_a_short_form_that_does_not_fit_is_asked_in_full(run):
    short = Call("select null::int", {}, scalar, otherwise=lambda: value("select 7"))

    assert run(short) == 7


@pytest.mark.parametrize("lane", ["nowhere", "no lane"])
def test_the_full_form_says_what_is_wrong(onceward_database, lane):
    with Client(onceward_database) as client, pytest.raises(UnknownLane, match=lane):
        client.enqueue("ocr", {}, lane=lane)
