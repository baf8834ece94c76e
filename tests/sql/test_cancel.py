from __future__ import annotations

from datetime import timedelta

import pytest


@pytest.mark.parametrize("state", ["ready", "scheduled", "blocked"])
def test_a_job_that_is_not_running_is_cancelled_at_once(db, state):
    options = {
        "ready": {},
        "scheduled": {"run_at": db.now() + timedelta(hours=1)},
        "blocked": {"concurrency_key": "k"},
    }
    job = db.enqueue(**options[state])
    assert db.state(job) == state

    assert db.cancel(job, "not needed") == "cancelled"

    row = db.job(job)
    assert (row.state, row.finished_at, row.note, row.attempt) == ("cancelled", db.now(), "not needed", 0)
    assert db.attempts(job) == []
    db.clock.advance("2 hours")
    assert db.claims(10) == []


def test_a_running_job_is_asked_to_stop(db):
    claim = db.running(worker="a")

    assert db.cancel(claim.job_id, "not needed") == "cancelling"

    row = db.job(claim.job_id)
    assert (row.state, row.cancel_at, row.note) == ("running", db.now(), "not needed")
    assert db.heartbeat("a").cancel_job_ids == [claim.job_id]
    assert db.cancel(claim.job_id, epoch=claim.epoch) == "cancelled"
    row = db.job(claim.job_id)
    assert (row.state, row.note) == ("cancelled", "not needed")
    assert db.outcomes(claim.job_id) == ["cancelled"]


def test_a_heartbeat_names_only_the_jobs_of_its_worker(db):
    mine, other = db.running(worker="a"), db.running(worker="b")
    db.cancel(mine.job_id)
    db.cancel(other.job_id)

    assert db.heartbeat("a").cancel_job_ids == [mine.job_id]
    assert db.heartbeat("b").cancel_job_ids == [other.job_id]


def test_the_first_reason_stays(db):
    claim = db.running()
    db.cancel(claim.job_id, "first")
    db.cancel(claim.job_id, "second")

    assert db.job(claim.job_id).note == "first"


def test_a_worker_may_end_its_job_as_cancelled_of_its_own_accord(db):
    claim = db.running()

    assert db.cancel(claim.job_id, "customer is gone", epoch=claim.epoch) == "cancelled"
    assert db.job(claim.job_id).note == "customer is gone"


def test_a_job_that_finishes_before_it_heard_of_the_cancellation_is_done(db):
    claim = db.running()
    db.cancel(claim.job_id)

    db.complete(claim, {"n": 1})

    assert (db.state(claim.job_id), db.job(claim.job_id).result) == ("done", {"n": 1})


@pytest.mark.parametrize("permanent", [False, True])
def test_a_job_that_fails_while_being_cancelled_is_cancelled_not_retried(db, permanent):
    claim = db.running()
    db.cancel(claim.job_id, "not needed")

    answer = db.fail(claim, "interrupted", permanent=permanent)

    assert (answer.state, answer.retry_at) == ("cancelled", None)
    assert (db.state(claim.job_id), db.job(claim.job_id).note) == ("cancelled", "not needed")
    (attempt,) = db.attempts(claim.job_id)
    assert (attempt.outcome, attempt.message) == ("cancelled", "interrupted")


def test_a_job_that_is_handed_back_while_being_cancelled_is_cancelled(db):
    claim = db.running(worker="a")
    db.cancel(claim.job_id)

    assert db.answer("release", worker_id=db.worker("a")) == 1
    assert db.state(claim.job_id) == "cancelled"


def test_a_job_whose_worker_dies_while_being_cancelled_is_cancelled(db):
    claim = db.running(worker="a")
    db.cancel(claim.job_id)

    db.lose("a")

    assert db.state(claim.job_id) == "cancelled"
    assert db.outcomes(claim.job_id) == ["cancelled"]


@pytest.mark.parametrize("state", ["done", "resolved"])
def test_a_finished_job_cannot_be_cancelled(db, state):
    if state == "done":
        job = db.done()
    else:
        job = db.dead_letter()
        db.resolve(job)

    with db.refused("OW007", str(job), f'"{state}"'):
        db.cancel(job)


def test_a_dead_letter_is_requeued_or_resolved_not_cancelled(db):
    """Resolving asks for a note and runs the check of the task; cancelling would be the way around both."""
    job = db.dead_letter()

    with db.refused("OW007", str(job), '"dead_letter"', "resolve"):
        db.cancel(job)


def test_cancelling_gives_the_place_of_a_ready_job_to_the_next_of_its_key(db):
    first, second = (db.enqueue(concurrency_key="k") for _ in range(2))
    db.promote()
    assert (db.state(first), db.state(second)) == ("ready", "blocked")

    db.cancel(first)
    db.promote()

    assert db.state(second) == "ready"


def test_a_long_reason_is_shortened(db):
    job = db.enqueue()

    db.cancel(job, "x" * 5000)

    assert len(db.job(job).note) == 2000
