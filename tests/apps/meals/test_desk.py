"""The pages of staff: what they show, what they change, who may, and what the audit log has of it."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest

from onceward_apps.meals import sample
from tests.apps.meals.place import KIOSK, correction_token, picture_of, scan, text_of

pytestmark = pytest.mark.slow


@pytest.fixture
def jane(place):
    customer = place.customer("Jane", email="jane.canary@example.com")
    place.cron("issue-qr")
    place.work()
    return customer


def audited(place) -> list[tuple[str, str, str]]:
    return place.rows(
        "select kind, actor, entity_type from onceward.audit_log where source = 'application' and starts_with(kind, 'meals.') order by seq"
    )


def test_the_day_at_a_glance(place, ana, jane):
    place.customer("Joe", email="joe+rcpt_550@example.com")
    place.customer("Ann", email="ann+data_451__1@example.com")
    place.cron("issue-qr")
    place.work()
    place.clock.advance("5 minutes")
    place.work()
    assert "No meal yet" in ana.get("/meals/")
    place.clock.advance("3 hours")
    place.redeem(scan(picture_of(place.mails("jane")[0])))
    place.customer("Late")

    page = ana.get("/meals/")

    assert "Monday, November 16" in page
    assert "1 customer who should eat today has no code yet." in page
    assert "Emails need a look: abandoned rate, retry success rate." in page
    assert "12:00: 1 redeemed</title>" in page
    assert "<th scope=col>Redeemed</th><th scope=col>Not redeemed</th>" in page
    assert " done</title>" not in page
    assert "1 email that nobody will send unless you act" in page
    assert re.search(r"Abandoned rate</td>.*?breached", page, re.DOTALL)
    # As people say it, and not 0.08 hours.
    assert re.search(r"Average time to send</td><td[^>]*>5 min</td><td[^>]*>(>|&gt;) 1 hour</td>", page)
    assert "No meal yet" not in page
    assert "2026-11-16" in ana.get("/meals/?day=2026-11-13")
    assert "No codes yet" not in page


def test_issuing_by_hand_is_the_same_job_and_leaves_an_entry(place, ana, jane):
    place.customer("Late")

    ana.post("/meals/issue")
    place.work()

    assert place.value("select count(*) from meals.qr_tokens") == 2
    assert len(place.mails()) == 2
    assert audited(place) == [("meals.issue_asked", "ana", "job")]


def test_a_day_is_skipped_and_unskipped(place, ana, jane):
    answer = ana.post(f"/meals/customers/{jane}/skip", day="2026-11-18")
    assert place.rows("select service_date::text from meals.skips") == [("2026-11-18",)]
    assert "skipped" in ana.get(answer.headers["location"])

    # Today's code is out already.
    ana.post(f"/meals/customers/{jane}/skip", 409, day="2026-11-16")
    ana.post(f"/meals/customers/{jane}/skip", 409, day="2026-11-13")
    ana.post(f"/meals/customers/{jane}/unskip?day=2026-11-18")

    assert place.rows("select 1 from meals.skips") == []
    assert audited(place) == [
        ("meals.day_skipped", "ana", "customer"),
        ("meals.day_unskipped", "ana", "customer"),
    ]


def test_a_code_is_sent_again_by_a_person_and_is_the_same_code(place, ana, jane):
    first = scan(picture_of(place.mails()[0]))

    ana.post(f"/meals/customers/{jane}/resend")
    place.work()

    assert [scan(picture_of(mail)) for mail in place.mails()] == [first, first]
    assert audited(place) == [("meals.code_resent", "ana", "customer")]
    place.redeem(first)
    ana.post(f"/meals/customers/{jane}/resend", 409)
    ana.post(f"/meals/customers/{jane}/code", 409)
    assert len(place.mails()) == 2


def test_staff_open_the_page_of_a_customer_whose_phone_is_empty(place, ana, jane):
    answer = ana.post(f"/meals/customers/{jane}/code")

    assert answer.headers["location"] == f"/today/{scan(picture_of(place.mails()[0]))}"
    assert audited(place) == [("meals.code_shown", "ana", "customer")]


def test_a_new_correction_link_works(place, ana, jane):
    ana.post(f"/meals/customers/{jane}/correct")
    place.work()

    token = correction_token(text_of(place.mails()[1]))
    assert place.consume(token, "@fresh").status == 200
    assert audited(place) == [("meals.correction_sent", "ana", "customer")]


def test_a_browser_becomes_a_counter_by_a_link_that_no_server_sees(place, ana):
    answer = ana.post("/meals/kiosks/open", kiosk="Counter 1")

    assert answer.headers["location"] == f"/kiosk#{KIOSK}"
    assert KIOSK not in ana.get("/meals/")
    ana.post("/meals/kiosks/open", 404, kiosk="Counter 9")
    assert audited(place) == [("meals.kiosk_opened", "ana", "kiosk")]


def test_the_calendar_of_the_week_and_its_exceptions(place, ana, jane):
    ana.post("/meals/calendar/day", day="2026-11-26", open="closed", reason="Thanksgiving")
    ana.post("/meals/calendar/day", day="2026-11-28", open="open", reason="Market day")
    assert place.rows("select meals.is_service_day('2026-11-26'), meals.is_service_day('2026-11-28')") == [
        (False, True)
    ]
    assert "Thanksgiving" in ana.get("/meals/calendar")

    ana.post("/meals/calendar/clear", day="2026-11-26")
    ana.post("/meals/calendar/day", 409, day="2026-11-13", open="closed")
    ana.post("/meals/calendar/day", 400, day="soon", open="closed")
    ana.post("/meals/calendar/week", **{f"d{number}": "1" for number in (1, 2, 3, 4, 6)})

    assert place.rows("select weekday from meals.service_weekdays where is_open order by 1") == [
        (1,),
        (2,),
        (3,),
        (4,),
        (6,),
    ]
    assert place.rows("select meals.is_service_day('2026-11-26'), meals.is_service_day('2026-11-27')") == [
        (True, False)
    ]
    assert [kind for kind, _, _ in audited(place)] == [
        "meals.day_set", "meals.day_set", "meals.day_cleared", "meals.weekday_set", "meals.weekday_set",
    ]  # fmt: skip


def test_what_the_calendar_does_not_understand_changes_nothing(place, ana, jane):
    day = {"day": "2026-11-26", "open": "closed"}
    before = place.rows("select weekday, is_open from meals.service_weekdays order by 1")

    assert "Reason must be at most 200" in ana.post("/meals/calendar/day", 400, **day, reason="x" * 201).text
    assert "Reason must not contain NUL" in ana.post("/meals/calendar/day", 400, **day, reason="x\0y").text
    assert (
        "Open must be open or closed" in ana.post("/meals/calendar/day", 400, **{**day, "open": "maybe"}).text
    )
    assert "A week needs a day" in ana.post("/meals/calendar/week", 400).text
    over = ana.post("/meals/calendar/day", 409, day="2025-01-01", open="closed")
    assert "Wednesday, January 1, 2025 is over" in over.text
    far = ana.post("/meals/calendar/day", 409, day="9999-12-31", open="closed")
    assert "Friday, December 31, 9999 is too far ahead" in far.text
    assert "Choose a day from today to Thursday, November 16, 2028" in far.text
    ana.post(f"/meals/customers/{jane}/skip", 409, day="9999-01-01")

    assert place.rows("select 1 from meals.service_calendar union all select 1 from meals.skips") == []
    assert place.rows("select weekday, is_open from meals.service_weekdays order by 1") == before
    assert audited(place) == []


def test_the_calendar_takes_the_last_day_and_the_longest_reason(place, ana, jane):
    ana.post("/meals/calendar/day", day="2028-11-16", open="closed", reason="é" * 200)
    ana.post(f"/meals/customers/{jane}/skip", day="2028-11-16")
    ana.post("/meals/calendar/day", 409, day="2028-11-17", open="closed")
    ana.post(f"/meals/customers/{jane}/skip", 409, day="2028-11-17")

    assert place.rows("select service_date::text, length(reason) from meals.service_calendar") == [
        ("2028-11-16", 200)
    ]
    page = ana.get("/meals/calendar")
    assert 'min="2026-11-16" max="2028-11-16"' in page
    assert 'maxlength="200"' in page


def test_an_abandoned_email_is_sent_again(place, ana):
    customer = place.customer("Joe", email="joe+rcpt_550__1@example.com")
    place.cron("issue-qr")
    place.work()
    (delivery,) = place.rows("select id from meals.abandoned_emails")[0]
    page = ana.get("/meals/emails?status=abandoned")
    assert f"/meals/customers/{customer}" in page
    assert "joe+rcpt_550__1@example.com" in page

    ana.post(f"/meals/emails/{delivery}/send")
    place.work()

    assert place.rows("select status from meals.email_retry") == [("sent",)]
    assert len(place.mails()) == 1
    # The engine has its own entry of it.
    assert place.rows("select actor from onceward.audit_log where kind = 'job.requeued'") == [("ana",)]


def test_customers_are_found_and_filtered(place, ana, jane):
    place.customer("Joe", status="past_due")
    place.customer("<b>Mallory</b>")

    assert "&lt;b&gt;Mallory" in ana.get("/meals/customers")
    assert "<b>Mallory" not in ana.get("/meals/customers")
    found = ana.get("/meals/customers?q=JANE.can")
    assert ("Jane</a>" in found, "Joe</a>" in found) == (True, False)
    assert '<span class="head-count">1</span>' in found
    assert '<span class="head-count">3</span>' in ana.get("/meals/customers")
    nobody = ana.get("/meals/customers?q=jane&status=past_due")
    assert '<span class="head-count">0</span>' in nobody
    # What was chosen can be put back.
    assert re.search(r'aria-current="true"[^>]*>.{0,300}past due', nobody, re.DOTALL)
    found = ana.get("/meals/customers?status=past_due")
    assert '<span class="head-count">1</span>' in found
    assert ("Jane</a>" in found, "Joe</a>" in found) == (False, True)
    ana.get("/meals/customers?status=unheard", 400)
    assert "jane.canary@example.com" in ana.get("/meals/customers.csv")
    ana.get("/meals/customers/not-a-uuid", 404)
    ana.get("/meals/customers/00000000-0000-0000-0000-000000000000", 404)


def test_who_only_reads_sees_no_address_and_changes_nothing(place, site, jane):
    eve = site.signed_in("eve", "viewer")
    pages = ("/meals/", "/meals/customers", f"/meals/customers/{jane}", "/meals/emails", "/meals/calendar", "/meals/customers.csv",
             "/meals/emails.csv")  # fmt: skip
    for path in pages:
        assert "canary" not in eve.get(path), path
    for path in ("/meals/issue", "/meals/kiosks/open", f"/meals/customers/{jane}/code", f"/meals/customers/{jane}/resend",
                 f"/meals/customers/{jane}/skip", "/meals/calendar/week"):  # fmt: skip
        assert (
            eve.http.post(path, data={"csrf": "x", "kiosk": "Counter 1", "day": "2026-11-18"}).status_code
            == 403
        )
    assert audited(place) == []


def test_who_is_bound_to_another_tenant_finds_nothing_here(place, site, jane):
    other = site.signed_in("otto", "operator", "bakery")
    for path in (
        "/meals/",
        "/meals/customers",
        f"/meals/customers/{jane}",
        "/meals/emails",
        "/meals/calendar",
        "/meals/emails.csv",
    ):
        other.get(path, 404)
    other.post("/meals/issue", 404)
    other.post(f"/meals/customers/{jane}/skip", 404, day="2026-11-18")
    assert place.rows("select 1 from meals.skips") == []
    # Who is bound to ours is at home.
    site.signed_in("mia", "operator", "meals").get(f"/meals/customers/{jane}")


def test_nobody_else_gets_in(site, jane):
    site.link()
    stranger = site.visitor()
    for path in ("/meals/", "/meals/customers", f"/meals/customers/{jane}"):
        assert stranger.http.get(path).status_code == 303
    assert stranger.http.post("/meals/issue").status_code == 401


# ------------------------------------------------------------ monitors


def test_a_breached_threshold_is_an_alert_and_a_person_may_move_it(place):
    place.customer("Joe", email="joe+rcpt_550@example.com")
    place.cron("issue-qr")
    place.work()
    run = "select status, findings from onceward.run_monitor('meals_emails')"

    assert place.rows(run) == [("firing", 2)]
    alerts = place.rows(
        "select key, tenant, summary from onceward.alerts where monitor = 'meals_emails' and closed_at is null order by 1"
    )
    assert [(key, tenant) for key, tenant, _ in alerts] == [
        ("Abandoned rate", "meals"),
        ("Retry success rate", "meals"),
    ]
    assert alerts[0][2] == "Abandoned rate of the email retries is 100.00 %, threshold 1 %"
    assert "joe" not in str(alerts)

    place.rows(
        "select onceward.set_monitor('meals_emails', '{\"abandoned_rate\": null, \"success_rate\": 0}')"
    )
    assert place.rows(run)[0][0] == "ok"
    assert place.rows("select metric, threshold from meals.email_thresholds where metric like '%rate' order by 1") == [
        ("Abandoned rate", None), ("Retry success rate", 0),
    ]  # fmt: skip
    assert place.call("GET", "/api/health").body["status"] == "ok"
    # An upgrade of the schema leaves alone what a person has set.
    place.conn.execute("comment on schema meals is 'older'")
    place.meals.install()
    assert place.rows(
        "select value from onceward.thresholds where monitor = 'meals_emails' and name = 'abandoned_rate'"
    ) == [(None,)]


def test_customers_without_a_code_for_half_an_hour_are_an_alert(place):
    place.customer()
    run = "select status from onceward.run_monitor('meals_service')"
    is_open = (
        "select severity, summary from onceward.alerts where monitor = 'meals_service' and closed_at is null"
    )
    place.rows(run)
    assert place.rows(is_open) == []
    place.clock.advance("31 minutes")
    place.rows(run)

    assert place.rows(is_open) == [("critical", "customers who eat today and have no QR code: 1")]
    place.cron("issue-qr")
    place.rows(run)
    assert place.rows(is_open) == []


def test_the_engines_retention_takes_address_and_text_after_thirty_days(place):
    place.customer("Joe", email="joe+rcpt_550@example.com")
    place.cron("issue-qr")
    place.work()
    # Counted from the machine's time, which ids keep.
    made = datetime.now(UTC)
    place.clock.pin(made + timedelta(days=29))
    place.rows("select onceward.retain('contents')")
    assert place.rows("select email_to is null from meals.email_retry") == [(False,)]

    place.clock.pin(made + timedelta(days=31))
    (delivery,) = place.rows("select id from meals.email_retry")[0]
    place.conn.execute("select onceward.resolve(%s, 'the address does not exist')", [delivery])
    place.rows("select onceward.retain('contents')")

    assert place.rows("select email_to, html from meals.email_retry") == [(None, None)]


# ------------------------------------------------------------ sample data


def test_the_sample_tells_a_story_and_a_second_start_changes_nothing(place, ana):
    assert (sample.fill(place.meals), sample.fill(place.meals)) == (40, 0)
    place.work()

    assert place.rows("select total_qr_tokens from meals.qr_today") == [(37,)]
    assert place.value("select count(distinct service_date) from meals.qr_tokens") == 10
    assert place.value("select count(*) from meals.redemptions") > 250
    assert dict(place.rows("select status, count from meals.email_queue_health")) == {
        "abandoned": 1,
        "pending": 2,
        "sent": 34,
    }
    assert place.rows("select metric from meals.email_thresholds where breached") == [("Abandoned rate",)]
    assert place.rows("select state from onceward.workers where name = 'sample morning'") == [("retired",)]
    for name, status in (("open", 200), ("used", 400), ("expired", 400)):
        assert place.call("GET", f"/handle/update/{sample.link_of(place.meals, name)}").status == status
    # The next email of each is a real one.
    assert len(place.mails()) == 7
    assert place.redeem(scan(picture_of(place.mails()[0]))).status in {200, 400}
    for path in ("/meals/", "/meals/customers", "/meals/emails", "/meals/calendar"):
        ana.get(path)


def test_what_to_try_is_told_from_the_data(place, ana):
    sample.fill(place.meals)
    place.work()

    page = ana.get("/meals/try")
    assert "2 emails wait for their next try and 1 email will not be sent unless you act." in page
    assert "Elena mistyped hers: her link works once. Rosa’s link was used. Dina waited too long." in page
    assert ">Elena’s link</a>" in page

    place.consume(sample.link_of(place.meals, "open"), "@elena_g")
    place.clock.advance("10 minutes")
    place.work()
    page = ana.get("/meals/try")
    assert "try. 1 email will not be sent unless you act." in page
    assert (
        "Elena’s link was used. Rosa’s link was used. Dina waited too long. The page of a customer sends a new one."
        in page
    )
    assert ">Elena’s, used</a>" in page
    # Links are for those who act.
    assert "/handle/update/" not in ana.site.signed_in("eve", "viewer").get("/meals/try")
