"""Schedules as rows: created, changed, declared by code, paused, dropped."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from psycopg.types.json import Jsonb

from tests.support.engine import refused

NOON = datetime(2026, 6, 15, 12, 0, tzinfo=UTC)  # a Monday


@pytest.fixture
def db(db):
    db.clock.pin(NOON)
    return db


def add(db, name="report", spec="0 7 * * *", **options):
    (row,) = db.call("add_schedule", name=name, task="report", spec=spec, **options)
    return row


def schedule(db, name="report"):
    return db.one("select * from onceward.schedules where name = %s", name)


# ---------------------------------------------------------------- rows


def test_a_schedule_starts_with_its_next_moment(db):
    row = add(db, spec="07:00", zone="America/Los_Angeles")

    assert (row.outcome, row.next_slot) == ("created", "2026-06-15T07:00:00")
    assert row.next_at == NOON + timedelta(hours=2)
    found = schedule(db)
    assert (found.state, found.next_at, found.zone, found.source, found.version) == (
        "active", row.next_at, "America/Los_Angeles", "person", 1,
    )  # fmt: skip


def test_the_same_again_changes_nothing_and_something_else_does(db):
    add(db)

    assert add(db).outcome == "unchanged"
    assert add(db, priority=5).outcome == "changed"
    assert (schedule(db).priority, schedule(db).version) == (5, 2)


def test_a_change_of_options_keeps_the_next_moment_and_a_change_of_the_spec_does_not(db):
    add(db, spec="1 hour")
    db.clock.advance("90 min")

    assert add(db, spec="1 hour", priority=5).next_at == NOON + timedelta(hours=1)
    assert add(db, spec="2 hours").next_at == NOON + timedelta(hours=2)


@pytest.mark.parametrize(
    ("options", "fragment"),
    [
        ({"name": "a b"}, "name of a schedule"),
        ({"missed": "some"}, "missed must be none, latest or all"),
        ({"overlap": "maybe"}, "overlap must be skip, queue or allow"),
        ({"catch_up": 0}, "catch_up"),
        ({"grace": "-1 s"}, "grace"),
        ({"jitter": "2 days"}, "jitter"),
        ({"priority": 5000}, "priority"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"timeout": "0 s"}, "timeout"),
        ({"expires_in": "0 s"}, "expires_in"),
        ({"retry": {"wait": 1}}, "retry.wait"),
        ({"payload": None}, "payload must be a JSON object"),
        ({"payload": Jsonb([1])}, "payload must be a JSON object"),
        ({"tenant": "*"}, "tenant"),
    ],
)
def test_bad_options_are_refused(db, options, fragment):
    with db.refused("OW008", fragment):
        add(db, **options)


def test_a_lane_that_does_not_exist_and_a_payload_it_does_not_take_are_refused(db):
    with db.refused("OW002", 'lane "nowhere" does not exist'):
        add(db, lane="nowhere")
    with db.refused("OW003", "payload must be at most"):
        add(db, payload={"text": "x" * 300_000})


def test_names_belong_to_a_tenant(db):
    assert add(db, tenant="acme").outcome == "created"
    assert add(db, tenant="globex").outcome == "created"


# ---------------------------------------------------------------- declared by code


def declare(db, *items, app="shop"):
    rows = db.call("declare_schedules", app=app, schedules=Jsonb(list(items)))
    return {row.name: row.outcome for row in rows}


REPORT = {"name": "report", "task": "report", "spec": "0 7 * * *"}


def test_code_declares_and_declares_again(db):
    assert declare(db, REPORT) == {"report": "created"}
    assert declare(db, REPORT) == {"report": "unchanged"}
    assert declare(db, {**REPORT, "overlap": "queue", "jitter": "5 s"}) == {"report": "changed"}
    assert (schedule(db).source, schedule(db).app, schedule(db).overlap) == ("code", "shop", "queue")


def test_an_unchanged_declaration_locks_nothing(db):
    declare(db, REPORT)
    with db.conn.transaction():
        db.run("select * from onceward.schedule_private for update")
        other = db.on(db.connect())
        other.run("set lock_timeout = '1s'")

        assert declare(other, REPORT) == {"report": "unchanged"}


def test_code_does_not_resume_what_a_person_paused(db):
    declare(db, REPORT)
    db.answer("pause_schedule", name="report", reason="on holiday")

    declare(db, {**REPORT, "spec": "0 8 * * *"})

    assert (schedule(db).state, schedule(db).spec) == ("paused", "0 8 * * *")


def test_code_leaves_alone_what_a_person_has_set(db):
    declare(db, REPORT)
    add(db, spec="0 9 * * *")

    assert declare(db, REPORT) == {"report": "kept"}
    assert (schedule(db).spec, schedule(db).source) == ("0 9 * * *", "person")


def test_what_code_no_longer_declares_goes_on_and_is_shown_as_undeclared(db):
    declare(db, REPORT, {**REPORT, "name": "other"})
    declare(db, {**REPORT, "name": "elsewhere"}, app="second")
    declare(db, REPORT)

    assert (schedule(db, "other").declared, schedule(db, "other").state) == (False, "active")
    assert schedule(db, "elsewhere").declared
    assert declare(db, REPORT, {**REPORT, "name": "other"}) == {"report": "unchanged", "other": "changed"}
    assert schedule(db, "other").declared


def test_a_declaration_is_all_or_nothing_and_names_the_schedule(db):
    with db.refused("OW008", 'schedule "bad": cron field "minute"', "'99'"):
        declare(db, REPORT, {**REPORT, "name": "bad", "spec": "99 * * * *"})
    assert db.run("select * from onceward.schedules") == []


@pytest.mark.parametrize(
    ("item", "fragment"),
    [({"colour": "red"}, "known fields only"), ({"priority": "high"}, "right types"), ({"grace": "soon"}, "right types")],
)  # fmt: skip
def test_a_declaration_with_wrong_fields_is_refused(db, item, fragment):
    with db.refused("OW008", fragment):
        declare(db, {**REPORT, **item})


# ---------------------------------------------------------------- acting on one


def test_an_unknown_schedule_is_named_with_those_that_exist(db):
    add(db)
    for function in ("pause_schedule", "resume_schedule", "run_schedule_now", "drop_schedule"):
        with db.refused(
            "OW020", 'schedule "repotr" of tenant "default" does not exist', "Known schedules: report."
        ):
            db.call(function, name="repotr")


def test_pause_and_resume_say_whether_they_changed_anything(db):
    add(db)

    assert db.answer("pause_schedule", name="report", reason="holiday") is True
    assert db.answer("pause_schedule", name="report") is False
    assert (schedule(db).state, schedule(db).next_at, schedule(db).pause_reason) == (
        "paused",
        None,
        "holiday",
    )
    assert db.answer("resume_schedule", name="report") is True
    assert db.answer("resume_schedule", name="report") is False
    assert schedule(db).next_at is not None


def test_dropping_leaves_jobs_and_ticks(db):
    add(db)
    job = db.answer("run_schedule_now", name="report")

    db.call("drop_schedule", name="report")

    assert db.run("select * from onceward.schedules") == []
    assert db.value("select job_id from onceward.ticks") == job
    assert db.state(job) == "ready"


@pytest.mark.parametrize("function", ["pause_schedule", "resume_schedule", "run_schedule_now"])
def test_an_operator_acts_for_the_tenant_of_the_session_only(db, function):
    add(db, tenant="acme")
    other = db.on(db.connect(role="onceward_operator", tenant="globex"))
    nobody = db.on(db.connect(role="onceward_operator"))

    with refused("OW011"):
        other.call(function, name="report", tenant="acme")
    with refused("OW011", "schedule belongs to another tenant"):
        nobody.call(function, name="report", tenant="acme")


def test_a_producer_neither_changes_nor_drops_the_schedule_of_another_tenant(db):
    add(db, tenant="acme")
    nobody = db.on(db.connect(role="onceward_producer"))

    with refused("OW011", "schedule belongs to another tenant"):
        add(nobody, tenant="acme", spec="1 second")
    with refused("OW011"):
        nobody.call("drop_schedule", name="report", tenant="acme")
    assert schedule(db).spec == "0 7 * * *"
