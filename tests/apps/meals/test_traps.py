"""One test for each trap of the source document: it fails on what the document does."""

from __future__ import annotations

import psycopg
import pytest

from onceward_apps.kit import tokens
from tests.apps.meals.place import CRON_HEADERS, at_once, correction_token, text_of

pytestmark = pytest.mark.slow


def test_m1_overlapping_runs_of_the_retry_cron_send_each_email_once(place):
    for n in range(20):
        place.customer(f"n{n}", email=f"n{n}+data_451__1@example.com")
    place.cron("issue-qr")
    place.cron("process-email-retry")
    place.clock.advance("5 minutes")

    answers = at_once([lambda: place.cron("process-email-retry")] * 5)

    assert sum(answer.body["sent"] for answer in answers) == 20
    assert sum(answer.body["processed"] for answer in answers) == 20
    assert sorted(mail.to for mail in place.mails()) == sorted(
        f"n{n}+data_451__1@example.com" for n in range(20)
    )


def test_m2_no_token_without_its_email(place):
    """The email cannot be made: the token is not left behind, and the customer gets both once the address is right."""
    place.customer("Jane", email="not an address")
    place.customer("Joe")

    first = place.cron("issue-qr").body
    assert (first["issued"], first["failed"]) == (1, 1)
    assert place.value("select count(*) from meals.qr_tokens") == 1
    assert place.value("select count(*) from meals.qr_missing") == 1

    place.rows("update meals.customers set email = 'jane@example.com' where name = 'Jane' returning 1")
    assert place.cron("issue-qr").body["issued"] == 1
    place.work()
    assert sorted(mail.to for mail in place.mails()) == ["jane@example.com", "joe@example.com"]


def test_m2_a_session_that_dies_between_token_and_email_leaves_neither(place):
    customer = place.customer()
    doomed = place.kit.connect(autocommit=False)
    doomed.execute("select meals.issue_qr_token(%s, '2026-11-16', gen_random_uuid())", [customer])
    place.rows("select pg_terminate_backend(%s)", doomed.info.backend_pid)

    assert place.cron("issue-qr").body["issued"] == 1
    place.work()
    assert len(place.mails()) == 1


def test_m3_the_key_is_made_of_template_customer_and_date(place):
    customer = place.customer()
    place.cron("issue-qr")
    place.check_out("Joe")

    keys = [key for (key,) in place.rows("select key from meals.email_ledger order by created_at, key desc")]

    joe = place.value("select id from meals.customers where name = 'Joe'")
    assert sorted(keys) == sorted([f"qr:{customer}:2026-11-16", f"welcome:{joe}:evt_Joe"])
    # The ledger itself would refuse a second email of the day.
    with pytest.raises(psycopg.Error) as raised:
        place.rows(
            'select onceward.deliver(\'email\', %s, \'{"to": "a@example.com", "subject": "s", "text": "t"}\', \'meals\')',
            f"qr:{customer}:2026-11-16",
        )
    assert raised.value.sqlstate == "OW005"


def test_m4_one_initial_send_and_five_retries(place):
    place.customer()
    place.cron("issue-qr")

    rows = place.rows("select max_attempts, retry from onceward.jobs where task = 'onceward.deliver'")

    assert rows == [(6, {"waits": [300, 900, 3600, 14400, 14400]})]


def test_m5_a_link_that_cannot_be_stored_leaves_token_and_handle_as_they_were(place):
    customer, other = place.customer(), place.customer("Joe")
    old, taken = tokens.new(), tokens.new()
    place.rows("select meals.add_handle_update_token(%s, %s)", customer, old.digest)
    place.rows("select meals.add_deep_link_token(%s, %s)", other, taken.digest)
    consume = "select outcome from meals.consume_handle_token(%s, '@new', %s)"

    with pytest.raises(psycopg.errors.UniqueViolation):
        place.rows(consume, old.digest, taken.digest)

    assert place.rows("select telegram_handle from meals.customers where id = %s", customer) == [(None,)]
    assert place.rows(consume, old.digest, tokens.new().digest) == [("OK",)]


def test_m5_a_caller_who_lost_the_answer_gets_it_again(place):
    customer = place.customer()
    old, link = tokens.new(), tokens.new()
    place.rows("select meals.add_handle_update_token(%s, %s)", customer, old.digest)
    consume = "select outcome, expires_at from meals.consume_handle_token(%s, '@new', %s)"

    ((first, expires),) = place.rows(consume, old.digest, link.digest)
    ((second, again),) = place.rows(consume, old.digest, link.digest)

    assert (first, second, again) == ("OK", "REPEATED", expires)
    assert place.rows(consume, old.digest, tokens.new().digest)[0][0] == "ALREADY_USED"


@pytest.mark.race
def test_m6_of_fifty_clicks_one_changes_the_handle(place):
    place.check_out()
    place.work()
    token = correction_token(text_of(place.mails()[0]))

    answers = at_once([lambda n=n: place.consume(token, f"@handle{n}") for n in range(50)])

    won = [n for n, answer in enumerate(answers) if answer.status == 200]
    assert len(won) == 1
    assert {answer.body["code"] for n, answer in enumerate(answers) if n not in won} == {"ALREADY_USED"}
    assert place.rows("select telegram_handle from meals.customers") == [(f"@handle{won[0]}",)]
    assert place.value("select count(*) from meals.telegram_deep_link_tokens") == 2


def test_m8_nothing_is_cleaned_when_something_is_sent_and_everything_old_by_schedule(place):
    triggers = "select count(*) from pg_trigger join pg_class as c on c.oid = tgrelid where c.relnamespace = 'meals'::regnamespace and not tgisinternal"
    assert place.value(triggers) == 0
    place.customer()
    place.check_out("Joe")
    place.telegram("hello")
    place.cron("issue-qr")
    place.work()

    def counts() -> list[int]:
        tables = (
            "emails",
            "handle_update_tokens",
            "telegram_deep_link_tokens",
            "stripe_events",
            "telegram_updates",
        )
        return [place.value(f"select count(*) from meals.{table}") for table in tables]

    place.rows("update meals.subscriptions set status = 'paused' returning 1")
    place.clock.advance("29 days")
    place.work()
    assert counts() == [3, 1, 1, 1, 1]
    # Emails and calls are thirty days old; links have been dead for less.
    place.clock.advance("2 days")
    place.work()
    assert counts() == [0, 1, 1, 0, 0]
    place.clock.advance("7 days")
    place.work()
    assert counts() == [0, 0, 0, 0, 0]
    # Codes and meals are not emails: they stay.
    assert place.value("select count(*) from meals.qr_tokens") == 2


def test_m8_an_email_that_is_not_over_is_never_cleaned(place):
    place.customer()
    place.cron("issue-qr")
    place.clock.advance("60 days")

    assert place.value("select meals.cleanup_old_email_retry()") == 0


@pytest.mark.parametrize("name", ["issue-qr", "process-email-retry"])
def test_m9_cron_routes_are_post_with_a_bearer_secret(place, name):
    path = f"/api/cron/{name}"

    got = place.call("GET", path, headers=CRON_HEADERS)
    assert (got.status, got.headers["allow"]) == (405, "POST")
    assert place.call("HEAD", path, headers=CRON_HEADERS).status == 405
    for headers in (
        {}, {"authorization": ""}, {"authorization": "Bearer"}, {"authorization": "Bearer "}, {"authorization": "Bearer x"},
        {"authorization": f"Basic {CRON_HEADERS['authorization'].split()[1]}"}, {"authorization": "Bearer ü"},
    ):  # fmt: skip
        answer = place.call("POST", path, headers=headers)
        assert (answer.status, answer.body["error"]) == (401, "Unauthorized")
    assert place.call("POST", path, headers=CRON_HEADERS).status == 200


def test_m10_a_cancelled_statement_delays_one_customer_and_the_job_is_tried_again(place):
    jane = place.customer("Jane")
    place.customers(5)
    # Somebody holds Jane's place, and whoever waits for it is cut off.
    blocker = place.kit.connect(autocommit=False)
    blocker.execute("select meals.issue_qr_token(%s, '2026-11-16', gen_random_uuid())", [jane])
    name = place.value("select current_database()")
    place.conn.execute(f"alter database \"{name}\" set statement_timeout = '300ms'")

    answer = place.cron("issue-qr")

    assert (answer.body["issued"], answer.body["delayed"], answer.body["failed"]) == (5, 1, 0)
    job = place.kit.client(place.app).enqueue("meals.issue_qr", {}, tenant="meals")
    place.work()
    assert place.kit.client(place.app).job(job).state == "scheduled"
    blocker.rollback()
    place.conn.execute(f'alter database "{name}" reset statement_timeout')
    place.clock.advance("1 minute")
    place.work()
    assert place.kit.client(place.app).job(job).state == "done"
    assert len(place.mails()) == 6
