"""Retention of the audit log: whole days, through the same guard as drop_audit; what stays, and why."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.support.audit import fill, kinds, seal, verified
from tests.support.engine import Engine
from tests.support.races import transaction


@pytest.fixture(scope="module")
def sixty_days(onceward_server):
    """Partitions for the days that these tests let pass, which take most of a second."""
    with onceward_server.cloned() as template:
        with Engine(template) as engine:
            engine.call("ensure_partitions", days_ahead=60)
        yield template


@pytest.fixture
def db(onceward_server, sixty_days):
    """Kept for 30 days, at a time that stands still."""
    with onceward_server.cloned(sixty_days) as database, Engine(database) as engine:
        engine.clock.pin()
        engine.call("set_retention", kind="audit", keep="30 days")
        yield engine


def days(db, count: int = 3) -> None:
    for _ in range(count):
        fill(db, 2)
        db.clock.advance(timedelta(days=1))


def checkpoint(db) -> None:
    db.run(
        "select onceward.record_checkpoint(number, head, 'safe') from onceward.seals order by number desc limit 1"
    )


def retain(db, **options):
    (row,) = db.call("retain", kind="audit", **options)
    return row


def gone(db, **options):
    row = retain(db, **options)
    # Without the empty days before the first entry.
    return row.row_count, row.note


def day(db, number: int) -> str:
    """The day of the first entries, and so on."""
    first = db.value("select (min(at) at time zone 'UTC')::date from onceward.audit_log")
    return str(first + timedelta(days=number))


def test_the_log_is_kept_for_ever_until_somebody_says_otherwise(db):
    db.call("set_retention", kind="audit", keep=None)
    days(db)
    db.clock.advance("50 days")

    assert gone(db) == (0, "kept for ever")
    with db.refused("OW008", "must be between 30 days"):
        db.call("set_retention", kind="audit", keep="29 days")


def test_days_that_are_sealed_and_exported_go_when_their_time_has_come(db):
    days(db)
    seal(db)
    checkpoint(db)
    db.clock.advance("29 days")
    assert gone(db)[0] > 0
    # Two days, and the setting that was made on the first; the third is younger.
    assert db.value("select count(*) from onceward.audit_log where kind = 'note'") == 2
    db.clock.advance("1 day")

    assert gone(db) == (2, None)

    assert kinds(db) == ["audit.checkpoint", "audit.dropped", "audit.dropped"]
    assert db.value("select count(*) from onceward.removals where kind = 'audit'") == 2
    seal(db)
    assert verified(db).findings == []


def test_a_day_that_is_not_sealed_stays_and_the_note_says_so(db):
    days(db)
    first = day(db, 0)
    db.clock.advance("40 days")

    assert gone(db) == (0, f"{first} stays: some of it is not sealed")
    seal(db)
    assert gone(db) == (0, f"{first} stays: no checkpoint that covers it was exported")
    checkpoint(db)
    assert gone(db)[1] is None
    assert db.one("select last_note from onceward.retention where kind = 'audit'").last_note is None


def test_days_go_as_far_as_a_checkpoint_reaches(db):
    days(db, 2)
    seal(db)
    checkpoint(db)
    third = day(db, 2)
    days(db, 2)
    seal(db)
    db.clock.advance("40 days")

    rows, note = gone(db)

    assert note == f"{third} stays: no checkpoint that covers it was exported"
    assert rows > 0
    assert db.value("select count(*) from onceward.audit_log where kind = 'note'") == 4


def test_a_day_with_entries_of_a_tenant_that_is_held_stays_also_for_drop_audit(db):
    days(db)
    seal(db)
    checkpoint(db)
    first = day(db, 0)
    db.call("hold_tenant", tenant="acme", reason="case 7")
    db.clock.advance("40 days")

    assert gone(db) == (0, f'{first} stays: it has entries of tenant "acme", which is under a legal hold')
    with db.refused("OW036", "under a legal hold", "when the hold is released"):
        db.run("select onceward.drop_audit((onceward.now() at time zone 'UTC')::date - 40)")
    db.call("release_tenant", tenant="acme", reason="settled")
    assert gone(db)[0] > 0


def test_a_dry_run_says_what_the_run_then_does_and_removes_nothing(db):
    days(db)
    seal(db)
    checkpoint(db)
    db.clock.advance("40 days")
    before = kinds(db)

    dry = retain(db, dry_run=True)

    assert kinds(db) == before
    assert retain(db)[:5] == dry[:5]


def test_whoever_reads_the_log_makes_it_wait_and_nobody_else(db):
    days(db)
    seal(db)
    checkpoint(db)
    db.clock.advance("40 days")
    with transaction(db) as reader:
        reader.run("select count(*) from onceward.audit_log")
        db.run(
            "update onceward.retention_private set next_at = onceward.now() + interval '1 day' where kind <> 'audit'"
        )
        (row,) = db.call("retain_due")
        assert (row.row_count, row.partitions) == (0, [])
        assert "locked by somebody" in row.note
        db.call("record_event", kind="note")
    db.clock.advance("5 minutes")
    (row,) = db.call("retain_due")
    assert row.row_count > 0
