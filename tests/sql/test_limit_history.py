"""What was left of limits, minute by minute."""

from __future__ import annotations

from datetime import UTC, datetime

from tests.support.limits import fill, limit


def history(db, name: str):
    return db.run("select * from onceward.limit_history where name = %s order by at", name)


def test_the_level_is_noted_once_a_minute_whoever_tidies(db):
    limit(db, "bank", slots=2)
    db.clock.pin(datetime(2026, 11, 16, 8, 0, 10, tzinfo=UTC))
    for _ in range(3):
        db.call("tidy")
    assert len(history(db, "bank")) == 1
    db.clock.advance("1 minute")
    db.call("tidy")

    assert [f"{row.at:%H:%M:%S}" for row in history(db, "bank")] == ["08:00:00", "08:01:00"]


def test_it_says_what_is_left_who_waits_and_whether_it_is_paused(db):
    limit(db, "bank", slots=2)
    fill(db, 5, "bank")
    db.claim()
    db.call("tidy")
    (row,) = history(db, "bank")
    assert (row.level, row.waiting, row.paused) == (0.5, 4, False)

    db.clock.advance("1 minute")
    db.call("pause_limit", limit="bank", **{"for": "10 min"})
    db.call("tidy")
    assert history(db, "bank")[-1].paused is True


def test_it_is_kept_for_two_days(db):
    limit(db, "bank", slots=2)
    db.call("tidy")
    db.clock.advance("3 days")
    db.call("tidy")
    db.call("retain", kind="limit_levels")

    assert len(history(db, "bank")) == 1
