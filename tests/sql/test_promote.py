from __future__ import annotations

from datetime import timedelta


def test_due_jobs_become_ready_and_others_stay(db):
    due = db.enqueue(run_at=db.now() + timedelta(minutes=1))
    later = db.enqueue(run_at=db.now() + timedelta(minutes=3))
    db.clock.advance("1 min")

    answer = db.promote()

    assert (answer.promoted, answer.expired) == (1, 0)
    assert (db.state(due), db.state(later)) == ("ready", "scheduled")


def test_promote_says_when_the_next_job_is_due(db):
    assert db.promote()[2:] == (None, None, False)
    later = db.now() + timedelta(minutes=3)
    db.enqueue(run_at=later + timedelta(hours=1))
    db.enqueue(run_at=later)

    answer = db.promote()

    assert (answer.next_run_at, answer.next_in) == (later, timedelta(minutes=3))


def test_promote_takes_no_more_than_asked(db):
    db.enqueue_many("ocr", [{}] * 5, run_at=db.now() + timedelta(minutes=1))
    db.enqueue_many("ocr", [{}] * 5, concurrency_key="k", concurrency_limit=10)
    db.clock.advance("1 min")

    assert db.promote(limit=2).promoted <= 2 + 10
    assert list(db.states().values()).count("scheduled") == 3


def test_promoting_twice_changes_nothing_more(db):
    db.enqueue(run_at=db.now() + timedelta(minutes=1))
    db.enqueue(concurrency_key="k")
    db.clock.advance("1 min")
    assert db.promote().promoted == 2
    after = db.contents()

    assert db.promote().promoted == 0
    assert db.contents() == after


def test_promoted_jobs_are_claimed_in_the_order_of_their_time(db):
    jobs = [db.enqueue(run_at=db.now() + timedelta(minutes=minutes)) for minutes in (5, 3, 4, 1, 2)]
    db.clock.advance("10 min")
    db.promote()

    assert [claim.job_id for claim in db.claims(5)] == [jobs[n] for n in (3, 4, 1, 2, 0)]


def test_priority_goes_before_time_among_promoted_jobs(db):
    low = db.enqueue(run_at=db.now() + timedelta(minutes=1), priority=1)
    high = db.enqueue(run_at=db.now() + timedelta(minutes=2), priority=2)
    db.clock.advance("5 min")
    db.promote()

    assert [claim.job_id for claim in db.claims(2)] == [high, low]


def test_a_job_that_somebody_is_cancelling_does_not_hold_up_the_others(db):
    cancelling, other = (db.enqueue(run_at=db.now() + timedelta(minutes=1)) for _ in range(2))
    db.clock.advance("1 min")
    conn = db.connect(autocommit=False)
    db.on(conn).cancel(cancelling)

    assert db.promote().promoted == 1
    assert db.state(other) == "ready"
    conn.rollback()
    assert db.promote().promoted == 1
    assert db.state(cancelling) == "ready"
