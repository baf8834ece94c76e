"""What a spec means: slots and moments, refusals, changes of the clocks, against two other opinions."""

from __future__ import annotations

from datetime import UTC, datetime

import psycopg
import pytest
from croniter import croniter

from tests.schedules.matrix import EXPRESSIONS, check, zone_folder
from tests.support.engine import Engine

NOON = datetime(2026, 6, 15, 12, 0, tzinfo=UTC)  # a Monday


@pytest.fixture
def db(db):
    db.clock.pin(NOON)
    return db


@pytest.fixture(scope="module")
def specs(onceward_server):
    """One database for all tests that leave nothing behind."""
    with onceward_server.cloned() as database, Engine(database) as engine:
        engine.clock.pin(NOON)
        yield engine


def add(db, name="report", spec="0 7 * * *", **options):
    (row,) = db.call("add_schedule", name=name, task="report", spec=spec, **options)
    return row


def slots(db, spec, zone=None, after=None, count=10):
    return [row.slot for row in db.call("next_ticks", spec=spec, zone=zone, after=after, count=count)]


@pytest.mark.parametrize(
    ("spec", "zone", "expected"),
    [
        ("0 7 * * *", None, ["2026-06-16T07:00:00", "2026-06-17T07:00:00"]),
        ("*/20 * * * *", "Asia/Kolkata", ["2026-06-15T17:40:00+05:30", "2026-06-15T18:00:00+05:30"]),
        ("0 0 1 JAN,jul *", None, ["2026-07-01T00:00:00", "2027-01-01T00:00:00"]),
        ("0 9 * * Mon-Fri", None, ["2026-06-16T09:00:00", "2026-06-17T09:00:00"]),
        ("0 9 * * 5-7", None, ["2026-06-19T09:00:00", "2026-06-20T09:00:00"]),
        ("0 9 * * fri-sun", None, ["2026-06-19T09:00:00", "2026-06-20T09:00:00"]),
        ("0 0 13 * fri", None, ["2026-06-19T00:00:00", "2026-06-26T00:00:00"]),
        ("0 0 */2 * sun", None, ["2026-06-21T00:00:00", "2026-07-05T00:00:00"]),
        ("0 0 29 2 *", None, ["2028-02-29T00:00:00", "2032-02-29T00:00:00"]),
        ("@daily", "America/Los_Angeles", ["2026-06-16T00:00:00", "2026-06-17T00:00:00"]),
        ("07:00 America/Los_Angeles", None, ["2026-06-15T07:00:00", "2026-06-16T07:00:00"]),
        ("7:00,19:30:15 sat,sun", None, ["2026-06-20T07:00:00", "2026-06-20T19:30:15"]),
        ("09:00, 17:30", None, ["2026-06-15T17:30:00", "2026-06-16T09:00:00"]),
        ("7:00 , 19:30:15 sat, sun", None, ["2026-06-20T07:00:00", "2026-06-20T19:30:15"]),
        ("30 seconds", None, ["2026-06-15T12:00:30Z", "2026-06-15T12:01:00Z"]),
        ("every 90 minutes", None, ["2026-06-15T13:30:00Z", "2026-06-15T15:00:00Z"]),
        ("14 days from 2026-01-05T09:00+01:00", None, ["2026-06-22T08:00:00Z", "2026-07-06T08:00:00Z"]),
        ("1 day from 2026-01-05", "Asia/Tokyo", ["2026-06-15T15:00:00Z", "2026-06-16T15:00:00Z"]),
    ],
)
def test_a_spec_means_these_slots(specs, spec, zone, expected):
    assert slots(specs, spec, zone, count=2) == expected


@pytest.mark.parametrize(
    ("spec", "fragments"),
    [
        ("61 * * * *", ['cron field "minute"', "from 0 to 59", "'61'"]),
        ("0 24 * * *", ['cron field "hour"', "'24'"]),
        ("0 0 0 * *", ['cron field "day of month"', "'0'"]),
        ("0 0 * 13 *", ['cron field "month"', "'13'"]),
        ("0 0 * * 8", ['cron field "day of week"', "'8'"]),
        ("0 0 * * foo", ['cron field "day of week"', "sun to sat", "'foo'"]),
        ("0 0 L * *", ['cron field "day of month"', "extensions are not understood"]),
        ("0 0 * * 5#2", ['cron field "day of week"', "'5#2'"]),
        ("0 0 ? * *", ['cron field "day of month"', "'?'"]),
        ("5/15 * * * *", ['cron field "minute"', "Write 5-59/15."]),
        ("0 0 * * mon/2", ['cron field "day of week"', "Write mon-7/2."]),
        ("*/0 * * * *", ['cron field "minute"', "'*/0'"]),
        ("30-10 * * * *", ['cron field "minute"', "goes backwards"]),
        (",1 * * * *", ['cron field "minute"', "''"]),
        ("0 0 31 2 *", ["must name a day that exists"]),
        ("0 0 30 2 *", ["must name a day that exists"]),
        ("0 0 31 4,6,9,11 *", ["must name a day that exists"]),
        ("0 0 * *", ["5 fields (it has 4)"]),
        ("0 0 0 * * *", ["5 fields (it has 6)"]),
        ("tomorrow", ["5 fields (it has 1)", "30 seconds"]),
        ("25:00", ["time of day", "'25:00'"]),
        ("07:00 noday", ['cron field "day of week"']),
        ("07:00 mon tue", ["must be times of day, then weekdays, then a zone"]),
        ("1 month", ["must not have months", "0 7 1 * *"]),
        ("0.5 seconds", ["whole seconds"]),
        ("0 seconds", ["from 1 second to 366 days"]),
        ("400 days", ["from 1 second to 366 days"]),
        ("5 parsecs", ["must be a length of time"]),
        ("2 days from yesterday", ["anchor", "ISO 8601"]),
        ("14 days from 2026-02-30", ["anchor", "2026-02-30", "that exists"]),
        ("14 days from 2026-01-05T25:00Z", ["anchor", "that exists"]),
        ("", ["must be 1 to 500 characters"]),
        ("x" * 501, ["must be 1 to 500 characters"]),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_field_and_the_value(specs, spec, fragments):
    with specs.refused("OW008", *fragments):
        add(specs, spec=spec)
    assert specs.run("select * from onceward.schedules") == []


@pytest.mark.parametrize(
    ("zone", "fragment"),
    [
        ("Mars/Olympus", "that PostgreSQL knows"),
        ("CET", "must be the name of a time zone"),
        ("PST8PDT", "must be the name of a time zone"),
        ("+02", "must be the name of a time zone"),
        # PostgreSQL would take it for a zone three hours west of UTC.
        ("Mars/Base3", "that PostgreSQL knows"),
        ("", "must be the name of a time zone"),
    ],
)
def test_a_zone_has_rules_and_not_only_an_offset(specs, zone, fragment):
    with specs.refused("OW008", "zone", fragment):
        add(specs, zone=zone)


def test_a_zone_is_named_once(db):
    assert add(db, spec="07:00 Asia/Tokyo", zone="Asia/Tokyo").outcome == "created"
    with db.refused("OW008", "zone must be that of the spec (Asia/Tokyo)", "'UTC'"):
        add(db, spec="07:00 Asia/Tokyo", zone="UTC")


def test_a_spec_means_the_same_in_every_session(db):
    specs = ["30 seconds", "14 days from 2026-01-05", "07:00 mon", "*/30 */6 * * *"]
    expected = [slots(db, spec, "Europe/Berlin") for spec in specs]
    for setting in ("timezone = 'Pacific/Apia'", "intervalstyle = 'sql_standard'", "datestyle = 'ISO, DMY'"):
        db.run(f"set {setting}")

    assert [slots(db, spec, "Europe/Berlin") for spec in specs] == expected


@pytest.mark.parametrize("expression", [spec for spec in EXPRESSIONS if "*/2 * *" not in spec])
def test_without_a_change_of_clocks_croniter_agrees(specs, expression):
    ours = [row.fire_at for row in specs.call("next_ticks", spec=expression, count=500)]
    theirs = croniter(expression, NOON)

    assert ours == [theirs.get_next(datetime) for _ in ours]


@pytest.mark.slow
def test_across_changes_of_clocks_the_oracle_agrees(specs):
    """In full: python -m tests.schedules.matrix."""
    folder = zone_folder(specs.dsn)
    names = [
        "America/Los_Angeles", "Europe/Berlin", "Australia/Lord_Howe", "Antarctica/Troll", "Africa/Casablanca",
        "America/Nuuk", "Asia/Beirut", "America/Havana", "Asia/Almaty", "Asia/Kolkata",
    ]  # fmt: skip

    found = check(specs.dsn, folder, names, (2023, 2027))

    assert found.mismatches == []
    assert found.editions == []
    assert found.slots > 50_000


def test_the_oracle_would_notice_a_rule_that_is_not_ours(db):
    """A repeated time that fires the second time instead of the first."""
    body = db.value("select pg_get_functiondef('onceward.day_ticks'::regproc)")
    first = "select c.first_at as fire_at where c.first_at < v_jump"
    assert first in body
    db.run(body.replace(first, f"{first} and (c.last_at < v_jump or (p_plan ->> 'elapsed')::boolean)")
           .replace("or c.first_at >= v_jump)", "or true)"))  # fmt: skip

    assert check(db.dsn, zone_folder(db.dsn), ["America/Los_Angeles"], (2026, 2026)).mismatches


@pytest.mark.parametrize(
    ("spec", "after", "expected"),
    [
        # The gap of 8 March 2026, 02:00 to 03:00: the first moment after it, which is 10:00 UTC.
        ("30 2 * * *", "2026-03-08 00:00-08", ("2026-03-08T02:30:00", "2026-03-08 10:00+00")),
        ("02:15", "2026-03-08 00:00-08", ("2026-03-08T02:15:00", "2026-03-08 10:00+00")),
        # Several times in the gap are one moment, and so is one after it.
        ("0,30 2,3 * * *", "2026-03-08 00:00-08", ("2026-03-08T02:00:00", "2026-03-08 10:00+00")),
        ("0,30 2,3 * * *", "2026-03-08 03:00-07", ("2026-03-08T03:30:00", "2026-03-08 10:30+00")),
        # By elapsed time, nothing extra.
        ("30 * * * *", "2026-03-08 01:30-08", ("2026-03-08T03:30:00-07:00", "2026-03-08 10:30+00")),
        # The repeated hour of 1 November 2026, 01:00 to 02:00: once, the first time.
        ("30 1 * * *", "2026-11-01 00:00-07", ("2026-11-01T01:30:00", "2026-11-01 08:30+00")),
        ("30 1 * * *", "2026-11-01 01:30-07", ("2026-11-02T01:30:00", "2026-11-02 09:30+00")),
        # By elapsed time, in both passes.
        ("30 * * * *", "2026-11-01 01:30-07", ("2026-11-01T01:30:00-08:00", "2026-11-01 09:30+00")),
        ("30 minutes", "2026-11-01 01:30-07", ("2026-11-01T09:00:00Z", "2026-11-01 09:00+00")),
    ],
)
def test_when_the_clocks_change(specs, spec, after, expected):
    (tick,) = specs.call("next_ticks", spec=spec, zone="America/Los_Angeles", after=after, count=1)

    assert (tick.slot, tick.fire_at) == (expected[0], specs.value("select %s::timestamptz", expected[1]))


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Apia", "America/St_Johns"])
def test_moments_far_away_are_found_at_once(specs, zone):
    specs.run("set statement_timeout = '2s'")

    assert slots(specs, "0 0 29 2 */7", zone, count=1)[0] == "2032-02-29T00:00:00"
    assert slots(specs, "* * * * *", zone, after="2099-12-31 23:59+00", count=1)
    assert len(slots(specs, "@yearly", zone, after="9990-06-01", count=100)) == 8
    with pytest.raises(psycopg.Error, match="must be between 1 and 10000"):
        slots(specs, "* * * * *", zone, count=10_001)
