"""What happens to slots that were missed, and while the job before has not ended: exact to the slot."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest

from tests.support.ticks import MIDNIGHT, add, sums, tick, tick_all, ticks


@pytest.fixture
def db(db):
    db.clock.pin(MIDNIGHT)
    return db


def jobs(db):
    return db.value("select count(*) from onceward.jobs")


# ---------------------------------------------------------------- downtime


@pytest.mark.parametrize(
    ("spec", "options", "fired", "missed"),
    [
        ("1 minute", {"missed": "none"}, 1, 1439),
        ("1 hour", {"missed": "none"}, 1, 23),
        ("30 * * * *", {"missed": "none"}, 0, 24),
        ("30 * * * *", {"missed": "none", "grace": "31 min"}, 1, 23),
        ("1 minute", {"missed": "latest"}, 1, 1439),
        ("30 * * * *", {"missed": "latest"}, 1, 23),
        ("07:00", {"missed": "latest"}, 1, 0),
        ("07:00", {"missed": "none"}, 0, 1),
        ("1 minute", {"missed": "all", "catch_up": 1440}, 1440, 0),
        ("1 minute", {"missed": "all"}, 1000, 440),
        ("30 * * * *", {"missed": "all"}, 24, 0),
        ("30 * * * *", {"missed": "all", "catch_up": 10}, 10, 14),
        ("1 second", {"missed": "all", "catch_up": 600}, 600, 85_800),
        ("*/5 1-3 * * *", {"missed": "all"}, 36, 0),
    ],
)
def test_after_a_day_of_downtime_each_policy_is_exact(db, spec, options, fired, missed):
    add(db, spec=spec, overlap="allow", **options)
    db.clock.advance("1 day")

    assert tick_all(db) == fired
    assert jobs(db) == fired
    assert sums(db) == {name: count for name, count in (("fired", fired), ("missed", missed)) if count}
    # Those that were missed are one row.
    assert db.value("select count(*) from onceward.ticks where outcome = 'missed'") == (missed > 0)
    assert tick(db).fired == 0


def test_the_latest_slot_is_the_one_that_fires(db):
    add(db, spec="30 * * * *", missed="latest")
    db.clock.advance("149 min")
    tick(db)

    assert ticks(db) == [
        ("2026-06-15T00:30:00+00:00", "missed", 1),
        ("2026-06-15T01:30:00+00:00", "fired", 1),
    ]


def test_caught_up_slots_fire_in_order_each_with_its_own_name(db):
    add(db, spec="30 * * * *", missed="all", catch_up=3, overlap="allow")
    db.clock.advance("5 h")
    tick(db)

    slots = db.run("select headers ->> 'slot' as slot, run_at from onceward.jobs order by id")
    assert [row.slot[11:16] for row in slots] == ["02:30", "03:30", "04:30"]
    assert [row.run_at.hour for row in slots] == [2, 3, 4]


def test_a_catch_up_that_is_long_takes_several_calls_and_loses_nothing(db):
    add(db, spec="1 second", missed="all", catch_up=700, overlap="allow")
    db.clock.advance("900 s")

    calls = []
    while (row := tick(db)).fired:
        calls.append(row.fired)

    assert max(calls) < 700
    assert (sum(calls), sums(db)) == (700, {"fired": 700, "missed": 200})
    assert db.value("select count(distinct headers ->> 'slot') from onceward.jobs") == 700


def test_a_late_tick_fires_at_once_and_the_next_one_keeps_its_time(db):
    add(db, spec="1 hour")
    db.clock.advance("75 min")

    assert tick(db).next_at == MIDNIGHT + timedelta(hours=2)
    assert db.value("select run_at from onceward.jobs") == MIDNIGHT + timedelta(hours=1)


def test_a_year_of_downtime_is_counted_in_a_moment(db):
    add(db, spec="1 second", name="seconds", overlap="allow")
    add(db, spec="0 * * * *", name="hours", zone="America/Los_Angeles", overlap="allow")
    db.run("set statement_timeout = '20s'")
    db.clock.advance("365 days")

    row = tick(db)

    assert (row.fired, row.missed) == (2, 365 * 86400 - 1 + 365 * 24 - 1)


# ---------------------------------------------------------------- overlap


def advance_and_tick(db):
    db.clock.advance("1 min")
    return tick(db)


def test_skip_while_the_job_before_has_not_ended(db):
    add(db, overlap="skip")
    assert advance_and_tick(db).fired == 1

    assert advance_and_tick(db).skipped == 1
    claim = db.claim()
    assert advance_and_tick(db).skipped == 1
    db.complete(claim)

    assert advance_and_tick(db).fired == 1
    assert [outcome for (outcome,) in ticks(db, "outcome")] == ["fired", "skipped", "skipped", "fired"]
    assert f"job {claim.job_id} has not ended" in db.value(
        "select reason from onceward.ticks where outcome = 'skipped' limit 1"
    )


@pytest.mark.parametrize("situation", ["scheduled", "blocked"])
def test_skip_counts_jobs_that_wait(db, situation):
    add(
        db,
        overlap="queue" if situation == "blocked" else "allow",
        jitter="1 h" if situation == "scheduled" else "0",
    )
    advance_and_tick(db)
    assert set(db.states().values()) == {situation}

    add(db, overlap="skip")

    assert advance_and_tick(db).skipped == 1


def test_a_dead_letter_does_not_hold_the_schedule_up(db):
    add(db, overlap="skip")
    advance_and_tick(db)
    db.fail(db.claim(), permanent=True)

    assert advance_and_tick(db).fired == 1


def test_skip_counts_a_job_that_somebody_started_by_hand(db):
    add(db, overlap="skip")
    db.call("run_schedule_now", name="report")

    assert advance_and_tick(db).skipped == 1


def test_queue_runs_one_after_the_other(db):
    add(db, overlap="queue")
    for _ in range(3):
        assert advance_and_tick(db).fired == 1
    db.promote()

    assert Counter(db.states().values()) == {"ready": 1, "blocked": 2}
    claim = db.claim()
    assert claim.job_id == db.value("select job_id from onceward.ticks order by fire_at limit 1")
    db.complete(claim)
    assert Counter(db.states().values()) == {"done": 1, "ready": 1, "blocked": 1}


def test_allow_lets_them_run_beside_each_other(db):
    add(db, overlap="allow")
    for _ in range(3):
        advance_and_tick(db)

    assert len(db.claims(10)) == 3
