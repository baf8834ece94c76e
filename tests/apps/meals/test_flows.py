"""The flows of chapter 8.2 and the acceptance criteria of chapter 10, end to end: real worker, real mail server, virtual clock."""

from __future__ import annotations

import pytest

from tests.apps.meals.place import (
    KIOSK,
    at_once,
    correction_token,
    deep_token,
    picture_of,
    scan,
    text_of,
)

pytestmark = pytest.mark.slow


def test_8_2_1_from_a_wrong_handle_to_a_connected_chat(place):
    assert place.check_out(handle="@wronghandle").body["outcome"] == "applied"
    place.work()
    (welcome,) = place.mails("jane@")
    first_link, correction = deep_token(text_of(welcome)), correction_token(text_of(welcome))

    page = place.call("GET", f"/handle/update/{correction}")
    answer = place.consume(correction, "@correcthandle")

    assert page.body == {"valid": True, "telegram_handle": "@wronghandle"}
    assert (answer.status, answer.body["success"]) == (200, True)
    assert answer.body["telegram_link"].startswith("https://t.me/frontiermealsbot?start=")
    # Valid for 7 days.
    assert answer.body["expires_at"] == "2026-11-23T17:00:00Z"
    assert place.value("select count(*) from meals.telegram_deep_link_tokens") == 2
    assert place.rows("select telegram_handle from meals.customers") == [("@correcthandle",)]

    place.telegram(f"/start {deep_token(answer.body['telegram_link'])}", chat=77)
    place.work()
    assert place.rows("select chat_id from meals.telegram_links") == [(77,)]
    assert place.chats() == [
        "Welcome, Jane! Your account is connected. Send /today to see the QR code of the day."
    ]
    # The new link came by email as well (FR-002-005); the old one still works, for its own chat only.
    assert deep_token(text_of(place.mails("jane@")[1])) == deep_token(answer.body["telegram_link"])
    assert first_link != deep_token(answer.body["telegram_link"])


def test_8_2_2_a_hundred_concurrent_crons_give_one_token_and_one_email(place):
    place.customer()

    answers = at_once([lambda: place.cron("issue-qr")] * 100)
    place.work()

    assert {answer.status for answer in answers} == {200}
    assert sum(answer.body["issued"] for answer in answers) == 1
    assert sum(answer.body["failed"] for answer in answers) == 0
    assert place.value("select count(*) from meals.qr_tokens") == 1
    assert len([mail for mail in place.mails() if "QR" in mail.message["Subject"]]) == 1


def test_8_2_3_a_failed_email_is_queued_and_arrives_after_retries(place):
    place.customer(email="jane+data_451__3@example.com")
    place.cron("issue-qr")
    queued = "select attempts, max_attempts, status, next_attempt_at - onceward.now() from meals.email_retry"

    # 1. The initial send fails; 2. it is queued.
    assert place.cron("process-email-retry").body == {"processed": 1, "sent": 0, "failed": 1, "abandoned": 0}
    ((attempts, most, status, wait),) = place.rows(queued)
    assert (attempts, most, status, wait.total_seconds()) == (0, 5, "pending", 300)
    # Nothing is due before its time.
    assert place.cron("process-email-retry").body["processed"] == 0

    # 3. and 4. Retries fail, after 5 and after 15 minutes.
    for attempt, minutes, following in ((1, 5, 15), (2, 15, 60)):
        place.clock.advance(f"{minutes} minutes")
        assert place.cron("process-email-retry").body["failed"] == 1
        ((attempts, _, status, wait),) = place.rows(queued)
        assert (attempts, status, wait.total_seconds()) == (attempt, "pending", following * 60)

    # 5. The third retry succeeds.
    place.clock.advance("60 minutes")
    assert place.cron("process-email-retry").body == {"processed": 1, "sent": 1, "failed": 0, "abandoned": 0}
    assert place.rows("select status, sent_at = onceward.now() from meals.email_retry") == [("sent", True)]
    assert len(place.mails()) == 1


def test_10_1_the_handle_is_updated_once_by_one_link(place):
    place.check_out()
    place.work()
    token = correction_token(text_of(place.mails()[0]))

    assert place.consume(token, "@correcthandle").status == 200
    again = place.consume(token, "@anotherhandle")

    assert (again.status, again.body) == (
        400,
        {"error": "This link has already been used", "code": "ALREADY_USED"},
    )
    assert place.rows("select telegram_handle from meals.customers") == [("@correcthandle",)]


def test_10_1_errors_are_the_documented_ones_and_a_typing_error_does_not_cost_the_link(place):
    place.check_out()
    place.work()
    token = correction_token(text_of(place.mails()[0]))

    for handle in ("noatsign", "@", "@" + "x" * 32, "@bad-handle", "@ü", "", None, 7):
        answer = place.consume(token, handle)
        assert (answer.status, answer.body) == (
            400,
            {
                "error": "Invalid handle format",
                "code": "INVALID_HANDLE_FORMAT",
                "details": "Handle must start with @ and be 2-32 characters",
            },
        )
    for body in (b"newHandle=@x", b"[]", b"{}", b""):
        answer = place.call("POST", "/api/handle/consume", body)
        assert (answer.status, answer.body["code"]) == (400, "INVALID")
        assert answer.body["error"] == "The body must be a JSON object with token and newHandle"
    assert place.consume("unknown").body["code"] == "INVALID"
    assert place.consume(None).body["code"] == "INVALID"
    place.clock.advance("7 days")
    assert place.consume(token).body == {"error": "This link has expired", "code": "EXPIRED"}
    assert place.call("GET", f"/handle/update/{token}").body["code"] == "EXPIRED"


def test_10_1_the_longest_and_the_shortest_handle_pass(place):
    for number, handle in enumerate(("@x", "@" + "x" * 31)):
        place.check_out(f"N{number}")
        place.work()
        token = correction_token(text_of(place.mails(f"n{number}@")[0]))
        assert place.consume(token, f"  {handle} ").status == 200
    assert place.value("select count(*) from meals.customers where length(telegram_handle) in (2, 32)") == 2


def test_10_2_a_customer_gets_one_code_by_email_and_redeems_it_once(place):
    place.customer()
    first, second = place.cron("issue-qr"), place.cron("issue-qr")
    place.work()

    assert first.body == {
        "service_date": "2026-11-16", "issued": 1, "skipped": 0, "failed": 0, "delayed": 0,
    }  # fmt: skip
    assert (second.body["issued"], second.body["skipped"]) == (0, 1)
    (mail,) = place.mails()
    assert mail.message["Subject"] == "Your meal QR code for Monday, November 16"
    # Ours, whoever else sends through the same provider.
    assert mail.message["From"] == "Frontier Meals <meals@frontiermeals.com>"
    assert 'src="cid:qr"' in mail.message.get_body(("html",)).get_content()
    code = scan(picture_of(mail))
    # The page behind the link in the text shows the same code.
    assert f"https://meals.example/today/{code}" in text_of(mail)
    page = place.call("GET", f"/today/{code}")
    assert (page.status, page.body["name"], page.body["used_at"]) == (200, "Jane", None)
    assert page.body["svg"].startswith("<svg")

    place.clock.advance("3 hours 4 minutes")
    assert place.redeem(code).body == {
        "success": True, "name": "Jane", "service_date": "2026-11-16", "used_at": "2026-11-16T20:04:00Z",
        "kiosk": "Counter 1",
    }  # fmt: skip
    place.clock.advance("1 minute")
    again = place.redeem(code, kiosk=KIOSK + "-2")
    assert (again.status, again.body["code"]) == (400, "ALREADY_USED")
    assert again.body["error"] == "This code was used at 12:04 PM at Counter 1"
    assert again.body["used_at"] == "2026-11-16T20:04:00Z"


def test_10_2_the_log_says_that_duplicates_were_prevented(place, log):
    place.customer()
    place.cron("issue-qr")
    place.cron("issue-qr")

    assert any("qr_already_issued_skipping" in line for line in log())


def test_10_3_an_email_that_never_gets_through_is_abandoned_and_ops_are_told(place):
    place.customer(email="jane+rcpt_450@example.com")
    place.cron("issue-qr")
    place.rows("update meals.subscriptions set status = 'canceled' returning 1")
    waits = []
    for _ in range(6):
        place.work()
        waits.append(place.value("select next_attempt_at - onceward.now() from meals.email_retry"))
        place.clock.advance(waits[-1])

    # The initial send, and five retries.
    assert [wait.total_seconds() / 60 for wait in waits[:5]] == [5, 15, 60, 240, 240]
    assert place.rows("select attempts, status, delivery_state from meals.email_retry") == [
        (5, "abandoned", "abandoned")
    ]
    place.work()
    (alert,) = place.chats()
    assert alert.startswith("Delivery abandoned: email")
    assert place.chat_sink.kept[0].json["chat_id"] == "-100"
    assert "jane" not in alert
    assert place.rows("select email_to, last_error from meals.abandoned_emails")[0][0].startswith("jane+")
    assert place.mails() == []


def test_10_3_the_customer_gets_exactly_one_email_when_the_service_recovers(place):
    place.check_out("Jane+data_451__3")
    # Without meals, so that there is no other email.
    place.rows("update meals.subscriptions set status = 'paused' returning 1")
    for _ in range(5):
        place.work()
        place.clock.advance("4 hours")

    assert len(place.mails()) == 1
    assert place.rows("select status, attempts from meals.email_retry") == [("sent", 3)]
