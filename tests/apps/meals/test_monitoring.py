"""The queue in the words of the specification: columns, thresholds (7.3.7) and the queries of appendix B."""

from __future__ import annotations

import pytest

from tests.apps.meals.place import picture_of, scan

pytestmark = pytest.mark.slow


def fill(place, *, failing: int, passing: int = 0, command: str = "data_451") -> None:
    for n in range(failing):
        place.customer(f"f{n}", email=f"f{n}+{command}@example.com")
    for n in range(passing):
        place.customer(f"p{n}", email=f"p{n}@example.com")
    place.cron("issue-qr")
    place.rows("update meals.subscriptions set status = 'paused' returning 1")
    place.cron("process-email-retry")


def breached(place) -> set[str]:
    return {metric for (metric,) in place.rows("select metric from meals.email_thresholds where breached")}


def test_the_queue_has_the_documented_columns(place):
    columns = [row[0] for row in place.rows(
        "select column_name from information_schema.columns where table_schema = 'meals' and table_name = 'email_retry' "
        " order by ordinal_position"
    )]  # fmt: skip

    assert columns[:16] == [
        "id", "customer_id", "email_to", "subject", "html", "template_type", "attempts", "max_attempts", "next_attempt_at",
        "last_attempt_at", "last_error", "status", "created_at", "sent_at", "tags", "idempotency_key",
    ]  # fmt: skip


def test_an_email_that_passes_at_once_is_never_in_the_queue(place):
    fill(place, failing=1, passing=3)

    rows = place.rows(
        "select email_to, subject, template_type, status, tags, last_error from meals.email_retry"
    )

    assert rows == [(
        "f0+data_451@example.com", "Your meal QR code for Monday, November 16", "qr", "pending",
        [{"name": "template", "value": "qr"}], "refused: the server answered 451 4.3.0 to the message",
    )]  # fmt: skip
    assert place.value("select count(*) from meals.email_ledger") == 4
    assert breached(place) == set()


def test_queue_depth_alerts_above_100(place):
    fill(place, failing=100)
    assert breached(place) == set()

    place.customer("more", email="more+data_451@example.com")
    place.cron("issue-qr")
    place.cron("process-email-retry")

    assert breached(place) == {"Queue depth"}
    assert place.call("GET", "/api/health").body["status"] == "degraded"


def test_abandoned_rate_and_success_rate_alert(place):
    # Nineteen that pass after a retry, and one that is refused for good.
    for n in range(19):
        place.customer(f"r{n}", email=f"r{n}+data_451__1@example.com")
    fill(place, failing=1, command="rcpt_550")
    place.clock.advance("5 minutes")
    place.cron("process-email-retry")

    values = dict(place.rows("select metric, value from meals.email_thresholds"))
    assert (values["Abandoned rate"], values["Retry success rate"]) == (5, 95)
    # Five per cent abandoned is too many; ninety-five sent is just enough.
    assert breached(place) == {"Abandoned rate"}
    assert place.rows(
        "select template_type, sent, abandoned, success_rate_pct from meals.email_success_rate"
    ) == [("qr", 19, 1, 95)]

    place.customer("last", email="last+rcpt_550@example.com")
    place.cron("issue-qr")
    place.cron("process-email-retry")
    assert breached(place) == {"Abandoned rate", "Retry success rate"}
    # A day later it is history.
    place.clock.advance("1 day")
    assert breached(place) == set()


def test_average_time_to_send_alerts_above_an_hour(place):
    fill(place, failing=1, command="data_451__3")
    for minutes in (5, 15, 60):
        place.clock.advance(f"{minutes} minutes")
        place.cron("process-email-retry")

    assert place.rows("select template_type, avg_minutes::int from meals.email_delivery_times") == [
        ("qr", 80)
    ]
    assert breached(place) == {"Average time to send"}


def test_the_oldest_pending_email_alerts_after_six_hours(place):
    fill(place, failing=1)
    place.clock.advance("6 hours")
    assert breached(place) == set()
    assert place.rows("select * from meals.stuck_emails") == []

    place.clock.advance("1 minute")

    assert breached(place) == {"Oldest pending email"}
    assert place.rows("select email_to, attempts, age::text from meals.stuck_emails") == [
        ("f0+data_451@example.com", 0, "06:01:00")
    ]


def test_depth_by_status(place):
    place.customer("a", email="a+rcpt_550@example.com")
    place.customer("b", email="b+data_451__1@example.com")
    fill(place, failing=2)
    place.clock.advance("5 minutes")
    place.cron("process-email-retry")

    assert dict(place.rows("select status, count from meals.email_queue_health")) == {
        "abandoned": 1, "sent": 1, "pending": 2,
    }  # fmt: skip


def test_an_email_that_may_have_arrived_needs_a_person_and_is_not_sent_again(place):
    fill(place, failing=1, command="drop_after_dot__1")
    place.clock.advance("10 hours")
    place.work()

    assert place.rows("select status, delivery_state from meals.email_retry") == [("abandoned", "uncertain")]
    assert len(place.mails()) == 1


def test_codes_and_meals_of_today(place):
    place.customers(4)
    place.customer("late", status="past_due")
    assert place.value("select count(*) from meals.qr_missing") == 4
    place.cron("issue-qr")
    place.work()
    place.redeem(scan(picture_of(place.mails()[0])))

    assert place.rows("select * from meals.qr_today") == [(4, 4)]
    assert place.rows("select * from meals.qr_duplicates") == []
    assert place.rows("select * from meals.qr_redemption_rate") == [(1, 3, 25)]
    assert place.rows("select * from meals.redemptions_by_hour") == [(9, 1)]
    assert place.rows("select * from meals.qr_missing") == []


def test_the_database_itself_refuses_a_second_token_of_a_day(place):
    customer = place.customer()
    place.cron("issue-qr")

    names = place.rows(
        "select conname from pg_constraint where conrelid = 'meals.qr_tokens'::regclass and contype = 'u'"
    )
    assert names == [("qr_tokens_customer_date_unique",)]
    outcomes = place.rows(
        "select outcome from meals.issue_qr_token(%s, '2026-11-16', gen_random_uuid())", customer
    )
    assert outcomes == [("QR_EXISTS",)]


def test_health_is_ok_and_tells_no_figures(place):
    answer = place.call("GET", "/api/health")

    assert (answer.status, answer.body) == (
        200,
        {"status": "ok", "database": "ok", "service_date": "2026-11-16"},
    )
