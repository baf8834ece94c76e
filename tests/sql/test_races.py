"""Two connections against each other: the outcome is the promised one, whoever is first."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.support.engine import refused
from tests.support.races import Rival, deadlocks, transaction

pytestmark = pytest.mark.race

KEYED = {
    "enqueue": lambda db: db.enqueued("ocr", {"n": 1}, key="k"),
    "enqueue_many": lambda db: db.enqueue_many("ocr", [{"n": 1}], keys=["k"])[0],
}
both_ways = pytest.mark.parametrize(
    ("first", "second"),
    [(a, b) for a in KEYED.values() for b in KEYED.values()],
    ids=[f"{a} then {b}" for a in KEYED for b in KEYED],
)


@both_ways
def test_the_loser_of_a_race_for_a_key_takes_over_when_the_winner_rolls_back(db, first, second):
    with transaction(db) as winner:
        first(winner)
        loser = Rival(db, second).blocked()
        winner.conn.rollback()

    answer = loser.answer()
    assert answer.created
    assert db.states() == {answer.job_id: "ready"}


@both_ways
def test_the_loser_of_a_race_for_a_key_gets_the_job_of_the_winner(db, first, second):
    with transaction(db) as winner:
        won = first(winner)
        loser = Rival(db, second).blocked()
        winner.conn.commit()

    answer = loser.answer()
    assert (answer.job_id, answer.created) == (won.job_id, False)
    assert db.states() == {won.job_id: "ready"}


def test_the_loser_of_a_race_with_another_payload_is_told_so(db):
    with transaction(db) as winner:
        winner.enqueue("ocr", {"n": 1}, key="k")
        loser = Rival(db, lambda rival: rival.enqueue("ocr", {"n": 2}, key="k")).blocked()
        winner.conn.commit()

    assert loser.sqlstate == "OW005"


def test_a_snapshot_that_cannot_see_the_winner_is_refused_rather_than_answered_wrongly(db):
    with transaction(db) as old:
        old.conn.execute("set transaction isolation level repeatable read")
        old.run("select 1")
        db.enqueue("ocr", key="k")

        with refused("40001"):
            old.enqueue("ocr", key="k")


def test_batches_with_the_same_keys_in_opposite_order_do_not_deadlock(db):
    with transaction(db) as one:
        one.enqueue_many("ocr", [{}] * 2, keys=["b", "a"])
        other = Rival(db, lambda rival: rival.enqueue_many("ocr", [{}] * 2, keys=["a", "b"])).blocked()
        one.conn.commit()

    assert {row.created for row in other.answer()} == {False}
    assert deadlocks(db) == 0


def test_a_key_whose_holder_is_finishing_gives_either_that_job_or_a_new_one(db):
    claim = db.running(key="k")
    with transaction(db) as finisher:
        finisher.complete(claim)
        before = db.enqueued(key="k")
        finisher.conn.commit()

    assert (before.job_id, before.created) == (claim.job_id, False)
    assert db.enqueued(key="k").created


PAIRS = {
    "requeue twice": (lambda db, job: db.requeue(job), lambda db, job: db.requeue(job)),
    "resolve twice": (lambda db, job: db.resolve(job), lambda db, job: db.resolve(job)),
    "requeue and resolve": (lambda db, job: db.requeue(job), lambda db, job: db.resolve(job)),
    "resolve, then requeue": (lambda db, job: db.resolve(job), lambda db, job: db.requeue(job)),
}


@pytest.mark.parametrize(("first", "second"), list(PAIRS.values()), ids=list(PAIRS))
def test_two_people_with_one_dead_letter_do_not_both_hear_success(db, first, second):
    job = db.dead_letter()
    with transaction(db) as one:
        first(one, job)
        other = Rival(db, lambda rival: second(rival, job)).blocked()
        one.conn.commit()

    if first is PAIRS["resolve, then requeue"][0] and second is PAIRS["resolve, then requeue"][1]:
        # In sequence this is allowed: a resolved job may be brought back.
        assert other.answer() == "ready"
    else:
        assert other.sqlstate == "OW007"


@pytest.mark.parametrize(("first", "second"), list(PAIRS.values()), ids=list(PAIRS))
def test_the_second_of_two_people_succeeds_when_the_first_gives_up(db, first, second):
    job = db.dead_letter()
    with transaction(db) as one:
        first(one, job)
        other = Rival(db, lambda rival: second(rival, job)).blocked()
        one.conn.rollback()

    other.answer()
    assert db.state(job) in {"ready", "resolved"}


def test_bringing_a_cancelled_job_back_succeeds_for_one_of_two(db):
    job = db.enqueue()
    db.cancel(job)
    with transaction(db) as one:
        one.requeue(job)
        other = Rival(db, lambda rival: rival.requeue(job)).blocked()
        one.conn.commit()

    assert other.sqlstate == "OW007"
    assert list(db.states().values()) == ["ready"]


def test_starting_a_scheduled_job_early_succeeds_for_one_of_two(db):
    job = db.enqueue(run_at=db.now() + timedelta(hours=1))
    with transaction(db) as one:
        one.answer("run_now", job_id=job)
        other = Rival(db, lambda rival: rival.answer("run_now", job_id=job)).blocked()
        one.conn.commit()

    assert other.sqlstate == "OW007"


def test_a_finish_that_meets_a_cancellation_counts(db):
    claim = db.running()
    with transaction(db) as canceller:
        assert canceller.cancel(claim.job_id) == "cancelling"
        finisher = Rival(db, lambda rival: rival.complete(claim, {"n": 1})).blocked()
        canceller.conn.commit()

    finisher.answer()
    assert db.state(claim.job_id) == "done"


def test_a_cancellation_that_meets_a_finish_is_told_that_the_job_is_done(db):
    claim = db.running()
    with transaction(db) as finisher:
        finisher.complete(claim)
        canceller = Rival(db, lambda rival: rival.cancel(claim.job_id)).blocked()
        finisher.conn.commit()

    assert canceller.sqlstate == "OW007"
    assert db.state(claim.job_id) == "done"


def test_a_cancellation_that_meets_a_failure_ends_the_job(db):
    claim = db.running(retry={"waits": [60]})
    with transaction(db) as worker:
        worker.fail(claim)
        canceller = Rival(db, lambda rival: rival.cancel(claim.job_id)).blocked()
        worker.conn.commit()

    assert canceller.answer() == "cancelled"
    assert db.state(claim.job_id) == "cancelled"


def test_a_job_that_is_being_cancelled_is_not_claimed_unless_that_is_undone(db):
    job = db.enqueue()
    with transaction(db) as canceller:
        canceller.cancel(job)
        assert db.claims(1) == []
        canceller.conn.rollback()

    assert db.claim().job_id == job


def test_a_cancellation_that_meets_a_claim_asks_the_worker_to_stop(db):
    job = db.enqueue()
    with transaction(db) as worker:
        worker.claim()
        canceller = Rival(db, lambda rival: rival.cancel(job)).blocked()
        worker.conn.commit()

    assert canceller.answer() == "cancelling"


def test_a_finish_under_way_is_not_rescued(db):
    db.worker("a", lease="30 s")
    claim = db.running(worker="a")
    with transaction(db) as finisher:
        finisher.complete(claim)
        db.clock.advance("30 s")
        assert db.rescue() == 0
        finisher.conn.commit()

    assert db.state(claim.job_id) == "done"


def test_a_finish_that_waited_for_a_rescue_is_refused(db):
    db.worker("a", lease="30 s")
    claim = db.running(worker="a")
    db.clock.advance("30 s")
    with transaction(db) as rescuer:
        assert rescuer.rescue() == 1
        finisher = Rival(db, lambda rival: rival.complete(claim)).blocked()
        rescuer.conn.commit()

    assert finisher.sqlstate == "OW001"
    assert db.state(claim.job_id) == "ready"


def test_a_finish_that_waited_for_a_rescue_that_was_undone_counts(db):
    db.worker("a", lease="30 s")
    claim = db.running(worker="a")
    db.clock.advance("30 s")
    with transaction(db) as rescuer:
        rescuer.rescue()
        finisher = Rival(db, lambda rival: rival.complete(claim)).blocked()
        rescuer.conn.rollback()

    finisher.answer()
    assert db.state(claim.job_id) == "done"


def test_a_heartbeat_under_way_saves_the_worker_from_the_rescue(db):
    db.worker("a", lease="30 s")
    db.running(worker="a")
    db.clock.advance("29 s")
    with transaction(db) as heart:
        heart.heartbeat("a")
        db.clock.advance("1 s")
        assert db.rescue() == 0
        heart.conn.commit()

    assert db.rescue() == 0
    assert db.value("select state from onceward.workers") == "live"


def test_two_rescuers_take_each_job_once(db):
    db.worker("a", lease="30 s")
    claim = db.running(worker="a")
    db.clock.advance("30 s")
    with transaction(db) as one:
        assert one.rescue() == 1
        assert db.rescue() == 0
        one.conn.commit()

    assert db.outcomes(claim.job_id) == ["rescued"]


def test_two_promoters_take_each_job_once(db):
    db.enqueue(run_at=db.now() + timedelta(minutes=1))
    db.clock.advance("1 min")
    with transaction(db) as one:
        assert one.promote().promoted == 1
        assert db.promote().promoted == 0
        one.conn.commit()

    assert len(db.claims(10)) == 1


def test_two_claims_share_the_jobs_without_waiting(db):
    first, second = db.enqueue(), db.enqueue()
    with transaction(db) as one:
        assert one.claim(worker="a").job_id == first
        assert db.claim(worker="b").job_id == second
        one.conn.commit()


def test_a_claim_that_is_undone_gives_the_job_back_untouched(db):
    job = db.enqueue()
    with transaction(db) as one:
        one.claim()
        one.conn.rollback()

    row = db.job(job)
    assert (row.state, row.attempt, row.epoch) == ("ready", 0, 0)
