"""Concurrency keys under contention: never above the limit, never stuck, no caller's transaction stops a worker."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.support.races import Rival, deadlocks, transaction

pytestmark = pytest.mark.race

OPEN_CALLS = {
    "enqueue": lambda db, jobs: db.enqueue(concurrency_key="k"),
    "enqueue many": lambda db, jobs: db.enqueue_many("ocr", [{}] * 3, concurrency_key="k"),
    "enqueue many with keys of their own": lambda db, jobs: db.enqueue_many(
        "ocr", [{}] * 4, concurrency_keys=["k", None, "k", "other"]
    ),
    "cancel the running job": lambda db, jobs: db.cancel(jobs["other"].job_id),
    "cancel a waiting job": lambda db, jobs: db.cancel(jobs["waiting"]),
    "cancel a scheduled job": lambda db, jobs: db.cancel(jobs["scheduled"]),
    "start a scheduled job": lambda db, jobs: db.answer("run_now", job_id=jobs["scheduled"]),
    "requeue a dead letter": lambda db, jobs: db.requeue(jobs["dead"]),
    "resolve a dead letter": lambda db, jobs: db.resolve(jobs["dead"]),
}


@pytest.mark.parametrize("commits", [True, False], ids=["commits", "rolls back"])
@pytest.mark.parametrize("call", list(OPEN_CALLS.values()), ids=list(OPEN_CALLS))
def test_no_open_transaction_of_a_caller_stops_a_finish_or_leaves_a_job_stuck(db, call, commits):
    options = {"concurrency_key": "k", "concurrency_limit": 2}
    jobs = {
        "dead": db.dead_letter(**options),
        "other": db.running(**options),
        "running": db.running(**options),
    }
    jobs["waiting"] = db.enqueue(**options)
    jobs["scheduled"] = db.enqueue(run_at=db.now() + timedelta(hours=1), **options)
    db.promote()
    db.run("set lock_timeout = '10s'")

    with transaction(db) as caller:
        call(caller, jobs)
        # Both would end with an error if they had to wait for the caller.
        db.exchange([jobs["running"]])
        db.promote()
        (caller.conn.commit if commits else caller.conn.rollback)()

    # Whatever waits for the key runs in the end.
    if db.state(jobs["other"].job_id) == "running":
        db.complete(jobs["other"])
    db.clock.advance("1 hour")
    while claims := db.claims(10):
        db.exchange(claims)
    assert set(db.states().values()) <= {"done", "cancelled", "dead_letter", "resolved"}


def test_a_ready_job_whose_cancellation_is_undone_keeps_its_place(db):
    first, second = (db.enqueue(concurrency_key="k") for _ in range(2))
    db.promote()
    with transaction(db) as caller:
        caller.cancel(first)
        db.promote()
        assert db.state(second) == "blocked"
        caller.conn.rollback()
    db.promote()

    assert (db.state(first), db.state(second)) == ("ready", "blocked")


def test_a_key_that_is_tidied_away_while_it_is_needed_again_is_not_lost(db):
    db.done(concurrency_key="k")
    job = db.enqueue(concurrency_key="k")
    with transaction(db) as tidier:
        tidier.run("delete from onceward.concurrency_private where concurrency_key = 'k'")
        promoter = Rival(db, lambda rival: rival.promote()).blocked()
        tidier.conn.commit()

    assert promoter.answer().promoted == 1
    assert db.state(job) == "ready"


def test_two_that_finish_at_once_give_their_places_on_without_waiting_for_each_other(db):
    """A place changes hands in one transaction: whoever counts meanwhile sees the old holder or the new one."""
    options = {"concurrency_key": "k", "concurrency_limit": 2}
    first, second = db.running(**options), db.running(**options)
    waiting = [db.enqueue(**options) for _ in range(5)]
    db.promote()
    db.run("set lock_timeout = '10s'")
    with transaction(db) as one:
        one.complete(first)
        db.complete(second)
        # Who counts now counts a place that is being given on.
        db.enqueue(**options)
        db.promote()
        assert [db.state(job) for job in waiting] == ["blocked", "ready", "blocked", "blocked", "blocked"]
        one.conn.commit()

    assert [db.state(job) for job in waiting] == ["ready", "ready", "blocked", "blocked", "blocked"]


def test_a_place_that_is_not_given_on_after_all_is_not_given_twice(db):
    running = db.running(concurrency_key="k")
    waiting = [db.enqueue(concurrency_key="k") for _ in range(2)]
    db.promote()
    with transaction(db) as one:
        one.complete(running)
        db.enqueue(concurrency_key="k")
        db.promote()
        one.conn.rollback()
    db.promote()
    assert [db.state(job) for job in waiting] == ["blocked", "blocked"]
    db.complete(running)

    assert [db.state(job) for job in waiting] == ["ready", "blocked"]


def test_two_that_finish_at_once_let_a_job_in_that_waits_for_both(db):
    """Each alone leaves no room for a smaller limit: the second has to see that the first is gone."""
    small, large = (
        db.running(concurrency_key="k", concurrency_limit=1),
        db.running(concurrency_key="k", concurrency_limit=5),
    )
    job = db.enqueue(concurrency_key="k", concurrency_limit=1)
    db.promote()
    with transaction(db) as one:
        one.complete(small)
        other = Rival(db, lambda rival: rival.complete(large)).blocked()
        one.conn.commit()
    other.answer()

    assert db.state(job) == "ready"


def test_a_small_limit_holds_though_a_place_of_its_key_is_given_back(db):
    small = db.running(concurrency_key="k", concurrency_limit=1)
    large = db.running(concurrency_key="k", concurrency_limit=5)
    job = db.enqueue(concurrency_key="k", concurrency_limit=1)
    db.promote()
    db.complete(small)
    assert db.state(job) == "blocked"
    db.complete(large)

    assert db.state(job) == "ready"


def test_places_that_nobody_could_take_before_are_filled_with_the_next_finish(db):
    """The limit was raised while all places were taken: one finish makes room for several."""
    running = db.running(concurrency_key="k", concurrency_limit=1)
    waiting = [db.enqueue(concurrency_key="k", concurrency_limit=3) for _ in range(5)]
    db.run("delete from onceward.admission_private")
    db.complete(running)

    assert [db.state(job) for job in waiting] == ["ready"] * 3 + ["blocked"] * 2


def test_a_finish_and_a_new_job_at_once_fill_the_place_once(db):
    running = db.running(concurrency_key="k")
    with transaction(db) as finisher:
        finisher.complete(running)
        job = db.enqueue(concurrency_key="k")
        promoter = Rival(db, lambda rival: rival.promote()).blocked()
        finisher.conn.commit()
    assert promoter.answer().promoted == 1
    db.enqueue(concurrency_key="k")
    db.promote()

    assert list(db.states().values()).count("ready") == 1
    assert db.state(job) == "ready"


def start_expiring(db):
    """Two ready jobs that expire, the one of the later key first."""
    for key, minutes in (("b", 1), ("a", 2)):
        db.enqueue(concurrency_key=key, concurrency_limit=2, expires_at=db.now() + timedelta(minutes=minutes))
    db.promote()
    return lambda rival: rival.promote()


def start_expiring_and_admitting(db):
    """A ready job of the later key that expires, and a place of the earlier key that became free."""
    db.enqueue(concurrency_key="b", concurrency_limit=2, expires_at=db.now() + timedelta(minutes=1))
    cancelled = db.enqueue(concurrency_key="a", concurrency_limit=2)
    db.promote()
    db.cancel(cancelled)
    return lambda rival: rival.promote()


def start_rescuing(db):
    """A dead worker with jobs that give up, the one of the later key first."""
    db.worker("dead", lease="1 min")
    for key in ("b", "a"):
        db.running(worker="dead", concurrency_key=key, concurrency_limit=2, max_attempts=1)
    return lambda rival: rival.rescue()


def start_releasing(db):
    """A worker that hands back jobs that are being cancelled, the one of the later key first."""
    for key in ("b", "a"):
        db.cancel(db.running(worker="dead", concurrency_key=key, concurrency_limit=2).job_id)
    return lambda rival: rival.answer("release", worker_id=db.worker("dead"))


STARTS = [start_expiring, start_expiring_and_admitting, start_rescuing, start_releasing]


@pytest.mark.parametrize("start", STARTS, ids=lambda start: start.__name__)
def test_maintenance_and_finishes_take_keys_in_the_same_order(db, start):
    mine = {key: db.running(concurrency_key=key, concurrency_limit=2) for key in "ab"}
    maintain = start(db)
    db.clock.advance("2 min")
    with transaction(db) as finisher:
        finisher.complete(mine["a"])
        maintenance = Rival(db, maintain).blocked()
        # With the keys taken in the order of the jobs, each would now wait for the other.
        finisher.complete(mine["b"])
        finisher.conn.commit()
    maintenance.answer()

    assert deadlocks(db) == 0
