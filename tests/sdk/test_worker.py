"""What a worker does with handlers that succeed, fail, wait, overrun and are stopped."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from datetime import timedelta

import psycopg
import pytest

from onceward import Client, Onceward, calls
from onceward.errors import UnknownLane
from onceward.worker import Worker
from tests.sdk import shop


@pytest.fixture(autouse=True)
def forget():
    shop.started.clear()
    shop.seen.clear()


def drain(dsn, app=shop.app, **options):
    return asyncio.run(Worker(app, dsn=dsn, **options).drain())


@asynccontextmanager
async def working(dsn, app=shop.app, **options):
    """A worker in this loop, stopped and waited for at the end."""
    worker = Worker(app, dsn=dsn, **options)
    worker.passes.listen()
    task = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        worker.stop()
        await asyncio.wait_for(task, 30)


async def until(condition, *, tries=2000):
    """Poll a condition of the outside world, with an end."""
    for _ in range(tries):
        value = await asyncio.to_thread(condition)
        if value:
            return value
        await asyncio.sleep(0.01)
    raise AssertionError("it never happened")


def test_a_worker_that_is_stopped_before_it_runs_runs_nothing(onceward_database):
    with shop.app.client(onceward_database) as client:
        client.enqueue("greet", {"name": "Ada"})
    worker = Worker(shop.app, dsn=onceward_database)
    worker.stop()

    asyncio.run(worker.run())
    assert worker.executed == 0


@pytest.mark.parametrize(
    ("task", "payload", "result"),
    [
        ("greet", {"name": "Ada"}, "Hello Ada"),
        ("greet_slowly", {"name": "Ada"}, "Hello Ada"),
        ("ship", {"number": 7}, {"shipped": 7}),
        ("square", {"n": 12}, 144),
        ("flaky", {"good_at": 3}, 3),
    ],
)
def test_handlers_of_every_kind_give_their_result(plain, onceward_database, task, payload, result):
    job = plain.enqueue(task, payload)
    drain(onceward_database)
    assert plain.wait(job) == result


def test_failed_attempts_keep_what_happened(plain, onceward_database):
    job = plain.enqueue(shop.flaky, {"good_at": 2})
    drain(onceward_database)
    first, second = plain.attempts(job)
    assert (first.outcome, first.error_type, first.category, first.message) == (
        "failed",
        "ValueError",
        "error",
        "attempt 1 of 2",
    )
    assert "flaky" in first.traceback
    assert first.worker_id is not None
    assert first.ended_at >= first.started_at
    assert second.outcome == "done"


def test_a_permanent_failure_skips_the_remaining_attempts(plain, onceward_database):
    job = plain.enqueue("hopeless")
    drain(onceward_database)
    found = plain.job(job)
    assert (found.state, found.attempt, found.last_error["category"]) == ("dead_letter", 1, "permanent")


def test_a_snooze_uses_up_no_attempt(plain, onceward_database, onceward_clock):
    job = plain.enqueue("later")
    drain(onceward_database)
    waiting = plain.job(job)
    assert (waiting.state, waiting.attempt, waiting.snoozes) == ("scheduled", 0, 1)
    onceward_clock.advance("61 min")
    drain(onceward_database)
    assert plain.wait(job) == "done"
    assert shop.seen == [1, 1]


def test_a_handler_can_cancel_its_job(plain, onceward_database):
    job = plain.enqueue("unneeded")
    drain(onceward_database)
    assert (plain.job(job).state, plain.job(job).note) == ("cancelled", "nobody wants it")


@pytest.mark.parametrize(("task", "percent"), [("measured", 50), ("measured_in_a_thread", 70)])
def test_progress_is_kept(plain, onceward_database, task, percent):
    job = plain.enqueue(task)
    drain(onceward_database)
    assert plain.job(job).progress == {"percent": percent}


@pytest.mark.parametrize("task", ["too_slow", "too_slow_in_a_thread", "spins"])
def test_a_handler_that_overruns_is_failed(plain, onceward_database, task):
    job = plain.enqueue(task)
    drain(onceward_database)
    found = plain.job(job)
    assert (found.state, found.last_error["category"]) == ("dead_letter", "timeout")


def test_a_process_that_dies_fails_its_job_only(plain, onceward_database):
    dead, alive = plain.enqueue("dies", {"n": 3}), plain.enqueue("square", {"n": 3})
    drain(onceward_database)
    assert plain.job(dead).last_error["type"] == "ProcessDied"
    assert plain.wait(alive) == 9


@pytest.mark.parametrize(("task", "category"), [("unspeakable", "result"), ("enormous", "result")])
def test_a_result_that_cannot_be_kept_waits_for_a_person(plain, onceward_database, task, category):
    job = plain.enqueue(task)
    others = plain.enqueue_many(shop.greet, [{"name": "Ada"}] * 5)
    drain(onceward_database)
    found = plain.job(job)
    assert (found.state, found.attempt, found.last_error["category"]) == ("dead_letter", 1, category)
    assert {plain.job(other).state for other in others} == {"done"}


def test_an_error_full_of_rubbish_is_recorded(plain, onceward_database):
    job = plain.enqueue("poisoned_error")
    drain(onceward_database)
    [attempt] = plain.attempts(job)
    assert attempt.message.startswith("nul \\x00 and surrogate \\xd800 long")
    assert len(attempt.message) == 2000


def test_a_stored_payload_that_no_longer_fits_is_not_retried(plain, onceward_database):
    with psycopg.connect(onceward_database, autocommit=True) as conn:
        job = conn.execute("select job_id from onceward.enqueue('greet', '{\"nome\": 1}')").fetchone()[0]
    drain(onceward_database)
    assert (plain.job(job).state, plain.job(job).last_error["category"]) == ("dead_letter", "payload")


def test_a_job_of_an_unknown_task_waits_for_a_worker_that_knows_it(plain, onceward_database, onceward_clock):
    job = plain.enqueue(shop.greet, {"name": "Ada"})
    drain(onceward_database, app=Onceward())
    found = plain.job(job)
    assert (found.state, found.attempt, found.snoozes) == ("scheduled", 0, 0)
    onceward_clock.advance("31 s")
    drain(onceward_database)
    assert plain.wait(job) == "Hello Ada"


def test_an_unknown_lane_comes_with_the_nearest_one(onceward_database):
    with pytest.raises(UnknownLane, match='Did you mean "default"'):
        drain(onceward_database, lanes=["defualt"])


def test_a_worker_leaves_lanes_alone_that_its_tasks_do_not_name(plain, onceward_database):
    """It would put off what it does not know, and another application waits for it."""
    app = Onceward()
    app.task(lane="work", name="elsewhere")(lambda: None)
    assert app.lanes == ["work"]
    job = plain.enqueue(shop.greet, {"name": "Ada"})
    drain(onceward_database, app=app)
    assert plain.job(job).state == "ready"


def test_only_the_lanes_asked_for_are_worked(plain, onceward_database):
    here, there = plain.enqueue(shop.greet, {"name": "Ada"}), plain.enqueue(shop.ship, {"number": 1})
    drain(onceward_database, lanes=["orders"])
    assert (plain.job(here).state, plain.job(there).state) == ("ready", "done")


def test_a_lane_may_have_a_name_that_means_something_in_an_array(plain, onceward_database):
    with psycopg.connect(onceward_database, autocommit=True) as conn:
        conn.execute("select onceward.add_lane('null')")
    job = plain.enqueue(shop.greet, {"name": "Ada"}, lane="null")
    drain(onceward_database, lanes=["null", "default"])
    assert plain.job(job).state == "done"


@pytest.mark.parametrize("task", ["endless", "stubborn"])
def test_a_running_job_is_cancelled_cooperatively(plain, onceward_database, task):
    job = plain.enqueue(task)

    async def main():
        async with working(onceward_database):
            await until(shop.started.is_set)
            assert plain.cancel(job, "enough") == "cancelling"
            await until(lambda: plain.job(job).state == "cancelled")

    asyncio.run(main())
    assert plain.attempts(job)[0].outcome == "cancelled"


def test_stopping_hands_unfinished_work_back_without_burning_an_attempt(plain, onceward_database):
    job = plain.enqueue("endless")

    async def main():
        async with working(onceward_database, grace=timedelta(0)):
            await until(shop.started.is_set)

    asyncio.run(main())
    found = plain.job(job)
    assert (found.state, found.attempt) == ("ready", 0)
    assert [a.outcome for a in plain.attempts(job)] == ["released"]


def test_stopping_lets_running_handlers_finish(plain, onceward_database):
    done = asyncio.Event()
    app = Onceward()

    @app.task
    async def patient() -> str:
        shop.started.set()
        await done.wait()
        return "in peace"

    with app.client(onceward_database) as client:
        job = client.enqueue(patient)

    async def main():
        worker = Worker(app, dsn=onceward_database)
        task = asyncio.create_task(worker.run())
        await until(shop.started.is_set)
        worker.stop()
        done.set()
        await asyncio.wait_for(task, 30)

    asyncio.run(main())
    assert plain.job(job).result == "in peace"


def test_no_more_handlers_run_at_once_than_asked_for(plain, onceward_database):
    app, now, most = Onceward(), 0, 0

    @app.task
    async def crowd() -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0)
        now -= 1

    with app.client(onceward_database) as client:
        client.enqueue_many(crowd, [{}] * 100)
    assert drain(onceward_database, app=app, concurrency=3) == 100
    assert most <= 3


def test_a_lane_can_have_a_smaller_bound(plain, onceward_database):
    app, now, most = Onceward(), 0, 0

    @app.task
    async def crowd() -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.001)
        now -= 1

    with app.client(onceward_database) as client:
        client.enqueue_many(crowd, [{}] * 20)
    assert drain(onceward_database, app=app, lanes={"default": 2}, concurrency=10) == 20
    assert most == 2


def test_a_lane_with_a_cap_runs_one_job_at_once_over_two_workers_and_all_are_done(plain, onceward_database):
    app, now, most = Onceward(), 0, 0

    @app.task
    async def alone() -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.001)
        now -= 1

    plain.add_lane("default", max_running=1)
    with app.client(onceward_database) as client:
        client.enqueue_many(alone, [{}] * 30)

    async def main():
        async with working(onceward_database, app=app), working(onceward_database, app=app):
            await until(lambda: plain.run(calls.lanes())[0].ready + plain.run(calls.lanes())[0].running == 0)

    asyncio.run(main())
    assert most == 1


def test_what_is_enqueued_in_a_full_lane_does_not_rouse_a_worker_and_a_higher_cap_does(
    plain, onceward_database
):
    app = Onceward()
    release = asyncio.Event()

    @app.task
    async def holds() -> None:
        await release.wait()

    plain.add_lane("default", max_running=1)
    with app.client(onceward_database) as client:
        client.enqueue(holds)

    async def main():
        # It polls so seldom that only a wake-up can be what made it look.
        async with working(onceward_database, app=app, poll=timedelta(minutes=5)) as worker:
            while await worker.passes.next() != 1:
                pass
            worker.wake()
            assert await worker.passes.next() == 0
            worker.passes.listen()
            worker._notified("default")
            assert not worker._exchanges.wanted
            await asyncio.to_thread(plain.enqueue, holds)
            await asyncio.to_thread(plain.add_lane, "default", max_running=2)
            assert await worker.passes.next(within=30) == 1
            release.set()

    asyncio.run(main())


def test_a_worker_whose_lease_was_taken_starts_anew_and_reports_nothing(plain, onceward_database):
    job = plain.enqueue("endless")

    async def main():
        async with working(onceward_database, grace=timedelta(0)) as worker:
            await until(shop.started.is_set)
            first = worker.id
            with psycopg.connect(onceward_database, autocommit=True) as conn:
                conn.execute(
                    "update onceward.worker_private set expires_at = onceward.now() where id = %s", [first]
                )
                conn.execute("select onceward.rescue()")
            await until(lambda: worker.id != first)
            # Its own rescue made the job ready; the new identity runs it as the next attempt.
            await until(lambda: plain.job(job).attempt == 2)

    asyncio.run(main())
    assert plain.attempts(job)[0].outcome == "rescued"


def test_jobs_claimed_by_a_lost_reply_are_adopted(plain, onceward_database):
    job = plain.enqueue(shop.greet, {"name": "Ada"})

    async def adopting():
        plain.pause_lane("default")
        async with working(onceward_database) as worker:
            await until(lambda: worker.id)
            with psycopg.connect(onceward_database, autocommit=True) as conn:
                conn.execute("select onceward.resume_lane('default')")
                conn.execute("select from onceward.claim(%s, array['default'], 1)", [worker.id])
                conn.execute("select onceward.pause_lane('default')")
            worker._exchanges.expect_strangers()  # what a broken connection does
            worker.wake()
            await until(lambda: plain.job(job).state == "done")

    asyncio.run(adopting())
    assert plain.wait(job) == "Hello Ada"


@pytest.mark.parametrize("payload", ['{"name": 1e5000}', '{"name":' + "[" * 1500 + "]" * 1500 + "}"])
def test_a_payload_that_python_cannot_read_is_one_dead_letter_and_stops_nobody(
    plain, onceward_database, payload
):
    bad = plain.enqueue("greet", {"name": "Eve"}).id
    # Stored by an older version: what is nested so deeply is refused now.
    with psycopg.connect(onceward_database, autocommit=True) as conn:
        conn.execute("update onceward.job_private set payload = %s::jsonb where id = %s", [payload, bad])
    good = plain.enqueue_many(shop.greet, [{"name": "Ada"}] * 3)
    drain(onceward_database)
    assert [plain.wait(job) for job in good] == ["Hello Ada"] * 3
    found = plain.job(bad)
    assert (found.state, found.last_error["category"]) == ("dead_letter", "payload")
    assert "that Python cannot read" in found.payload


def test_a_failure_in_a_task_group_is_a_failure_of_the_job(plain, onceward_database):
    app = Onceward()

    @app.task(max_attempts=1)
    async def side_by_side() -> None:
        async def fail() -> None:
            await asyncio.sleep(0)
            raise ValueError("one of two")

        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.Event().wait())
            group.create_task(fail())

    with Client(onceward_database, app=app) as client:
        job = client.enqueue(side_by_side)
    drain(onceward_database, app)

    info = plain.job(job)
    assert (info.state, info.last_error["type"]) == ("dead_letter", "ExceptionGroup")
