from __future__ import annotations

from datetime import timedelta

import pytest


def test_a_claim_starts_an_attempt_and_raises_the_epoch(db):
    job = db.enqueue("ocr", {"n": 1}, timeout="5 min", headers={"trace": "1"}, key="k")

    claim = db.claim(worker="a")

    assert (claim.job_id, claim.epoch, claim.attempt) == (job, 1, 1)
    assert (claim.task, claim.payload, claim.headers, claim.key) == ("ocr", {"n": 1}, {"trace": "1"}, "k")
    assert (claim.timeout, claim.max_attempts, claim.tenant) == (timedelta(minutes=5), 8, "default")
    row = db.job(job)
    assert (row.state, row.epoch, row.attempt, row.worker_id) == ("running", 1, 1, db.worker("a"))
    assert row.started_at == db.now()


def test_no_job_is_claimed_twice(db):
    db.enqueue()

    assert len(db.claims(5, worker="a")) == 1
    assert db.claims(5, worker="b") == []


def test_a_claim_takes_no_more_than_asked_for(db):
    db.enqueue_many("ocr", [{}] * 10)

    assert len(db.claims(3)) == 3
    assert list(db.states().values()).count("running") == 3


def test_higher_priority_goes_first_then_what_was_ready_first(db):
    low = db.enqueue(priority=-5)
    first = db.enqueue(priority=0)
    second = db.enqueue(priority=0)
    high = db.enqueue(priority=5)

    assert [claim.job_id for claim in db.claims(4)] == [high, first, second, low]


def test_a_retry_queues_behind_those_that_became_ready_before_it(db):
    again = db.running(retry={"waits": [60]})
    db.fail(again)
    db.clock.advance("50 s")
    before = db.enqueue()
    db.clock.advance("10 s")
    db.promote()
    after = db.enqueue()

    assert [claim.job_id for claim in db.claims(3)] == [before, again.job_id, after]


def test_scheduled_jobs_become_ready_in_the_order_of_their_time(db):
    late, early = (db.enqueue(run_at=db.now() + timedelta(minutes=minutes)) for minutes in (2, 1))
    db.clock.advance("5 min")

    assert [claim.job_id for claim in db.claims(2)] == [early, late]


def test_nothing_is_claimed_before_its_time(db):
    db.enqueue(run_at=db.now() + timedelta(minutes=1))

    db.clock.advance("59 s")
    assert db.claims(1) == []
    db.clock.advance("1 s")
    assert len(db.claims(1)) == 1


def test_a_claim_finds_due_jobs_by_itself_when_the_ready_ones_run_out(db):
    """A worker in another language needs no maintenance of its own."""
    ready = db.enqueue()
    due = db.enqueue(run_at=db.now() + timedelta(minutes=1))
    waiting = db.enqueue(concurrency_key="k")
    db.clock.advance("1 min")

    assert {claim.job_id for claim in db.claims(10)} == {ready, due, waiting}


def test_an_empty_lane_gives_nothing(db):
    assert db.claims(10) == []


def test_a_worker_without_a_lease_claims_nothing(db):
    job = db.enqueue()
    db.worker("a", lease="30 s")
    db.clock.advance("30 s")

    with db.refused("OW009", str(db.worker("a"))):
        db.claims(1, worker="a")
    assert db.state(job) == "ready"


def test_a_retired_worker_claims_nothing(db):
    db.enqueue()
    db.call("retire_worker", worker_id=db.worker("a"))

    with db.refused("OW009"):
        db.claims(1, worker="a")


def test_after_a_lost_reply_a_worker_finds_the_jobs_it_does_not_know_of(db):
    known = db.running()
    unknown = db.running()
    db.running(worker="b")

    (found,) = db.call("adopt", worker_id=db.worker("a"), known=[known.job_id])

    assert found == unknown


def test_adopting_with_nothing_known_gives_everything(db):
    claims = [db.running() for _ in range(3)]

    for known in ([], None):
        found = db.call("adopt", worker_id=db.worker("a"), known=known)
        assert sorted(found) == sorted(claims)


def test_a_claim_of_one_is_not_hidden_behind_new_jobs_that_have_to_wait_for_their_key(db):
    db.running(concurrency_key="busy")
    db.enqueue_many("ocr", [{}] * 20, concurrency_key="busy")
    free = db.enqueue(concurrency_key="free")

    assert db.claim().job_id == free


@pytest.mark.parametrize("function", ["release", "retire_worker"])
def test_jobs_that_are_handed_back_are_the_next_to_be_claimed_in_their_old_order(db, function):
    held = [db.enqueue() for _ in range(3)]
    db.claims(3, worker="leaving")
    waiting = [db.enqueue() for _ in range(3)]
    db.call(function, worker_id=db.worker("leaving"))

    assert [claim.job_id for claim in db.claims(6, worker="b")] == held + waiting


def test_a_rescued_job_stands_at_the_end_of_the_line(db):
    held = db.enqueue()
    db.claim(worker="dead")
    waiting = db.enqueue()
    db.lose("dead")

    assert [claim.job_id for claim in db.claims(2, worker="b")] == [waiting, held]
