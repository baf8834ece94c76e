"""Forged calls, and what a dump and a log hold."""

from __future__ import annotations

import base64
import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from cryptography.fernet import Fernet

from tests.apps.meals.place import (
    KIOSK,
    SETTINGS,
    STRIPE,
    TELEGRAM,
    Place,
    correction_token,
    deep_token,
    picture_of,
    scan,
    signature,
    text_of,
)

pytestmark = pytest.mark.slow
CHECKOUT = {
    "id": "evt_forged", "type": "checkout.session.completed", "created": 1_794_848_400,
    "data": {"object": {"customer": "cus_x", "subscription": "sub_x", "customer_details": {"email": "x@example.com"}}},
}  # fmt: skip


def untouched(place) -> bool:
    tables = ("customers", "stripe_events", "telegram_updates", "telegram_links", "redemptions", "emails")
    return all(place.value(f"select count(*) from meals.{table}") == 0 for table in tables)


# ------------------------------------------------------------ forged calls


def test_a_call_that_stripe_did_not_sign_changes_nothing(place):
    body = json.dumps(CHECKOUT).encode()
    now = int(place.clock.now().timestamp())
    good = signature(body, now)
    forged = {
        "missing": (body, {}),
        "another secret": (body, {"stripe-signature": signature(body, now, "another-secret-of-somebody")}),
        "another body": (body.replace(b"x@example", b"y@example"), {"stripe-signature": good}),
        "six minutes old": (body, {"stripe-signature": signature(body, now - 360)}),
        "from the future": (body, {"stripe-signature": signature(body, now + 360)}),
        "another time": (body, {"stripe-signature": good.replace(f"t={now}", f"t={now + 1}")}),
        "an old scheme": (body, {"stripe-signature": good.replace("v1=", "v0=")}),
        "the secret itself": (body, {"stripe-signature": STRIPE}),
    }
    for how, (sent, headers) in forged.items():
        answer = place.call("POST", "/api/stripe/webhook", sent, headers)
        assert (answer.status, answer.body["code"]) == (400, "INVALID_SIGNATURE"), how
    assert place.call("GET", "/api/stripe/webhook").status == 405
    assert untouched(place)
    # Five minutes are allowed.
    answer = place.call("POST", "/api/stripe/webhook", body, {"stripe-signature": signature(body, now - 300)})
    assert answer.body == {"received": True, "outcome": "applied"}


def test_what_is_signed_and_is_no_event_is_refused(place):
    for body in (
        b"",
        b"[]",
        b"{}",
        b"\xff",
        b'{"id": 1}',
        b'{"id": "evt", "type": "x", "created": "now", "data": {}}',
    ):
        headers = {"stripe-signature": signature(body, int(place.clock.now().timestamp()))}
        assert place.call("POST", "/api/stripe/webhook", body, headers).body["code"] == "INVALID_EVENT"
    assert untouched(place)


def test_a_true_event_that_cannot_be_used_is_kept_for_a_person(place):
    answer = place.stripe("checkout.session.completed", {"customer": "cus_1", "subscription": "sub_1"})
    twice = place.stripe("checkout.session.completed", {"customer": "cus_1", "subscription": "sub_1"})
    wrong = place.stripe(
        "checkout.session.completed",
        {"customer": "c", "subscription": "s", "customer_details": {"email": "no address"}},
        event="evt_2",
    )

    assert (answer.status, answer.body["outcome"]) == (200, "invalid")
    assert (twice.body["outcome"], wrong.body["outcome"]) == ("duplicate", "invalid")
    assert place.rows("select event_id, reason from meals.stripe_trouble order by 1") == [
        ("evt_1", "email missing"),
        ("evt_2", "email is not an address"),
    ]
    assert place.call("GET", "/api/health").body["status"] == "degraded"
    assert place.value("select count(*) from meals.customers") == 0


def test_a_call_without_telegrams_secret_changes_nothing(place):
    for secret in ("", "wrong", TELEGRAM + "x", TELEGRAM[:-1], "ü"):
        assert place.telegram("/today", secret=secret).status == 401
    assert place.call("POST", "/api/telegram/webhook", {"update_id": 1}).status == 401
    assert untouched(place)


def test_updates_that_are_not_for_the_bot_are_taken_and_not_answered(place):
    headers = {"x-telegram-bot-api-secret-token": TELEGRAM}
    for number, message in enumerate((
        None, {}, {"chat": {"id": 5, "type": "group"}, "text": "/today"}, {"chat": {"id": "x", "type": "private"}, "text": "x"},
        {"chat": {"id": 5, "type": "private"}, "photo": []}, {"chat": {"id": 2**70, "type": "private"}, "text": "/today"},
    )):  # fmt: skip
        body = {"update_id": number, "message": message}
        assert place.call("POST", "/api/telegram/webhook", body, headers).body == {"ok": True}
    place.work()
    assert place.chats() == []


def test_a_code_is_redeemed_by_a_kiosk_only(place):
    place.customer()
    place.cron("issue-qr")
    place.work()
    code = scan(picture_of(place.mails()[0]))

    assert place.call("POST", "/api/qr/redeem", {"token": code}).status == 401
    for secret in ("", "x", KIOSK[:-1], "Counter 1"):
        assert place.redeem(code, kiosk=secret).status == 401
    head, body, mac = code.split(".")
    for forged in ("", "x", f"{head}.{body}.", f"{head}.{body}.{mac[:-4]}AAAA", code + "x", None, 7, [code]):
        answer = place.redeem(forged)
        assert (answer.status, answer.body["code"]) == (400, "INVALID")
    assert place.value("select count(*) from meals.redemptions") == 0
    assert place.redeem(code).status == 200


def test_a_body_that_is_too_large_is_refused_before_anything_looks_at_it(place):
    for path in ("/api/stripe/webhook", "/api/handle/consume", "/api/telegram/webhook", "/nowhere"):
        assert place.call("POST", path, b"x" * 300_000).status == 413
    assert place.call("POST", "/nowhere").status == 404
    assert place.call("GET", "/handle/update/a/b").status == 404


def test_a_database_that_is_gone_is_an_answer(place, onceward_server, monkeypatch):
    token = "unknown"
    assert place.consume(token).body["code"] == "INVALID"
    # It does not come back, so there is nothing to be patient for.
    monkeypatch.setattr(place.meals._pool, "timeout", 1.0)
    onceward_server._administer(
        psycopg.sql.SQL("alter database {} allow_connections false").format(
            psycopg.sql.Identifier(place.value("select current_database()"))
        )
    )
    place.rows(
        "select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid() and datname = current_database()"
    )

    answer = place.consume(token)
    assert (answer.status, answer.body) == (500, {"error": "Database error", "code": "DATABASE_ERROR"})
    health = place.call("GET", "/api/health")
    assert (health.status, health.body["status"]) == (503, "down")


def test_a_connection_that_was_cut_is_replaced_and_the_customer_notices_nothing(place):
    place.check_out()
    place.work()
    token = correction_token(text_of(place.mails()[0]))
    place.rows(
        "select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid() and datname = current_database()"
    )

    assert place.consume(token).status == 200


# ------------------------------------------------------------ tokens


def story(place) -> dict[str, str]:
    """Everything that carries a token: what the people in it hold."""
    place.check_out("Jane")
    place.check_out("Slow+data_451")
    place.check_out("Gone+rcpt_550")
    place.customer("Joe")
    place.cron("issue-qr")
    place.work()
    welcome = next(mail for mail in place.mails("jane@") if "Welcome" in mail.message["Subject"])
    deep, correction = deep_token(text_of(welcome)), correction_token(text_of(welcome))
    answer = place.consume(correction)
    place.consume(correction)
    place.consume("guess-of-somebody-else")
    place.telegram(f"/start {deep}", update=1)
    place.telegram("/start another-guess", update=2, chat=78)
    place.telegram("/today", update=3)
    place.work()
    code = scan(picture_of(next(mail for mail in place.mails("jane@") if "QR" in mail.message["Subject"])))
    place.redeem(code)
    place.redeem(code)
    place.call("GET", f"/today/{code}")
    place.call("GET", f"/handle/update/{correction}")
    (link,) = [text for text in place.chats() if "/today/" in text]
    assert code in link
    return {
        "deep": deep,
        "correction": correction,
        "new deep": deep_token(answer.body["telegram_link"]),
        "code": code,
        "signature of the code": code.rpartition(".")[2],
    }


def dump(place) -> str:
    """Every row of every table, as text, and what is base64 in it once more, decoded."""
    tables = place.rows(
        "select format('%I.%I', n.nspname, c.relname) from pg_class as c join pg_namespace as n on n.oid = c.relnamespace "
        " where c.relkind = 'r' and n.nspname in ('meals', 'onceward')"
    )
    text = "\n".join(
        str(row) for (table,) in tables for row in place.rows(f"select t::text from {table} as t")
    )
    decoded = []
    for found in re.findall(r"[A-Za-z0-9+/]{24,}={0,2}", text):
        whole = found.rstrip("=")
        data = base64.b64decode(found if len(found) % 4 == 0 else whole[: len(whole) // 4 * 4])
        # Pictures are looked at as a scanner would.
        decoded.append(scan(data) if data.startswith(b"\x89PNG") else data.decode("latin-1"))
    return text + "\n".join(decoded)


def test_a_dump_of_the_database_contains_no_token_that_can_be_used(place):
    held = story(place)

    text = dump(place)

    # The messages are in it, and so are those that wait.
    assert "Welcome to Frontier Meals" in text
    assert "[sealed:" in text
    for name, token in held.items():
        assert token not in text, name
    assert "t.me/frontiermealsbot?start=" not in text
    # Whatever in it looks like a token is tried, as each kind of token.
    tried = set(re.findall(r"[A-Za-z0-9_.=-]{20,600}", text))
    assert len(tried) > 100
    chats = place.value("select count(*) from meals.telegram_links")
    for number, candidate in enumerate(tried):
        assert place.call("GET", f"/handle/update/{candidate.replace('/', '')}").body["code"] == "INVALID"
        assert place.redeem(candidate).body["code"] == "INVALID"
        if number % 10 == 0:
            place.telegram(f"/start {candidate}", update=1000 + number, chat=5000 + number)
    assert place.value("select count(*) from meals.telegram_links") == chats


def test_pg_dump_says_the_same(place, onceward_server):
    programs = getattr(onceward_server.embedded, "bin_dir", None)
    program = Path(programs) / "pg_dump" if programs else None
    if program is None or not program.exists():
        pytest.skip("no pg_dump beside the server")
    held = story(place)

    text = subprocess.run([program, place.kit.dsn], check=True, capture_output=True, text=True).stdout

    assert "Welcome to Frontier Meals" in text
    assert [name for name, token in held.items() if token in text] == []


def test_no_token_address_or_secret_is_in_any_log(place, log, capfd):
    held = story(place)
    place.clock.advance("1 hour")
    place.work()

    printed = capfd.readouterr()
    lines = [*log(), printed.out, printed.err]

    assert any("qr_redeemed" in line for line in lines)
    assert any("delivery_not_sent" in line for line in lines)
    private = [
        *held.values(),
        "jane@example.com",
        "guess-of-somebody-else",
        "another-guess",
        STRIPE,
        TELEGRAM,
        KIOSK,
        "@correcthandle",
    ]
    assert [(line, secret) for line in lines for secret in private if secret in line] == []


def test_a_worker_without_the_key_sends_nothing_that_is_sealed(place):
    place.check_out()
    other = replace(SETTINGS, seal_keys=(Fernet.generate_key().decode(),))
    with Place(place.kit, place.mail_sink, place.chat_sink, settings=other) as stranger:
        stranger.work()
    assert place.mails() == []
    assert place.rows("select status, last_error from meals.email_retry") == [
        ("pending", "sealed: this worker has no key that opens the message")
    ]

    place.clock.advance("5 minutes")
    place.work()
    assert deep_token(text_of(place.mails("jane@")[0]))
