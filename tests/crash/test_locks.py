"""Lock orders that the deadlock hunt found broken, one deterministic case for each; and hand-backs that come twice."""

from __future__ import annotations

import pytest

from tests.support.races import Rival, deadlocks, transaction

pytestmark = pytest.mark.race


def test_a_worker_that_retires_and_its_last_exchange_do_not_deadlock(db):
    claim = db.running()
    with transaction(db) as holder:
        holder.run("select from onceward.job_private where id = %s for update", claim.job_id)
        # The exchange waits for the job first; then it would like to say that its worker sleeps.
        exchange = Rival(db, lambda rival: rival.exchange([claim], sleep=True)).blocked()
        retire = Rival(db, lambda rival: rival.answer("retire_worker", worker_id=rival.worker("a")))
        holder.conn.rollback()
    lost = [row.job_id for row in exchange.answer() if row.outcome == "lost"]
    retire.answer()

    assert deadlocks(db) == 0
    # Whoever comes first has it: done, or handed back, and then the exchange was told.
    assert (db.state(claim.job_id), lost) in [("done", []), ("ready", [claim.job_id])]


def test_two_exchanges_that_finish_the_same_jobs_in_opposite_order_do_not_deadlock(db):
    first, second = sorted((db.running(), db.running()), key=lambda claim: claim.job_id)
    with transaction(db) as holder:
        # Both exchanges queue up at the first job, whichever comes first in their lists.
        holder.run("select from onceward.job_private where id = %s for update", first.job_id)
        one = Rival(db, lambda rival: rival.exchange([first, second])).blocked()
        other = Rival(db, lambda rival: rival.exchange([second, first])).blocked()
        free = db.run(
            "select id from onceward.job_private where id = %s for update skip locked", second.job_id
        )
        holder.conn.rollback()
    one.answer()
    other.answer()

    assert len(free) == 1
    assert deadlocks(db) == 0
    assert {db.state(first.job_id), db.state(second.job_id)} == {"done"}


def test_a_batch_takes_expired_and_new_keys_in_one_order(db):
    db.enqueue_many("ocr", [{}], keys=["b"], key_window="1 minute")
    db.clock.advance("1 hour")
    with transaction(db) as holder:
        holder.enqueue("ocr", key="a")
        batch = Rival(
            db, lambda rival: rival.enqueue_many("ocr", [{}, {}], keys=["a", "b"], key_window="1 minute")
        ).blocked()
        # It waits for "a" and has not touched "b" yet.
        free = db.run("select key from onceward.key_private where key = 'b' for update skip locked")
        holder.conn.rollback()

    assert len(free) == 1
    assert [row.created for row in batch.answer()] == [True, True]


def test_a_hand_back_that_is_repeated_does_not_take_a_job_that_the_worker_runs_again(db):
    job = db.enqueue()
    first = db.claim()

    def hand_back() -> int:
        return db.answer("release", worker_id=db.worker(), job_ids=[job], epochs=[first.epoch])

    assert hand_back() == 1
    again = db.claim()

    assert hand_back() == 0
    assert db.job(job).epoch == again.epoch
    assert db.state(job) == "running"


@pytest.mark.parametrize("call", ["complete", "fail", "snooze", "exchange"])
def test_a_worker_does_not_wait_for_a_callers_open_transaction_for_long(db, call):
    claim = db.running()
    with transaction(db) as caller:
        caller.cancel(claim.job_id)
        end = Rival(
            db, lambda rival: rival.exchange([claim]) if call == "exchange" else getattr(rival, call)(claim)
        )

        assert end.sqlstate == "55P03"


def test_a_worker_that_leaves_does_not_wait_for_a_callers_open_transaction(db):
    held, other = db.running(), db.running()
    with transaction(db) as caller:
        caller.cancel(held.job_id)

        assert db.answer("retire_worker", worker_id=db.worker()) == 1

        caller.conn.rollback()
    assert (db.state(held.job_id), db.state(other.job_id)) == ("running", "ready")

    db.rescue()

    assert db.state(held.job_id) == "ready"
