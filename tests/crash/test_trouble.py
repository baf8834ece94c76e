"""Trouble of one kind at a time, each found by the faults: what a worker does when something is in its way."""

from __future__ import annotations

import json
import time

import psycopg
import pytest

from tests.crash.arena import Arena
from tests.crash.proxy import Proxy
from tests.crash.server import free_port
from tests.crash.waiting import until

pytestmark = [pytest.mark.crash, pytest.mark.slow]

SESSIONS = """
select count(*) from pg_stat_activity where datname = current_database() and application_name like 'onceward %'
"""


def enqueue(
    arena: Arena, token: str, *, task: str = "work", ms: int = 0, mode: str = "plain", **options: object
) -> str:
    """Options are those of onceward.enqueue."""
    payload = json.dumps({"token": token, "ms": ms, "mode": mode})
    options = {"retry": json.dumps({"base": 0.1, "factor": 1}), **options}
    names = "".join(f", p_{name} => %s" for name in options)
    return str(
        arena.value(
            f"select job_id from onceward.enqueue(%s, %s::jsonb{names})", task, payload, *options.values()
        )
    )


def until_begun(arena: Arena, token: str) -> None:
    until(lambda: any(mark.word == token for mark in arena.marks().begins), within=30, what=f"{token} begun")


def state(arena: Arena, job: str) -> str:
    return str(arena.value("select state from onceward.jobs where id = %s", job))


def outcomes(arena: Arena, job: str) -> list[str]:
    return [
        row[0]
        for row in arena.query("select outcome from onceward.attempts where job_id = %s order by epoch", job)
    ]


@pytest.mark.parametrize(
    ("mode", "ends"),
    [("plain", ["done"]), ("flaky", ["failed", "done"]), ("snooze", ["snoozed", "done"])],
    ids=["that succeeds", "that fails", "that snoozes"],
)
def test_a_job_locked_by_an_open_transaction_does_not_stop_its_worker(arena, mode, ends):
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
    assert outcomes(arena, held) == ends
    assert arena.end_workers() == []


def test_a_worker_leaves_though_one_of_its_jobs_is_locked_and_another_worker_ends_that_job(arena):
    life = arena.spawn(lease=3.0, grace=0.2)
    held = enqueue(arena, "held", ms=300)
    until_begun(arena, "held")

    with psycopg.connect(arena.dsn) as caller:
        caller.execute("select onceward.cancel(%s)", [held])
        until(lambda: arena.marks().ends, within=30, what="the handler at its end")
        arena.signal(life, "term")
        arena.until_exited(life, 60)
        assert life.code == 0
        # A call that it has left behind may still wait for the lock, and would end the job after all.
        until(lambda: arena.value(SESSIONS) == 0, within=30, what="its last session gone")
        assert state(arena, held) == "running"
        arena.spawn(lease=3.0, poll=0.2)
        caller.rollback()

    until(lambda: state(arena, held) == "done", within=60, what="the job done by another worker")
    assert outcomes(arena, held) == ["rescued", "done"]


def test_what_a_dead_worker_leaves_locked_is_rescued_as_soon_as_it_is_free_and_the_rest_at_once(arena):
    life = arena.spawn(lease=2.0)
    held, other = enqueue(arena, "held", ms=1500), enqueue(arena, "other", ms=1500)
    until_begun(arena, "held")
    until_begun(arena, "other")
    arena.signal(life, "kill")

    with psycopg.connect(arena.dsn) as caller:
        caller.execute("select onceward.cancel(%s)", [held])
        arena.spawn(lease=2.0, poll=0.2)
        until(lambda: state(arena, other) == "done", within=60, what="the other job done")
        assert state(arena, held) == "running"
        caller.rollback()

    until(lambda: state(arena, held) == "done", within=60, what="the locked job done")
    assert outcomes(arena, held) == outcomes(arena, other) == ["rescued", "done"]


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


@pytest.mark.parametrize("task", ["clinging", "stubborn"], ids=["async", "in a thread"])
def test_work_that_ends_after_the_grace_is_over_but_in_time_is_acknowledged(arena, task):
    life = arena.spawn(lease=10.0, grace=0.2)
    job = enqueue(arena, "late", task=task, ms=1500)
    until_begun(arena, "late")

    arena.signal(life, "term")

    arena.until_exited(life, 60)
    assert (state(arena, job), outcomes(arena, job)) == ("done", ["done"])


@pytest.mark.parametrize("task", ["work", "clinging", "stubborn"])
def test_a_second_sigterm_ends_a_worker_at_once_whatever_its_handlers_do(arena, task):
    life = arena.spawn(lease=10.0, grace=100.0)
    job = enqueue(arena, "hanging", task=task, ms=120_000)
    until_begun(arena, "hanging")

    arena.signal(life, "term")
    # Signals do not queue up: two at one moment are one.
    until(lambda: "signal_received" in arena.output(), within=30, what="the first signal heard")
    arena.signal(life, "term")

    arena.until_exited(life, 60)
    assert life.code == 0
    assert (state(arena, job), outcomes(arena, job)) == ("ready", ["released"])
    assert arena.value("select attempt from onceward.jobs where id = %s", job) == 0


def test_what_a_thread_does_after_its_time_is_over_counts_for_nothing(arena):
    arena.spawn(concurrency=1, lease=10.0, poll=0.2)
    job = enqueue(arena, "overdue", task="stubborn", ms=2500, mode="tx", max_attempts=1, timeout="500 ms")

    until(lambda: state(arena, job) == "dead_letter", within=30, what="the job failed")
    assert arena.marks().ends == []
    until(lambda: arena.marks().ends, within=30, what="the handler at its end")

    next_one = enqueue(arena, "next", task="work_sync")
    until(lambda: state(arena, next_one) == "done", within=30, what="the next job done in the same thread")
    assert [mark.word for mark in arena.marks().txs] == ["try", "refused"]
    assert (state(arena, job), outcomes(arena, job)) == ("dead_letter", ["dead_letter"])
    assert arena.value("select last_error ->> 'category' from onceward.jobs where id = %s", job) == "timeout"
    assert arena.end_workers() == []


def test_an_end_that_the_engine_refuses_does_not_leave_the_job_running(arena):
    arena.spawn(lease=10.0)
    job = enqueue(arena, "overlong", task="overlong", max_attempts=1)

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
