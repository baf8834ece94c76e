from __future__ import annotations

from datetime import timedelta

import pytest


@pytest.mark.parametrize("state", ["ready", "scheduled", "blocked"])
def test_a_job_is_never_started_after_it_has_expired(db, state):
    options = {
        "ready": {},
        "scheduled": {"run_at": db.now() + timedelta(minutes=30)},
        "blocked": {"concurrency_key": "k"},
    }
    job = db.enqueue(expires_at=db.now() + timedelta(hours=1), **options[state])
    assert db.state(job) == state
    db.clock.advance("1 hour")

    assert db.exchange(lanes=["default"], max=10) == []
    assert db.claims(10) == []
    row = db.job(job)
    assert (row.state, row.attempt) == ("cancelled", 0)
    assert "expired" in row.note


def test_a_job_can_start_until_the_last_moment(db):
    job = db.enqueue(expires_at=db.now() + timedelta(hours=1))
    db.clock.advance("59 min 59.999 s")

    assert db.claim().job_id == job


def test_a_job_that_has_started_may_finish_after_its_expiry(db):
    claim = db.running(expires_at=db.now() + timedelta(hours=1))
    db.clock.advance("2 hours")
    db.promote()

    db.complete(claim)

    assert db.state(claim.job_id) == "done"


def test_a_retry_that_comes_too_late_is_not_made(db):
    claim = db.running(expires_at=db.now() + timedelta(hours=1), retry={"waits": [7200]})
    db.fail(claim)
    db.clock.advance("2 hours")

    assert db.claims(1) == []
    assert db.state(claim.job_id) == "cancelled"


def test_promote_says_how_many_expired_and_takes_no_more_than_asked(db):
    db.enqueue_many("ocr", [{}] * 5, expires_at=db.now() + timedelta(hours=1))
    db.clock.advance("1 hour")

    assert db.promote(limit=2).expired == 2
    assert db.promote(limit=10).expired == 3
    assert set(db.states().values()) == {"cancelled"}


def test_a_dead_letter_does_not_expire(db):
    job = db.dead_letter(expires_at=db.now() + timedelta(hours=1))
    db.clock.advance("2 hours")

    assert db.promote().expired == 0
    assert db.state(job) == "dead_letter"


def test_an_expired_job_gives_back_its_key(db):
    db.enqueue(expires_at=db.now() + timedelta(hours=1), key="k")
    db.clock.advance("1 hour")
    db.promote()

    assert db.enqueued(key="k").created


def test_an_expired_job_gives_its_place_to_the_next_of_its_concurrency_key(db):
    db.enqueue(expires_at=db.now() + timedelta(hours=1), concurrency_key="k")
    db.promote()
    waiting = db.enqueue(concurrency_key="k")
    assert (db.promote().promoted, db.state(waiting)) == (0, "blocked")
    db.clock.advance("1 hour")

    db.promote()

    assert db.state(waiting) == "ready"
