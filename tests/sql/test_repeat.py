"""A reply can be lost after the commit: a call that is repeated gives the same answer and does nothing more."""

from __future__ import annotations

from datetime import timedelta

import pytest
from psycopg.types.json import Jsonb


def nothing(db):
    return None


def running(db):
    return db.running()


def cancelling(db):
    claim = db.running()
    db.cancel(claim.job_id, "no longer needed")
    return claim


# What has to be there first, and the call that is made twice.
REPEATABLE = {
    "enqueue with a key": (nothing, lambda db, _: db.enqueued("mail", {"n": 1}, key="k").job_id),
    "enqueue many with keys": (
        nothing,
        lambda db, _: [row.job_id for row in db.enqueue_many("mail", [{}, {}], keys=["a", "b"])],
    ),
    "complete": (running, lambda db, claim: db.complete(claim, {"n": 1})),
    "complete without a result": (running, lambda db, claim: db.complete(claim)),
    "fail": (running, lambda db, claim: db.fail(claim)),
    "fail for good": (running, lambda db, claim: db.fail(claim, permanent=True)),
    "fail the last time": (lambda db: db.running(max_attempts=1), lambda db, claim: db.fail(claim)),
    "fail while being cancelled": (cancelling, lambda db, claim: db.fail(claim)),
    "snooze": (running, lambda db, claim: db.snooze(claim, "5 min")),
    "snooze once too often": (
        lambda db: db.running(retry={"max_snoozes": 0}),
        lambda db, claim: db.snooze(claim),
    ),
    "snooze while being cancelled": (cancelling, lambda db, claim: db.snooze(claim)),
    "progress": (running, lambda db, claim: db.progress(claim, {"n": 1})),
    "cancel a waiting job": (lambda db: db.enqueue(), lambda db, job: db.cancel(job, "no")),
    "cancel a running job": (running, lambda db, claim: db.cancel(claim.job_id, "no")),
    "cancel by the worker": (running, lambda db, claim: db.cancel(claim.job_id, "no", epoch=claim.epoch)),
    "exchange": (running, lambda db, claim: db.exchange([claim], results=[{"n": 1}])),
    "exchange of a lost one": (running, lambda db, claim: db.exchange([claim._replace(epoch=9)])),
    "heartbeat": (nothing, lambda db, _: db.heartbeat()),
    "adopt": (running, lambda db, _: db.call("adopt", worker_id=db.worker(), known=[])),
}


@pytest.mark.parametrize(("prepare", "call"), list(REPEATABLE.values()), ids=list(REPEATABLE))
def test_a_repeated_call_gives_the_same_answer_and_changes_nothing_more(db, prepare, call):
    given = prepare(db)
    first = call(db, given)
    after = db.contents()

    assert call(db, given) == first
    assert db.contents() == after


@pytest.mark.parametrize("end", ["fail", "snooze"])
def test_a_repetition_is_answered_also_when_the_job_has_gone_on_meanwhile(db, end):
    claim = db.running(retry={"waits": [60]})
    call = {"fail": lambda: db.fail(claim), "snooze": lambda: db.snooze(claim, timedelta(seconds=60))}[end]
    first = call()
    db.clock.advance("60 s")
    again = db.claim(worker="b")
    assert again.job_id == claim.job_id

    assert call() == first
    db.complete(again)
    assert call() == first


def test_a_repetition_does_not_change_what_was_recorded(db):
    claim = db.running()
    db.fail(claim, "first")

    db.fail(claim, "second")

    (attempt,) = db.attempts(claim.job_id)
    assert attempt.message == "first"


def test_another_end_than_the_recorded_one_is_no_repetition(db):
    failed, snoozed, done = db.running(), db.running(), db.running()
    db.fail(failed)
    db.snooze(snoozed)
    db.complete(done)

    others = [
        (failed, [db.complete, db.snooze]),
        (snoozed, [db.complete, db.fail]),
        (done, [db.fail, db.snooze]),
    ]
    for claim, calls in others:
        for call in calls:
            with db.refused("OW001", str(claim.job_id)):
                call(claim)


def test_what_is_repeated_harmlessly_may_answer_that_nothing_was_left_to_do(db):
    """Their answers count what this call did; the state afterwards is the same."""
    worker = db.worker()
    db.running()
    repeats = {
        "release": {"worker_id": worker},
        "retire_worker": {"worker_id": worker},
        "rescue": {},
        "pause_lane": {"name": "default"},
        "resume_lane": {"name": "default"},
        "add_lane": {"name": "mail"},
        "declare_lanes": {"names": ["mail", "ocr"]},
        "ensure_partitions": {},
    }
    for function, arguments in repeats.items():
        db.answer(function, **arguments)
        after = db.contents()
        assert not db.answer(function, **arguments)
        assert db.contents() == after


@pytest.mark.parametrize("function", ["requeue", "resolve"])
def test_an_operator_who_comes_second_hears_that_somebody_was_faster(db, function):
    """Not answered alike on purpose: two people must not both believe that they did it."""
    job = db.dead_letter()
    arguments = {"requeue": {"payload": Jsonb({"n": 2})}, "resolve": {"note": "done by hand"}}[function]
    db.call(function, job_id=job, **arguments)

    with db.refused("OW007", str(job)):
        db.call(function, job_id=job, **arguments)
