from __future__ import annotations

from datetime import timedelta


def test_a_snoozed_job_comes_back_after_the_delay_without_using_up_an_attempt(db):
    claim = db.running(max_attempts=1)

    answer = db.snooze(claim, "10 min", reason="the lab is closed")

    assert (answer.state, answer.run_at) == ("scheduled", db.now() + timedelta(minutes=10))
    row = db.job(claim.job_id)
    assert (row.state, row.attempt, row.snoozes, row.worker_id) == ("scheduled", 0, 1, None)
    assert db.claims(1) == []
    db.clock.advance("10 min")
    again = db.claim()
    assert (again.attempt, again.epoch) == (1, 2)


def test_a_snooze_is_recorded_with_its_reason(db):
    claim = db.running()
    db.snooze(claim, "10 min", reason="the lab is closed")

    (attempt,) = db.attempts(claim.job_id)
    assert (attempt.outcome, attempt.message) == ("snoozed", "the lab is closed")
    assert attempt.retry_at == db.now() + timedelta(minutes=10)


def test_a_snooze_of_no_length_is_due_at_once(db):
    claim = db.running()

    db.snooze(claim, "0")

    assert db.claim().job_id == claim.job_id


def test_snoozes_are_bounded_by_the_policy_of_the_job(db):
    job = db.enqueue(retry={"max_snoozes": 2})
    states = [db.snooze(db.claim(), "0").state for _ in range(3)]

    assert states == ["scheduled", "scheduled", "dead_letter"]
    assert db.job(job).snoozes == 2
    (letter,) = db.run("select * from onceward.dead_letters")
    assert (letter.error_type, letter.category) == ("SnoozesUsedUp", "snoozes_used_up")
    assert "2 times" in letter.message


def test_without_a_policy_a_thousand_snoozes_are_allowed(db):
    job = db.enqueue()
    db.run("update onceward.job_private set snoozes = 999 where id = %s", job)

    assert db.snooze(db.claim(), "0").state == "scheduled"
    assert db.snooze(db.claim(), "0").state == "dead_letter"


def test_failures_after_snoozes_still_have_all_their_attempts(db):
    job = db.enqueue(max_attempts=2, retry={"waits": [0]})
    db.snooze(db.claim(), "0")
    assert db.fail(db.claim()).state == "scheduled"
    db.snooze(db.claim(), "0")

    assert db.fail(db.claim()).state == "dead_letter"
    assert db.outcomes(job) == ["snoozed", "failed", "snoozed", "dead_letter"]


def test_a_requeue_gives_the_snoozes_back(db):
    job = db.enqueue(retry={"max_snoozes": 1})
    db.snooze(db.claim(), "0")
    db.snooze(db.claim(), "0")
    db.requeue(job)

    assert db.snooze(db.claim(), "0").state == "scheduled"


def test_a_job_that_is_being_cancelled_is_not_put_off_but_ends(db):
    claim = db.running()
    db.cancel(claim.job_id, "not needed")

    answer = db.snooze(claim, "10 min")

    assert (answer.state, answer.run_at) == ("cancelled", None)
    assert (db.state(claim.job_id), db.job(claim.job_id).note) == ("cancelled", "not needed")
