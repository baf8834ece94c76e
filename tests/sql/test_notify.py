"""NOTIFY is a hint: sent only when somebody may be asleep, at most once per lane and statement."""

from __future__ import annotations

from datetime import timedelta

import pytest
from psycopg.types.json import Jsonb


@pytest.fixture
def heard(db):
    """What a listener hears of a call."""
    listener = db.connect()
    listener.execute("listen onceward")

    def hear(call):
        call()
        # Notifications come with the reply to the next query: no waiting for what may not come.
        listener.execute("select 1")
        return sorted(notice.payload for notice in listener.notifies(timeout=0))

    return hear


@pytest.fixture
def asleep(db):
    db.answer("declare_lanes", names=["mail", "ocr"])
    db.worker("a", lanes=["default", "mail"])
    db.exchange(lanes=["default", "mail"], max=1, sleep=True)


def test_nobody_is_woken_when_nobody_sleeps(db, heard):
    db.worker("a")

    assert heard(db.enqueue) == []


def test_an_enqueue_wakes_the_lane(db, asleep, heard):
    assert heard(lambda: db.enqueue(lane="mail")) == ["mail"]


def test_a_lane_that_no_sleeper_serves_is_not_woken(db, asleep, heard):
    assert heard(lambda: db.enqueue(lane="ocr")) == []


def test_many_jobs_wake_a_lane_once(db, asleep, heard):
    assert heard(lambda: db.enqueue_many("ocr", [{}] * 100)) == ["default"]


@pytest.mark.parametrize("keys", [["a", "b", None], ["a", "b", "c"], [None, None, None]])
def test_many_jobs_with_keys_of_their_own_wake_a_lane_once(db, asleep, heard, keys):
    assert heard(lambda: db.enqueue_many("ocr", [{}] * 3, concurrency_keys=keys)) == ["default"]


def test_a_scheduled_job_wakes_nobody_until_it_is_due(db, asleep, heard):
    assert heard(lambda: db.enqueue(run_at=db.now() + timedelta(seconds=30))) == []
    db.clock.advance("30 s")
    assert heard(db.promote) == ["default"]


def test_a_blocked_job_wakes_somebody_to_admit_it(db, asleep, heard):
    assert heard(lambda: db.enqueue(concurrency_key="k")) == ["default"]


def test_jobs_of_two_lanes_that_become_due_wake_both(db, asleep, heard):
    for lane in ("default", "mail"):
        db.enqueue_many("ocr", [{}] * 3, lane=lane, run_at=db.now() + timedelta(seconds=30))
    db.clock.advance("30 s")

    assert heard(db.promote) == ["default", "mail"]


def expire(db):
    db.running(worker="b")
    db.run("update onceward.worker_private set expires_at = onceward.now() where id = %s", db.worker("b"))


def wait_for_a_key(db):
    claim = db.running(worker="b", concurrency_key="k")
    db.enqueue(concurrency_key="k")
    db.promote()
    return claim


WAKING = {
    "requeue": (lambda db: db.dead_letter(worker="b"), lambda db, job: db.requeue(job)),
    "release": (
        lambda db: db.running(worker="b"),
        lambda db, _: db.call("release", worker_id=db.worker("b")),
    ),
    "rescue": (expire, lambda db, _: db.rescue()),
    "resume": (
        lambda db: db.answer("pause_lane", name="default"),
        lambda db, _: db.answer("resume_lane", name="default"),
    ),
    "admit": (wait_for_a_key, lambda db, claim: db.complete(claim)),
    "run now": (
        lambda db: db.enqueue(run_at=db.now() + timedelta(hours=1)),
        lambda db, job: db.answer("run_now", job_id=job),
    ),
}


@pytest.mark.parametrize(("prepare", "call"), list(WAKING.values()), ids=list(WAKING))
def test_whatever_makes_a_job_ready_wakes_its_lane(db, asleep, heard, prepare, call):
    given = prepare(db)
    # What the preparation made heard does not count.
    heard(lambda: None)

    assert heard(lambda: call(db, given)) == ["default"]


@pytest.mark.parametrize("function", ["release", "retire_worker"])
def test_workers_under_load_are_told_that_jobs_have_returned_behind_their_floors(db, heard, function):
    db.worker("busy")
    for _ in range(3):
        db.running(worker="leaving")

    assert heard(lambda: db.call(function, worker_id=db.worker("leaving"))) == ["default returned"]


def test_nobody_is_told_that_jobs_have_returned_when_nobody_is_left(db, heard):
    db.running(worker="last")

    assert heard(lambda: db.call("retire_worker", worker_id=db.worker("last"))) == []


def test_a_rolled_back_enqueue_wakes_nobody(db, asleep, heard):
    conn = db.connect(autocommit=False)

    def roll_back():
        db.on(conn).enqueue()
        conn.rollback()

    assert heard(roll_back) == []


def test_a_worker_that_does_not_renew_its_sleep_is_not_woken_any_more(db, asleep, heard):
    db.clock.advance("1 min")

    assert heard(db.enqueue) == []


def test_a_retired_worker_is_not_woken(db, asleep, heard):
    db.call("retire_worker", worker_id=db.worker("a"))

    assert heard(db.enqueue) == []


@pytest.mark.parametrize(("lane", "said"), [("mail", ["mail"]), ("ocr", [])])
def test_the_short_form_wakes_whoever_sleeps_in_its_lane(db, asleep, heard, lane, said):
    assert heard(lambda: db.answer("enqueue_plain", task="ocr", payload=Jsonb({}), lane=lane)) == said
