from __future__ import annotations

import psycopg
import pytest

from tests.support.races import transaction

FINISHED = ["done", "cancelled", "resolved"]


def finish(db, how, **options):
    """A keyed job that has ended this way."""
    match how:
        case "done":
            return db.done(**options)
        case "cancelled":
            job = db.enqueue(**options)
            db.cancel(job)
            return job
        case "resolved":
            job = db.dead_letter(**options)
            db.resolve(job)
            return job


def test_the_same_key_gives_the_same_job(db):
    first = db.enqueued("ocr", {"n": 1}, key="k")
    again = db.enqueued("ocr", {"n": 1}, key="k")

    assert (first.created, again.created) == (True, False)
    assert again.job_id == first.job_id
    assert again.answer == "existing"
    assert len(db.states()) == 1


def test_another_key_another_task_and_another_tenant_are_other_jobs(db):
    jobs = {
        db.enqueue("ocr", key="k"),
        db.enqueue("ocr", key="l"),
        db.enqueue("mail", key="k"),
        db.enqueue("ocr", key="k", tenant="acme"),
    }

    assert len(jobs) == 4


def test_jobs_without_a_key_are_never_the_same(db):
    assert db.enqueue("ocr", {"n": 1}) != db.enqueue("ocr", {"n": 1})


def test_the_same_key_with_a_different_payload_is_refused_and_names_the_holder(db):
    holder = db.enqueue("ocr", {"n": 1}, key="invoice-7")

    with db.refused("OW005", '"invoice-7"', '"ocr"', str(holder)):
        db.enqueue("ocr", {"n": 2}, key="invoice-7")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ('{"a": 1, "b": 2}', '{"b": 2, "a": 1}'),
        ('{"a": [1, 2]}', '{"a":[1,2]}'),
        ('{"a": "ä"}', '{"a": "\\u00e4"}'),
    ],
)
def test_payloads_that_are_the_same_json_do_not_conflict(db, first, second):
    job = db.value("select job_id from onceward.enqueue('ocr', %s::jsonb, p_key => 'k')", first)

    assert db.value("select job_id from onceward.enqueue('ocr', %s::jsonb, p_key => 'k')", second) == job


@pytest.mark.parametrize("state", ["scheduled", "ready", "running", "blocked", "dead_letter"])
def test_a_live_job_keeps_its_key_in_every_state(db, state):
    match state:
        case "scheduled":
            job = db.enqueue(key="k", run_at=db.clock.now().replace(year=db.clock.now().year + 1))
        case "ready":
            job = db.enqueue(key="k")
        case "running":
            job = db.running(key="k").job_id
        case "blocked":
            job = db.enqueue(key="k", concurrency_key="c")
        case "dead_letter":
            job = db.dead_letter(key="k")
    assert db.state(job) == state

    again = db.enqueued(key="k")

    assert (again.job_id, again.created) == (job, False)


@pytest.mark.parametrize("how", FINISHED)
def test_a_live_window_ends_with_the_job(db, how):
    first = finish(db, how, key="k", payload={"n": 1})

    second = db.enqueued(key="k", payload={"n": 2})

    assert second.created
    assert second.job_id != first


@pytest.mark.parametrize("how", FINISHED)
def test_a_window_for_ever_outlives_the_job(db, how):
    job = finish(db, how, key="k", key_window="forever")
    assert db.state(job) == how
    db.clock.advance("3000 days")
    db.answer("tidy")

    again = db.enqueued(key="k", key_window="forever")

    assert (again.job_id, again.created) == (job, False)
    with db.refused("OW005", str(job)):
        db.enqueue(payload={"other": 1}, key="k", key_window="forever")


@pytest.mark.parametrize("how", FINISHED)
def test_an_interval_counts_from_the_enqueue_whatever_becomes_of_the_job(db, how):
    job = finish(db, how, key="k", key_window="24 hours")

    db.clock.advance("23 h 59 min")
    assert db.enqueued(key="k", key_window="24 hours").job_id == job
    db.clock.advance("1 min")
    assert db.enqueued(key="k", key_window="24 hours").created


def test_repeating_a_call_does_not_prolong_the_window(db):
    db.enqueue(key="k", key_window="1 hour")
    db.clock.advance("59 min")
    db.enqueue(key="k", key_window="1 hour")
    db.clock.advance("1 min")

    assert db.enqueued(key="k", key_window="1 hour").created


def test_a_failed_attempt_keeps_the_key(db):
    claim = db.running(key="k")
    db.fail(claim)

    assert db.enqueued(key="k").job_id == claim.job_id


def test_many_jobs_with_keys_tell_which_are_new(db):
    held = db.enqueue("mail", {"n": 2}, key="b")

    rows = db.enqueue_many("mail", [{"n": 1}, {"n": 2}, {"n": 3}], keys=["a", "b", None])

    assert [row.created for row in rows] == [True, False, True]
    assert rows[1].job_id == held
    assert len(db.states()) == 3


def test_a_key_that_is_twice_in_a_batch_is_one_job(db):
    rows = db.enqueue_many("mail", [{"n": 1}, {"n": 1}, {"n": 1}], keys=["a", "a", "a"])

    assert [row.created for row in rows] == [True, False, False]
    assert len({row.job_id for row in rows}) == 1
    assert len(db.states()) == 1


def test_a_conflict_in_a_batch_leaves_none_of_it(db):
    holder = db.enqueue("mail", {"n": 0}, key="b")

    with db.refused("OW005", '"b"', str(holder)):
        db.enqueue_many("mail", [{"n": 1}, {"n": 2}], keys=["a", "b"])
    with db.refused("OW005", '"c"', "twice in this call"):
        db.enqueue_many("mail", [{"n": 1}, {"n": 2}], keys=["c", "c"])


@pytest.mark.parametrize("window", ["live", "1 hour", "forever"])
def test_a_key_that_a_batch_took_knows_its_payload_whatever_becomes_of_the_job(db, window):
    options = {"keys": ["a", "b"], "key_window": window}
    (job, _) = (row.job_id for row in db.enqueue_many("mail", [{"n": 1}, {"n": 2}], **options))

    def check():
        assert db.enqueued("mail", {"n": 1}, key="a", key_window=window).job_id == job
        (row, _) = db.enqueue_many("mail", [{"n": 1}, {"n": 2}], **options)
        assert (row.job_id, row.created) == (job, False)
        for payload in ({"n": 3}, {}):
            with db.refused("OW005", str(job)):
                db.enqueue("mail", payload, key="a", key_window=window)
            with db.refused("OW005", str(job)):
                db.enqueue_many("mail", [payload, {"n": 2}], **options)

    check()
    (claim,) = (claim for claim in db.claims(2) if claim.job_id == job)
    check()
    db.fail(claim, permanent=True)
    assert db.state(job) == "dead_letter"
    check()
    # Whoever repeats the call that made the job sends what was sent then.
    db.requeue(job, payload={"n": 3})
    check()
    db.cancel(job)
    db.requeue(job)
    assert db.enqueued("mail", {"n": 3 if window == "live" else 1}, key="a", key_window=window).job_id == job


def test_an_expired_key_is_taken_again_by_a_batch(db):
    db.enqueue("mail", {"n": 1}, key="a", key_window="1 hour")
    db.clock.advance("1 hour")

    (row,) = db.enqueue_many("mail", [{"n": 2}], keys=["a"], key_window="1 hour")

    assert row.created


def test_a_batch_repeated_after_a_lost_reply_gives_the_same_jobs(db):
    payloads, keys = [{"n": n} for n in range(10)], [f"k{n}" for n in range(10)]

    first = db.enqueue_many("mail", payloads, keys=keys)
    again = db.enqueue_many("mail", payloads, keys=keys)

    assert [row.job_id for row in first] == [row.job_id for row in again]
    assert {row.created for row in again} == {False}


def test_a_cancelled_job_that_is_requeued_takes_its_key_back(db):
    job = finish(db, "cancelled", key="k")

    db.requeue(job)

    assert db.enqueued(key="k").job_id == job
    db.complete(db.claim())
    assert db.enqueued(key="k").created


def test_a_cancelled_job_is_not_requeued_while_another_job_holds_its_key(db):
    job = finish(db, "cancelled", key="k")
    holder = db.enqueue(key="k")

    with db.refused("OW007", str(job), str(holder), '"k"'):
        db.requeue(job)


@pytest.mark.parametrize("how", ["cancelled", "resolved"])
def test_a_requeued_job_whose_key_outlived_it_still_holds_it(db, how):
    job = finish(db, how, key="k", key_window="forever")

    db.requeue(job)

    assert db.enqueued(key="k").job_id == job
    db.complete(db.claim())
    assert db.enqueued(key="k").job_id == job


@pytest.mark.race
@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
def test_a_caller_whose_snapshot_is_older_than_the_key_has_to_repeat_its_transaction(db, isolation):
    with transaction(db) as old:
        old.conn.execute(f"set transaction isolation level {isolation}")
        old.run("select 1 from onceward.job_private")
        job = db.enqueue(key="k")

        with pytest.raises(psycopg.errors.SerializationFailure):
            old.enqueue(key="k")
        old.conn.rollback()
        assert old.enqueue(key="k") == job
