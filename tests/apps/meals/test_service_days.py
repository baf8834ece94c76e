"""M7: the day is California's, in the evening and when the clocks change."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from tests.apps.meals.place import picture_of, scan

pytestmark = pytest.mark.slow
PACIFIC = ZoneInfo("America/Los_Angeles")


def test_m7_every_half_hour_of_two_years_belongs_to_the_day_on_the_wall(place):
    start = datetime(2026, 1, 1, tzinfo=UTC)
    moments = [start + timedelta(minutes=30 * n) for n in range(2 * 365 * 48)]

    rows = place.rows(
        "select m, meals.service_date(m), meals.service_day_ends(meals.service_date(m)) from unnest(%s::timestamptz[]) as m",
        moments,
    )

    for moment, day, ends in rows:
        local = moment.astimezone(PACIFIC)
        assert day == local.date()
        midnight = datetime.combine(day + timedelta(days=1), datetime.min.time(), PACIFIC)
        assert ends == midnight
    # Days of 23 and of 25 hours were among them.
    lengths = {
        ends - datetime.combine(day, datetime.min.time(), PACIFIC).astimezone(UTC) for _, day, ends in rows
    }
    assert lengths == {timedelta(hours=23), timedelta(hours=24), timedelta(hours=25)}


@pytest.mark.parametrize(
    ("evening", "day"),
    [
        # UTC is a day ahead.
        (datetime(2026, 11, 17, 7, 59, tzinfo=UTC), date(2026, 11, 16)),
        # The evenings before and after the clocks go forward (March 8) and back (November 1).
        (datetime(2026, 3, 8, 7, 59, tzinfo=UTC), date(2026, 3, 7)),
        (datetime(2026, 3, 9, 6, 59, tzinfo=UTC), date(2026, 3, 8)),
        (datetime(2026, 11, 1, 6, 59, tzinfo=UTC), date(2026, 10, 31)),
        (datetime(2026, 11, 2, 7, 59, tzinfo=UTC), date(2026, 11, 1)),
    ],
)
def test_m7_the_last_minute_of_a_day_gives_that_days_code_and_midnight_ends_it(place, evening, day):
    place.rows("update meals.service_weekdays set is_open = true returning 1")
    place.customer()
    place.clock.pin(evening)

    assert place.cron("issue-qr").body == {
        "service_date": day.isoformat(), "issued": 1, "skipped": 0, "failed": 0, "delayed": 0,
    }  # fmt: skip
    place.work()
    code = scan(picture_of(place.mails()[0]))
    place.clock.advance("59 seconds")
    assert place.call("GET", f"/today/{code}").status == 200
    place.clock.advance("1 second")
    assert place.redeem(code).body["code"] == "EXPIRED"
    # The next day has a code of its own.
    assert place.cron("issue-qr").body["issued"] == 1


def test_days_off_skips_and_unpaid_subscriptions_give_no_code(place):
    eats, skips = place.customer("Eats"), place.customer("Skips")
    for status in ("past_due", "canceled", "incomplete", "unpaid", "paused"):
        place.customer(status, status=status)
    place.customer("Trial", status="trialing")
    assert place.value("select meals.skip_day(%s, '2026-11-16')", skips)

    assert place.cron("issue-qr").body["issued"] == 2
    assert place.rows("select count(*) from meals.qr_tokens where customer_id = %s", skips) == [(0,)]
    # A code that is out is not taken back, and yesterday cannot be skipped.
    assert not place.value("select meals.skip_day(%s, '2026-11-16')", eats)
    assert not place.value("select meals.skip_day(%s, '2026-11-15')", eats)

    # Tuesday is a holiday; Saturday is closed, and then open for once.
    place.conn.execute("insert into meals.service_calendar values ('2026-11-17', false, 'holiday')")
    place.clock.advance("1 day")
    assert place.cron("issue-qr").body["issued"] == 0
    place.clock.advance("4 days")
    assert place.cron("issue-qr").body == {
        "service_date": "2026-11-21", "issued": 0, "skipped": 0, "failed": 0, "delayed": 0,
    }  # fmt: skip
    place.conn.execute("insert into meals.service_calendar values ('2026-11-21', true, 'feast')")
    assert place.cron("issue-qr").body["issued"] == 3


def test_a_code_of_a_later_day_waits_and_a_past_day_gets_none(place):
    customer = place.customer()
    place.rows("select outcome from meals.issue_qr_token(%s, '2026-11-17', gen_random_uuid())", customer)

    assert place.rows("select outcome from meals.redeem_qr((select jti from meals.qr_tokens), 'k')") == [
        ("NOT_YET",)
    ]
    assert place.rows(
        "select outcome from meals.issue_qr_token(%s, '2026-11-13', gen_random_uuid())", customer
    ) == [("NOT_SERVED",)]


def test_the_schedule_issues_in_the_morning_and_to_who_comes_later(place):
    place.customer("Early")
    # Five in the morning: declared, and not due.
    place.clock.pin(datetime(2026, 11, 16, 13, 0, tzinfo=UTC))
    place.work()
    assert place.value("select count(*) from meals.qr_tokens") == 0

    place.clock.advance("1 hour")
    place.work()
    assert len(place.mails("early@")) == 1

    place.customer("Late")
    place.clock.advance("15 minutes")
    place.work()
    assert len(place.mails("late@")) == 1
    assert len(place.mails()) == 2


def test_today_says_that_it_is_closed_also_when_codes_went_out_before(place, ana):
    place.customer("Jane")
    ana.post("/meals/calendar/day", day="2026-11-16", open="closed", reason="Power cut")
    assert "Closed today (Power cut): nobody gets a code." in ana.get("/meals/")
    ana.post("/meals/calendar/clear", day="2026-11-16")
    place.cron("issue-qr")
    assert "Closed" not in ana.get("/meals/")
    ana.post("/meals/calendar/day", day="2026-11-16", open="closed")
    assert "Closed today: nobody else gets a code. 1 code went out before, 0 meals redeemed." in ana.get(
        "/meals/"
    )
