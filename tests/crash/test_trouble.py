"""Trouble of one kind at a time, each found by the faults: what a worker does when something is in its way."""

from __future__ import annotations

import json
import time

import psycopg
import pytest

from tests.crash.arena import Arena, free_port, until
from tests.crash.proxy import Proxy

pytestmark = [pytest.mark.crash, pytest.mark.slow]


def enqueue(
    arena: Arena, token: str, *, task: str = "work", ms: int = 0, mode: str = "plain", attempts: int = 8
) -> str:
    payload = json.dumps({"token": token, "ms": ms, "mode": mode})
    retry = json.dumps({"base": 0.1, "factor": 1})
    return str(
        arena.value(
            "select job_id from onceward.enqueue(%s, %s::jsonb, p_max_attempts => %s, p_retry => %s::jsonb)",
            task,
            payload,
            attempts,
            retry,
        )
    )


def until_begun(arena: Arena, token: str) -> None:
    until(lambda: any(mark.word == token for mark in arena.marks().begins), within=30, what=f"{token} begun")


def state(arena: Arena, job: str) -> str:
    return arena.value("select state from onceward.jobs where id = %s", job)


def outcomes(arena: Arena, job: str) -> list[str]:
    return [
        row[0]
        for row in arena.query("select outcome from onceward.attempts where job_id = %s order by epoch", job)
    ]


@pytest.mark.parametrize("mode", ["plain", "flaky"], ids=["that succeeds", "that fails"])
def test_a_job_locked_by_an_open_transaction_does_not_stop_its_worker(arena, mode):
    arena.spawn(concurrency=20, lease=10.0, poll=0.2)
    held = enqueue(arena, "held", ms=400, mode=mode)
    until_begun(arena, "held")

    with psycopg.connect(arena.dsn) as caller:
        caller.execute("select onceward.cancel(%s)", [held])
        others = [enqueue(arena, f"other-{number}", ms=10) for number in range(50)]
        until(
            lambda: all(state(arena, job) == "done" for job in others), within=60, what="the other jobs done"
        )
        assert state(arena, held) == "running"
        caller.rollback()

    until(lambda: state(arena, held) == "done", within=60, what="the locked job done")
    assert outcomes(arena, held) == (["done"] if mode == "plain" else ["failed", "done"])
    assert arena.end_workers() == []


def test_sigterm_ends_a_worker_that_has_never_reached_its_database(arena):
    nowhere = f"postgresql://postgres@127.0.0.1:{free_port()}/nothing"
    life = arena.spawn(dsn=nowhere, lease=10.0)
    until(lambda: "database_unreachable" in arena.output(), within=30, what="the worker at a loss")

    arena.signal(life, "term")

    arena.until_exited(life, 30)
    assert life.code == 0


def test_a_handler_that_cannot_be_cancelled_does_not_keep_its_worker_from_leaving(arena):
    life = arena.spawn(lease=10.0, grace=0.2)
    job = enqueue(arena, "clinging", task="clinging", ms=120_000)
    until_begun(arena, "clinging")

    arena.signal(life, "term")

    arena.until_exited(life, 60)
    assert life.code == 0
    assert (state(arena, job), outcomes(arena, job)) == ("ready", ["released"])


@pytest.mark.parametrize("task", ["work", "work_sync"], ids=["async", "in a thread"])
def test_a_handler_that_stops_because_its_worker_leaves_has_neither_failed_nor_been_cancelled(arena, task):
    life = arena.spawn(lease=10.0, grace=0.2)
    job = enqueue(arena, "long", task=task, ms=120_000)
    until_begun(arena, "long")

    arena.signal(life, "term")

    arena.until_exited(life, 30)
    assert (state(arena, job), outcomes(arena, job)) == ("ready", ["released"])
    assert arena.value("select attempt from onceward.jobs where id = %s", job) == 0
    assert [end.word for end in arena.marks().ends] == ["cancelled" if task == "work" else "failed"]


def test_work_that_ends_after_the_grace_is_over_but_in_time_is_acknowledged(arena):
    life = arena.spawn(lease=10.0, grace=0.2)
    job = enqueue(arena, "clinging", task="clinging", ms=1500)
    until_begun(arena, "clinging")

    arena.signal(life, "term")

    arena.until_exited(life, 60)
    assert (state(arena, job), outcomes(arena, job)) == ("done", ["done"])


def test_an_end_that_the_engine_refuses_does_not_leave_the_job_running(arena):
    arena.spawn(lease=10.0)
    job = enqueue(arena, "overlong", task="overlong", attempts=1)

    until(lambda: state(arena, job) == "dead_letter", within=30, what="the job given up")

    message = arena.value("select last_error ->> 'message' from onceward.jobs where id = %s", job)
    assert "delay must be between 0 and 10 years" in message
    assert arena.end_workers() == []


def test_a_worker_that_loses_its_database_while_it_leaves_stops_its_handlers_before_others_take_over(arena):
    with Proxy(arena.server.port, arena.seed) as proxy:
        life = arena.spawn(dsn=proxy.dsn(arena.name), handlers_dsn=arena.dsn, lease=4.0, grace=100.0)
        enqueue(arena, "long", ms=60_000)
        until_begun(arena, "long")
        arena.signal(life, "term")
        cut_off = time.monotonic_ns()
    # The proxy is closed: nobody is reached any more.
    arena.until_exited(life, 60)

    (end,) = arena.marks().ends
    assert end.word == "cancelled"
    assert end.mono - cut_off < 4_000_000_000


def test_a_worker_that_is_suspended_and_resumed_in_time_goes_on_as_if_nothing_had_happened(arena):
    life = arena.spawn(lease=30.0)
    arena.until_registered(life)
    job = enqueue(arena, "before", ms=300)
    until_begun(arena, "before")

    arena.signal(life, "stop")
    arena.signal(life, "cont")

    until(lambda: state(arena, job) == "done", within=30, what="the job done")
    assert outcomes(arena, job) == ["done"]
    assert arena.value("select count(*) from onceward.workers") == 1
