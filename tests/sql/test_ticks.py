"""Ticks: each slot once, whoever ticks; what is missed, skipped or paused, to the slot."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest

from tests.support.engine import refused
from tests.support.races import Rival, deadlocks, together, transaction
from tests.support.ticks import MIDNIGHT, add, tick, ticks


@pytest.fixture
def db(db):
    db.clock.pin(MIDNIGHT)
    return db


def jobs(db):
    return db.value("select count(*) from onceward.jobs")


def advance_and_tick(db):
    db.clock.advance("1 min")
    return tick(db)


def test_nothing_is_due_before_its_moment_and_the_caller_hears_when(db):
    add(db)
    db.clock.advance("59 s")

    row = tick(db)

    assert (row.fired, row.missed, row.skipped) == (0, 0, 0)
    assert (row.next_at, row.next_in) == (MIDNIGHT + timedelta(minutes=1), timedelta(seconds=1))


def test_without_schedules_there_is_no_next_moment(db):
    assert tick(db) == (0, 0, 0, None, None)


def test_a_tick_enqueues_the_job_and_records_the_slot(db):
    add(
        db,
        payload={"page": 1},
        priority=7,
        max_attempts=3,
        timeout="5 min",
        retry={"base": 1},
        expires_in="1 h",
        tenant="acme",
    )
    db.clock.advance("1 min")

    assert tick(db).fired == 1

    (found,) = db.run("select * from onceward.ticks")
    assert (found.slot, found.outcome, found.fire_at, found.tenant) == (
        "2026-06-15T00:01:00Z", "fired", MIDNIGHT + timedelta(minutes=1), "acme",
    )  # fmt: skip
    job = db.job(found.job_id)
    assert (job.tenant, job.task, job.payload, job.priority) == ("acme", "report", {"page": 1}, 7)
    assert (job.max_attempts, job.timeout, job.retry, job.state) == (
        3,
        timedelta(minutes=5),
        {"base": 1},
        "ready",
    )
    assert job.expires_at == db.now() + timedelta(hours=1)
    assert job.headers == {"schedule": "report", "slot": found.slot}
    assert db.value("select last_job_id from onceward.schedules") == job.id


def test_a_slot_fires_once_however_often_somebody_ticks(db):
    add(db, overlap="allow")
    db.clock.advance("1 min")

    assert [tick(db).fired for _ in range(3)] == [1, 0, 0]
    assert jobs(db) == 1


def test_a_slot_that_was_recorded_is_not_fired_again(db):
    """Also if the next moment went back: another zone names the same local time, say."""
    add(db, spec="07:00", zone="America/New_York", overlap="allow")
    db.clock.pin(MIDNIGHT + timedelta(hours=11))
    assert tick(db).fired == 1

    add(db, spec="07:00", zone="America/Los_Angeles", overlap="allow")
    db.clock.pin(MIDNIGHT + timedelta(hours=14))

    assert tick(db).fired == 0
    assert jobs(db) == 1


def test_a_tick_that_is_rolled_back_leaves_neither_job_nor_record_and_fires_later(db):
    add(db)
    db.clock.advance("1 min")
    with transaction(db) as other:
        assert tick(other).fired == 1
        other.conn.rollback()

    assert jobs(db) == 0
    assert ticks(db) == []
    assert tick(db).fired == 1


@pytest.mark.race
def test_two_at_once_fire_once_and_nobody_waits(db):
    add(db)
    db.clock.advance("1 min")
    with transaction(db) as first:
        assert tick(first).fired == 1
        # What is locked is somebody else's: not even its moment is waited for.
        assert tick(db) == (0, 0, 0, None, None)
        first.conn.commit()

    assert jobs(db) == 1


@pytest.mark.race
@pytest.mark.slow
def test_twenty_schedulers_fire_each_of_a_hundred_slots_once(db):
    for number in range(20):
        add(db, name=f"s{number}", overlap="allow")
    for _ in range(5):
        db.clock.advance("1 min")
        fired = together(db, [lambda engine: tick(engine).fired] * 20)
        assert all(isinstance(count, int) for count in fired), fired
        tick(db)

    assert Counter(ticks(db, "outcome")) == {("fired",): 100}
    assert jobs(db) == 100
    assert deadlocks(db) == 0


def test_one_call_takes_a_bounded_number_of_schedules_and_says_that_there_are_more(db):
    for number in range(5):
        add(db, name=f"s{number}")
    db.clock.advance("1 min")

    first = tick(db, limit=2)

    assert (first.fired, first.next_in) == (2, timedelta(0))
    assert [tick(db, limit=2).fired for _ in range(3)] == [2, 1, 0]


# ---------------------------------------------------------------- pause, run now


def test_what_falls_into_a_pause_is_skipped_and_not_caught_up(db):
    add(db, missed="all", overlap="allow")
    db.call("pause_schedule", name="report")
    db.clock.advance("10 min")
    assert tick(db) == (0, 0, 0, None, None)

    db.call("resume_schedule", name="report")

    assert tick(db).fired == 0
    assert ticks(db, "slot", "outcome", "slots", "reason") == [
        ("2026-06-15T00:01:00Z", "skipped", 10, "paused")
    ]
    db.clock.advance("1 min")
    assert tick(db).fired == 1


def test_a_pause_between_two_moments_skips_nothing(db):
    add(db)
    db.call("pause_schedule", name="report")
    db.call("resume_schedule", name="report")
    db.clock.advance("1 min")

    assert tick(db).fired == 1


def test_run_now_is_beside_the_moments_and_works_while_paused(db):
    add(db, payload={"n": 1})
    db.call("pause_schedule", name="report")

    first = db.answer("run_schedule_now", name="report")
    second = db.answer("run_schedule_now", name="report")

    assert first != second
    assert db.job(first).payload == {"n": 1}
    assert ticks(db, "outcome") == [("fired",), ("fired",)]
    assert "run by" in db.value("select reason from onceward.ticks limit 1")


def test_a_session_that_acts_for_a_tenant_ticks_for_all_and_stays_what_it_was(db):
    add(db, tenant="acme")
    add(db, tenant="globex")
    db.clock.advance("1 min")
    other = db.on(db.connect(role="onceward_worker", tenant="acme", autocommit=False))

    assert tick(other).fired == 2
    assert other.value("select onceward.current_tenant()") == "acme"
    other.conn.commit()
    assert {row.tenant for row in db.run("select tenant from onceward.jobs")} == {"acme", "globex"}


# ---------------------------------------------------------------- jitter, trouble, lifetime


def test_jitter_is_the_same_for_a_slot_whoever_computes_it_and_differs_between_slots(db):
    add(db, jitter="1 h", overlap="allow")
    with transaction(db) as other:
        other.clock.advance("1 min")
        tick(other)
        first = other.value("select run_at from onceward.jobs")
        other.conn.rollback()
    for _ in range(5):
        tick(db)
        db.clock.advance("1 min")

    delays = [row.run_at - row.fire_at for row in db.run(
        "select j.run_at, t.fire_at from onceward.ticks as t join onceward.jobs as j on j.id = t.job_id order by t.fire_at")]  # fmt: skip
    assert first - (MIDNIGHT + timedelta(minutes=1)) == delays[0]
    assert len(set(delays)) == len(delays) == 5
    assert all(timedelta(0) <= delay < timedelta(hours=1) for delay in delays)


def test_a_schedule_whose_job_is_refused_does_not_stop_the_others(db):
    db.call("add_lane", name="small")
    add(db, name="a-bad", lane="small", payload={"text": "x" * 5000})
    add(db, name="b-good")
    db.call("add_lane", name="small", max_payload_bytes=1024)

    assert advance_and_tick(db).fired == 1
    assert dict(ticks(db, "schedule", "outcome")) == {"a-bad": "failed", "b-good": "fired"}
    assert "payload must be at most 1024 bytes" in db.value(
        "select reason from onceward.ticks where outcome = 'failed'"
    )
    with refused("OW008", "payload must be at most 1024 bytes"):
        db.call("run_schedule_now", name="a-bad")


def test_old_ticks_are_tidied_away(db):
    add(db)
    advance_and_tick(db)
    db.clock.advance("29 days")
    db.call("pause_schedule", name="report")
    db.call("retain", kind="ticks")
    assert len(ticks(db)) == 1
    db.clock.advance("2 days")

    db.call("retain", kind="ticks")

    assert ticks(db) == []


@pytest.mark.race
def test_changing_a_schedule_waits_for_the_tick_and_the_tick_for_nobody(db):
    add(db)
    db.clock.advance("1 min")
    with transaction(db) as ticking:
        tick(ticking)
        rival = Rival(db, lambda engine: engine.answer("pause_schedule", name="report")).blocked()
        ticking.conn.commit()
    assert rival.answer() is True
    with transaction(db) as changing:
        changing.call("resume_schedule", name="report")
        db.clock.advance("1 min")
        assert tick(db).fired == 0
        changing.conn.commit()
    assert tick(db).skipped == 1
