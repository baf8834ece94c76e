"""A worker whose parent beats for it, and which has one link for everything."""

from __future__ import annotations

import asyncio
import multiprocessing
import threading
import time
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from uuid import uuid4

import psycopg
import pytest

from onceward import Client, Onceward
from onceward.errors import WorkerExpired
from onceward.worker.relay import Relay, Relayed
from onceward.worker.worker import Worker
from tests.sdk.gate import Gate
from tests.sdk.test_worker import until

LEASE = timedelta(seconds=30)


@contextmanager
def relayed(dsn):
    """The ends of both: what a child asks, and a pipe on which a test asks as it likes."""
    relay = Relay(dsn, lease=LEASE)
    asked, ask = multiprocessing.Pipe()
    relay.serve(asked)
    try:
        yield ask
    finally:
        ask.close()
        relay.close()


@asynccontextmanager
async def working(dsn, app, **options):
    with relayed(dsn) as pipe:
        worker = Worker(app, dsn=dsn, lease=LEASE, relay=Relayed(pipe), **options)
        task = asyncio.create_task(worker.run())
        try:
            yield worker
        finally:
            worker.stop()
            worker.stop()
            await asyncio.wait_for(task, 30)


@pytest.fixture
def sql(onceward_database):
    with psycopg.connect(onceward_database, autocommit=True) as connection:
        yield connection


def beats(sql, worker_id):
    return sql.execute("select expires_at from onceward.workers where id = %s", [worker_id]).fetchone()[0]


def ask(pipe, *question):
    pipe.send(question)
    assert pipe.poll(30)
    return pipe.recv()


def test_the_parent_renews_a_lease_when_it_is_asked_to(onceward_database, onceward_clock, sql):
    (worker,) = sql.execute("select onceward.register_worker('a')").fetchone()
    before = beats(sql, worker)
    onceward_clock.advance("20 s")
    with relayed(onceward_database) as pipe:
        answer = ask(pipe, time.monotonic(), worker)
    assert answer.expires_at == beats(sql, worker) > before


def test_the_parent_does_not_renew_a_lease_for_a_question_of_long_ago(onceward_database, onceward_clock, sql):
    """Whoever asked it may be dead by now."""
    (worker,) = sql.execute("select onceward.register_worker('a')").fetchone()
    before = beats(sql, worker)
    onceward_clock.advance("20 s")
    with relayed(onceward_database) as pipe:
        assert ask(pipe, time.monotonic() - 10, worker) == "the parent was too busy"
    assert beats(sql, worker) == before


def test_a_child_hears_that_its_lease_is_over(onceward_database):
    with relayed(onceward_database) as pipe, pytest.raises(WorkerExpired):
        Relayed(pipe).beat(uuid4(), within=30, stopped=threading.Event())


def test_a_child_is_told_what_is_wrong_with_the_database_and_no_password(onceward_database):
    with Gate(onceward_database) as gate, relayed(gate.dsn + " password=swordfish") as pipe:
        gate.refuses = True
        answer = ask(pipe, time.monotonic(), uuid4())
    assert "password authentication failed" in answer
    assert "swordfish" not in answer


def test_a_worker_under_a_relay_has_one_connection(onceward_database, sql):
    app = Onceward()

    @app.task
    async def count(number: int) -> int:
        return number

    async def main():
        async with working(onceward_database, app):
            with Client(onceward_database, app=app) as client:
                jobs = client.enqueue_many(count, [{"number": number} for number in range(500)])
                await until(lambda: client.job(jobs[-1]).state == "done")
                return sql.execute(
                    "select application_name, count(*) from pg_stat_activity where datname = current_database() "
                    "and application_name ~ '^onceward (worker|heart)' group by 1 order by 1"
                ).fetchall()

    assert asyncio.run(main()) == [("onceward hearts", 1), ("onceward worker 1", 1)]
