from __future__ import annotations

from datetime import timedelta

import pytest


def claim_all(db, **options):
    return [claim.job_id for claim in db.claims(100, **options)]


def test_jobs_of_one_key_run_one_after_another_in_the_order_they_came(db):
    jobs = [db.enqueue(concurrency_key="user-1") for _ in range(3)]

    for job in jobs:
        (claim,) = db.claims(10)
        assert claim.job_id == job
        db.complete(claim)


@pytest.mark.parametrize("limit", [1, 2, 5])
def test_no_more_jobs_of_a_key_run_than_its_limit(db, limit):
    jobs = [db.enqueue(concurrency_key="k", concurrency_limit=limit) for _ in range(7)]

    running = db.claims(100)
    assert [claim.job_id for claim in running] == jobs[:limit]
    db.complete(running[0])
    assert claim_all(db) == jobs[limit : limit + 1]


def test_a_job_is_found_by_its_key_however_it_came(db):
    """Whatever inserts a job computes the number by which the jobs of a key are found; null without a key."""
    db.enqueue()
    db.enqueue(concurrency_key="a", tenant="t")
    db.enqueue_many(payloads=[{}, {}], concurrency_key="b")
    db.enqueue_many(payloads=[{}, {}], concurrency_keys=["e", None], tenant="t")
    db.workflow(
        {"name": "first", "concurrency_key": "c"},
        {"name": "then", "after": ["first"], "concurrency_key": "c"},
    )
    back = db.enqueue(concurrency_key="d")
    db.cancel(back)
    db.requeue(back)

    found = db.run(
        "select concurrency_key, concurrency_hash is not distinct from"
        " hashtextextended(tenant || E'\\x1f' || concurrency_key, 0) as fits from onceward.job_private"
    )
    assert {row.concurrency_key for row in found} == {None, "a", "b", "c", "d", "e"}
    assert [row for row in found if not row.fits] == []


def test_a_waiting_job_is_blocked_and_outside_the_claim_index(db):
    db.running(concurrency_key="k")
    job = db.enqueue(concurrency_key="k")

    assert db.claims(10) == []
    assert db.state(job) == "blocked"
    assert db.value("select ready_seq from onceward.job_private where id = %s", job) is None


def test_keys_do_not_hinder_each_other_nor_jobs_without_one(db):
    db.running(concurrency_key="a")
    db.enqueue(concurrency_key="a")
    free = {db.enqueue(concurrency_key="b"), db.enqueue()}

    assert set(claim_all(db)) == free


def test_the_same_key_of_two_tenants_is_two_keys(db):
    jobs = {db.enqueue(concurrency_key="k", tenant=tenant) for tenant in ("a", "b")}

    assert set(claim_all(db)) == jobs


def test_a_key_is_shared_by_tasks_and_lanes(db):
    db.answer("add_lane", name="mail")
    db.running("ocr", concurrency_key="k")
    db.enqueue("mail", concurrency_key="k", lane="mail")

    assert db.claims(10, lanes=["mail", "default"]) == []


def test_higher_priority_goes_first_among_those_that_wait(db):
    running = db.running(concurrency_key="k")
    low = db.enqueue(concurrency_key="k", priority=1)
    high = db.enqueue(concurrency_key="k", priority=9)
    db.promote()
    db.complete(running)

    assert claim_all(db) == [high]
    assert db.state(low) == "blocked"


ENDS = {
    "complete": lambda db, claim: db.complete(claim),
    "exchange": lambda db, claim: db.exchange([claim]),
    "fail": lambda db, claim: db.fail(claim, retry_after="1 h"),
    "fail for good": lambda db, claim: db.fail(claim, permanent=True),
    "snooze": lambda db, claim: db.snooze(claim, "1 h"),
    "cancel": lambda db, claim: db.cancel(claim.job_id, epoch=claim.epoch),
    "cancel and fail": lambda db, claim: (db.cancel(claim.job_id), db.fail(claim)),
    "cancel and snooze": lambda db, claim: (db.cancel(claim.job_id), db.snooze(claim)),
    "cancel and hand back": lambda db, claim: (
        db.cancel(claim.job_id),
        db.call("release", worker_id=db.worker()),
    ),
    "cancel and die": lambda db, claim: (db.cancel(claim.job_id), db.lose("a")),
}


@pytest.mark.parametrize("end", list(ENDS.values()), ids=list(ENDS))
def test_however_a_job_stops_running_the_next_of_its_key_is_ready_in_the_same_statement(db, end):
    running = db.running(concurrency_key="k")
    waiting = db.enqueue(concurrency_key="k")
    db.promote()
    assert db.state(waiting) == "blocked"

    end(db, running)

    assert db.state(waiting) == "ready"


def test_a_dead_worker_whose_job_gave_up_lets_the_next_of_its_key_in(db):
    db.running(concurrency_key="k", max_attempts=1)
    waiting = db.enqueue(concurrency_key="k")
    db.promote()

    db.lose("a")

    assert db.state(waiting) == "ready"


@pytest.mark.parametrize("how", ["rescue", "release"])
def test_a_job_that_is_ready_again_keeps_its_place(db, how):
    running = db.running(concurrency_key="k")
    waiting = db.enqueue(concurrency_key="k")
    db.promote()

    if how == "rescue":
        db.lose("a")
    else:
        db.call("release", worker_id=db.worker("a"))
    db.promote()

    assert (db.state(running.job_id), db.state(waiting)) == ("ready", "blocked")
    assert claim_all(db, worker="b") == [running.job_id]


def test_a_retry_waits_for_its_key_like_any_other(db):
    retried = db.running(concurrency_key="k", retry={"waits": [60]})
    waiting = db.enqueue(concurrency_key="k")
    db.promote()
    db.fail(retried)
    second = db.claim()
    assert second.job_id == waiting
    db.clock.advance("60 s")

    assert db.claims(10) == []
    assert db.state(retried.job_id) == "blocked"
    db.complete(second)
    assert claim_all(db) == [retried.job_id]


def test_a_scheduled_job_holds_no_place_before_its_time(db):
    db.enqueue(concurrency_key="k", run_at=db.now() + timedelta(hours=1))
    now = db.enqueue(concurrency_key="k")

    assert claim_all(db) == [now]


def test_the_limit_of_the_next_in_line_counts_when_jobs_name_different_ones(db):
    db.enqueue(concurrency_key="k", concurrency_limit=1)
    db.enqueue(concurrency_key="k", concurrency_limit=3)
    db.enqueue(concurrency_key="k", concurrency_limit=3)

    assert len(db.claims(10)) == 1
    assert db.promote().promoted == 0
    third = db.enqueue(concurrency_key="k", concurrency_limit=3, priority=5)
    # Two more places by the word of the one in front.
    assert third in claim_all(db)


def test_cancelling_a_blocked_job_leaves_the_others_waiting_for_the_holder(db):
    running = db.running(concurrency_key="k")
    gone, waiting = (db.enqueue(concurrency_key="k") for _ in range(2))
    db.promote()
    db.cancel(gone)
    db.promote()

    assert db.state(waiting) == "blocked"
    db.complete(running)
    assert claim_all(db) == [waiting]


def test_a_finish_in_a_repeatable_read_transaction_lets_the_next_in_with_the_next_promote(db):
    running = db.running(concurrency_key="k")
    waiting = db.enqueue(concurrency_key="k")
    db.promote()
    conn = db.connect(autocommit=False)
    conn.execute("set transaction isolation level repeatable read")
    db.on(conn).complete(running)
    conn.commit()
    assert db.state(waiting) == "blocked"

    db.promote()

    assert db.state(waiting) == "ready"


def test_many_keys_are_served_together(db):
    for n in range(50):
        db.enqueue_many("ocr", [{}] * 3, concurrency_key=f"user-{n}")

    assert db.promote().promoted == 50
    claims = db.claims(100)
    assert len(claims) == 50
    db.exchange(claims)
    assert len(db.claims(100)) == 50


def test_a_finish_finds_the_next_of_its_key_by_the_index_also_when_few_jobs_were_there_at_first(db):
    """A session plans this once, perhaps while the table is small; it must not read the whole table ever after."""
    running = db.running(concurrency_key="k")
    waiting = db.enqueue(concurrency_key="k")
    db.run("vacuum analyze onceward.job_private")
    scans = "select pg_stat_get_xact_numscans('onceward.job_private'::regclass)"
    with db.conn.transaction():
        db.run("discard plans")
        before = db.value(scans)
        db.complete(running)
        after = db.value(scans)

    assert db.state(waiting) == "ready"
    assert after == before
