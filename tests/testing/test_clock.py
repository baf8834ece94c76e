from __future__ import annotations

from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from onceward.errors import InvalidArgument


def test_time_runs_until_it_is_pinned(onceward_clock):
    first, second = onceward_clock.now(), onceward_clock.now()
    assert first < second

    pinned = onceward_clock.pin()
    assert onceward_clock.now() == pinned == onceward_clock.now()
    assert pinned > second


def test_the_clock_can_be_pinned_at_any_time(onceward_clock):
    at = datetime(2031, 2, 3, 4, 5, 6, tzinfo=UTC)

    assert onceward_clock.pin(at) == at == onceward_clock.now()


@pytest.mark.parametrize(
    ("by", "length"),
    [
        ("31 s", timedelta(seconds=31)),
        ("2h", timedelta(hours=2)),
        ("1 day", timedelta(days=1)),
        ("1h30m", timedelta(minutes=90)),
        ("500ms", timedelta(milliseconds=500)),
        ("2 weeks", timedelta(weeks=2)),
        (timedelta(minutes=7), timedelta(minutes=7)),
        ("0", timedelta(0)),
    ],
)
def test_the_clock_moves_by_a_text_or_a_timedelta(onceward_clock, by, length):
    before = onceward_clock.pin()

    assert onceward_clock.advance(by) == before + length == onceward_clock.now()


def test_running_time_can_be_moved_and_goes_on(onceward_clock):
    before = onceward_clock.now()

    moved = onceward_clock.advance("1 day")

    assert moved >= before + timedelta(days=1)
    assert onceward_clock.now() > moved


def test_time_goes_on_from_where_it_was_pinned(onceward_clock):
    at = datetime(2031, 1, 1, tzinfo=UTC)
    onceward_clock.pin(at)

    assert onceward_clock.unpin() >= at
    assert at < onceward_clock.now() < at + timedelta(hours=1)


@pytest.mark.parametrize("by", ["soon", "", "-1 s", timedelta(seconds=-1)])
def test_the_clock_is_not_moved_by_nonsense_nor_backwards(onceward_clock, by):
    before = onceward_clock.pin()

    with pytest.raises(InvalidArgument):
        onceward_clock.advance(by)
    assert onceward_clock.now() == before


@pytest.mark.parametrize(
    "role",
    ["onceward_producer", "onceward_worker", "onceward_operator", "onceward_auditor", "onceward_owner"],
)
def test_every_session_and_role_sees_the_same_time(onceward_clock, onceward_database, role):
    at = onceward_clock.pin(datetime(2031, 1, 1, tzinfo=UTC))

    with psycopg.connect(onceward_database) as connection:
        connection.execute(f"set role {role}")
        assert connection.execute("select onceward.now()").fetchone() == (at,)


def test_due_jobs_are_found_through_the_index_by_the_virtual_clock(onceward_database):
    with psycopg.connect(onceward_database) as connection:
        connection.execute("set enable_seqscan = off")
        plan = connection.execute(
            "explain select id from onceward.job_private where state = 'scheduled' and run_at <= onceward.now() order by run_at limit 1"
        ).fetchall()
    assert any("Index Cond: (run_at <=" in line for (line,) in plan)


@pytest.mark.parametrize("by", [5, None, 1.5])
def test_a_step_without_a_unit_is_refused(onceward_clock, by):
    before = onceward_clock.pin()

    with pytest.raises(InvalidArgument, match="must be a timedelta or a text such as '2h', got ") as error:
        onceward_clock.advance(by)
    assert error.value.hint == "Name the unit: timedelta(seconds=5), or '5 s'."
    assert onceward_clock.now() == before


def test_the_clock_is_pinned_at_a_text_that_names_its_zone(onceward_clock):
    assert onceward_clock.pin("2031-01-01T09:00+01:00") == datetime(2031, 1, 1, 8, tzinfo=UTC)
    assert onceward_clock.now() == datetime(2031, 1, 1, 8, tzinfo=UTC)


@pytest.mark.parametrize("at", ["2031-01-01", "noon", 5, datetime(2031, 1, 1)])  # noqa: DTZ001 - that is what is wrong
def test_the_clock_is_pinned_at_an_instant_only(onceward_clock, at):
    with pytest.raises(InvalidArgument, match="must be pinned at a moment with a time zone, got "):
        onceward_clock.pin(at)
