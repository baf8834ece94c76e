from __future__ import annotations

from uuid import UUID

import pytest


def test_jobs_of_a_worker_whose_lease_is_over_are_ready_again(db):
    db.worker("a", lease="30 s")
    claim = db.running(worker="a")
    db.clock.advance("30 s")

    assert db.rescue() == 1

    row = db.job(claim.job_id)
    assert (row.state, row.attempt, row.worker_id, row.started_at) == ("ready", 1, None, None)
    again = db.claim(worker="b")
    assert (again.job_id, again.attempt, again.epoch) == (claim.job_id, 2, 2)


def test_nothing_is_taken_from_a_worker_that_renews_its_lease(db):
    db.worker("a", lease="30 s")
    db.running(worker="a")
    for _ in range(5):
        db.clock.advance("29 s")
        db.heartbeat("a")
        assert db.rescue() == 0


def test_a_rescue_is_recorded_with_the_worker_that_was_lost(db):
    claim = db.running(worker="a")
    db.lose("a")

    (attempt,) = db.attempts(claim.job_id)
    assert (attempt.outcome, attempt.error_type, attempt.category) == (
        "rescued",
        "LeaseExpired",
        "lost_worker",
    )
    assert str(db.worker("a")) in attempt.message
    assert db.job(claim.job_id).last_error["type"] == "LeaseExpired"


def test_a_job_that_kills_its_workers_does_so_no_more_often_than_its_attempts_allow(db):
    job = db.enqueue(max_attempts=3)
    for worker in ("a", "b", "c"):
        db.claim(worker=worker)
        db.lose(worker)

    assert db.state(job) == "dead_letter"
    assert db.outcomes(job) == ["rescued", "rescued", "dead_letter"]
    (letter,) = db.run("select * from onceward.dead_letters")
    assert letter.error_type == "LeaseExpired"


def test_an_expired_worker_is_retired_and_cannot_come_back(db):
    db.worker("a", lease="30 s")
    db.clock.advance("30 s")
    assert db.value("select state from onceward.workers") == "expired"

    db.rescue()

    row = db.one("select * from onceward.workers")
    assert (row.state, row.retired_at, row.retired_why) == ("retired", db.now(), "lease expired")
    with db.refused("OW009"):
        db.heartbeat("a")


def test_a_rescue_takes_no_more_than_asked(db):
    db.enqueue_many("ocr", [{}] * 5)
    db.worker("a", lease="30 s")
    db.claims(5, worker="a")
    db.clock.advance("30 s")

    assert db.rescue(limit=2) == 2
    assert db.rescue(limit=2) == 2
    assert db.rescue(limit=2) == 1
    assert db.rescue(limit=2) == 0


def test_a_claim_that_committed_after_its_worker_was_retired_is_found(db):
    """The claim had read that the worker was alive, and was slower than the rescue."""
    db.worker("a", lease="30 s")
    db.enqueue()
    conn = db.connect(autocommit=False)
    db.on(conn).claims(1, worker="a")
    db.clock.advance("30 s")
    assert db.rescue() == 0
    conn.commit()

    assert db.rescue(thorough=False) == 1


@pytest.mark.parametrize("thorough", [True, False])
def test_jobs_of_a_worker_that_nobody_knows_any_more_are_found_by_a_thorough_look(db, thorough):
    claim = db.running(worker="a")
    db.run("delete from onceward.worker_private")

    assert db.rescue(thorough=thorough) == (1 if thorough else 0)
    assert db.state(claim.job_id) == ("ready" if thorough else "running")


def test_jobs_of_a_worker_that_retired_long_ago_are_found_by_a_thorough_look(db):
    claim = db.running(worker="a")
    db.run("update onceward.worker_private set retired_at = onceward.now() - interval '1 hour'")

    assert db.rescue(thorough=False) == 0
    assert db.rescue(thorough=True) == 1
    assert db.state(claim.job_id) == "ready"


def test_a_job_a_minute_past_its_timeout_is_taken_from_a_worker_that_did_not_end_it(db):
    claim = db.running(timeout="5 min")
    db.clock.advance("6 min")
    assert db.rescue() == 0
    db.clock.advance("1 s")
    db.heartbeat()

    assert db.rescue() == 1

    (attempt,) = db.attempts(claim.job_id)
    assert (attempt.outcome, attempt.category) == ("rescued", "timeout")
    assert "00:05:00" in attempt.message
    with db.refused("OW001"):
        db.complete(claim)


def test_a_job_without_a_timeout_runs_as_long_as_its_worker_lives(db):
    claim = db.running()
    for _ in range(40):
        db.clock.advance("23 hours")
        db.heartbeat()
    assert db.rescue() == 0

    db.complete(claim)
    assert db.state(claim.job_id) == "done"


def test_a_new_worker_of_the_same_name_does_not_inherit_the_jobs_of_the_old_one(db):
    db.running(worker="a")
    second = UUID(str(db.answer("register_worker", name="a", lease="30 s")))

    assert second != db.worker("a")
    assert db.call("adopt", worker_id=second, known=[]) == []


def test_rescued_jobs_queue_behind_those_that_were_ready_before(db):
    claim = db.running(worker="a")
    waiting = db.enqueue()
    db.lose("a")

    assert [row.job_id for row in db.claims(2, worker="b")] == [waiting, claim.job_id]
