"""Schedules under a clock that stands at midnight: what the tests of ticks share."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

MIDNIGHT = datetime(2026, 6, 15, tzinfo=UTC)


def add(db, spec="1 minute", name="report", **options):
    (row,) = db.call("add_schedule", name=name, task="report", spec=spec, **options)
    return row


def tick(db, **options):
    (row,) = db.call("tick", **options)
    return row


def tick_all(db):
    """Tick until nothing is due; how many fired."""
    fired = 0
    while (row := tick(db)).next_in == timedelta(0) or row.fired:
        fired += row.fired
    return fired


def ticks(db, *columns):
    chosen = ", ".join(columns or ("slot", "outcome", "slots"))
    return [
        tuple(row) for row in db.run(f"select {chosen} from onceward.ticks order by fire_at, outcome desc")
    ]


def sums(db):
    return {row.outcome: row.total for row in db.run(
        "select outcome, sum(slots)::int as total from onceward.ticks group by 1")}  # fmt: skip
