"""What the services that are reached by HTTP may do, and what is known afterwards."""

from __future__ import annotations

import base64
from dataclasses import replace
from datetime import timedelta
from email import policy
from email.parser import BytesParser

import pytest

from onceward.deliveries import NotSent, Resend, Sent, Slack, Telegram
from onceward.errors import InvalidArgument
from tests.deliveries.conftest import LONG, MAIL, SHORT, send
from tests.deliveries.sinks import HttpSink

CHAT = {"chat_id": 42, "text": "Hello"}


@pytest.fixture(params=["resend", "slack", "telegram"])
def way(request, http_sink):
    """A provider, and the content that makes the sink obey a command."""
    match request.param:
        case "resend":
            provider = Resend("key", "Shop <shop@example.com>", http_sink.url)
            return provider, lambda command: {**MAIL, "subject": f"#{command}"}
        case "slack":
            return Slack({"default": f"{http_sink.url}/hook"}), lambda command: {"text": f"#{command}"}
        case _:
            return Telegram("123:token", http_sink.url), lambda command: {**CHAT, "text": f"#{command}"}


def test_success(way, http_sink):
    provider, content = way

    assert isinstance(send(provider, content("fine")), Sent)
    assert len(http_sink.kept) == 1


@pytest.mark.parametrize(
    ("command", "category", "permanent", "unclear"),
    [
        ("s400", "refused", True, False),
        ("s404", "refused", True, False),
        ("s422", "refused", True, False),
        ("s401", "auth", False, False),
        ("s408", "server", False, False),
        ("s429", "rate_limited", False, False),
        ("s500", "server", False, False),
        ("s503", "server", False, False),
        ("s502", "gateway", False, True),
        ("s504", "gateway", False, True),
        ("redirect", "redirect", True, False),
        ("drop", "no_reply", False, True),
        ("drop_after", "no_reply", False, True),
        ("hang", "no_reply", False, True),
        ("hang_after", "no_reply", False, True),
        ("drip", "no_reply", False, True),
    ],
)
def test_every_failure_is_told_apart(way, http_sink, command, category, permanent, unclear):
    provider, content = way
    hangs = command.startswith(("hang", "drip"))

    report = send(replace(provider, timeout=SHORT if hangs else LONG), content(command))

    assert (report.category, report.permanent, report.unclear) == (category, permanent, unclear)
    assert len(http_sink.hits) == 1


def test_nobody_there(way):
    provider, content = way
    with HttpSink() as gone:
        port = gone.port
    nowhere = f"http://127.0.0.1:{port}"
    provider = {
        "resend": Resend("key", "s@example.com", nowhere),
        "slack": Slack({"default": nowhere}),
        "telegram": Telegram("123:token", nowhere),
    }[provider.name]

    report = send(provider, content("fine"))

    assert (report.category, report.permanent, report.unclear) == ("connection", False, False)


def test_an_answer_without_end_is_read_only_so_far(way, http_sink):
    provider, content = way

    assert isinstance(send(provider, content("huge")), Sent)


def test_retry_after_in_seconds_and_as_a_date_and_never_more_than_a_day(way):
    provider, content = way

    assert send(provider, content("s429")).retry_after == timedelta(seconds=120)
    assert send(provider, content("s429_date")).retry_after == timedelta(days=1)


def test_telegram_says_itself_when_to_come_back(http_sink):
    http_sink.reply = {"ok": False, "parameters": {"retry_after": 35}}

    report = send(Telegram("123:token", http_sink.url), {**CHAT, "text": "#r429"})

    assert (report.category, report.retry_after) == ("rate_limited", timedelta(seconds=35))


def test_resend_gets_the_same_idempotency_key_in_every_try_and_the_whole_mail(http_sink):
    provider = Resend("key", "Shop <shop@example.com>", http_sink.url)
    mail = {
        **MAIL, "to_name": "Jane", "html": "<p>Hello</p>", "reply_to": "help@example.com",
        "attachments": [
            {"filename": "a.txt", "type": "text/plain", "content": "aGk="},
            {"filename": "b.png", "type": "image/png", "content": "aGk=", "content_id": "code"},
        ],
    }  # fmt: skip

    first, second = send(provider, mail), send(provider, mail, tries=2)

    assert first == second == Sent("49a3999c-0ce1-4ea6-ab68-afcd6dc2e794")
    one, two = http_sink.hits
    assert (one.path, one.headers["authorization"]) == ("/emails", "Bearer key")
    assert one.headers["idempotency-key"] == two.headers["idempotency-key"]
    assert one.headers["idempotency-key"] == "onceward/00000000-0000-0000-0000-000000000007"
    assert one.body == two.body
    assert one.json["from"] == "Shop <shop@example.com>"
    assert one.json["to"] == ["Jane <jane@example.com>"]
    assert one.json["attachments"] == [
        {"filename": "a.txt", "content": "aGk=", "content_type": "text/plain"},
        {"filename": "b.png", "content": "aGk=", "content_type": "image/png", "content_id": "code"},
    ]


def test_slack_and_telegram_send_what_they_were_given(http_sink):
    http_sink.reply = {"ok": True, "result": {"message_id": 99}}
    slack, telegram = Slack({"ops": f"{http_sink.url}/ops"}), Telegram("123:token", http_sink.url)

    assert send(slack, {"to": "ops", "text": "Hi", "blocks": []}) == Sent()
    assert send(telegram, {**CHAT, "parse_mode": "HTML", "silent": True}) == Sent("99")

    chat, bot = http_sink.hits
    assert (chat.path, chat.json) == ("/ops", {"text": "Hi", "blocks": []})
    assert bot.path == "/bot123:token/sendMessage"
    assert bot.json == {"chat_id": 42, "text": "Hello", "parse_mode": "HTML", "disable_notification": True}


def test_telegram_sends_a_picture_with_its_caption(http_sink):
    http_sink.reply = {"ok": True, "result": {"message_id": 99}}
    picture = bytes(range(256))
    photo = {"filename": 'a"b.png', "type": "image/png", "content": base64.b64encode(picture).decode()}

    assert send(Telegram("123:token", http_sink.url), {**CHAT, "silent": True, "photo": photo}) == Sent("99")

    (hit,) = http_sink.hits
    assert hit.path == "/bot123:token/sendPhoto"
    head = b"Content-Type: " + hit.headers["content-type"].encode() + b"\r\n\r\n"
    parts = {
        part.get_param("name", header="content-disposition"): part
        for part in BytesParser(policy=policy.HTTP).parsebytes(head + hit.body).iter_parts()
    }
    fields = {name: part.get_payload(decode=True) for name, part in parts.items()}
    assert fields == {
        "chat_id": b"42", "caption": b"Hello", "disable_notification": b"true", "photo": picture,
    }  # fmt: skip
    assert (parts["photo"].get_content_type(), parts["photo"].get_filename()) == ("image/png", "photo")


def test_a_webhook_that_this_worker_does_not_know_waits(http_sink):
    report = send(Slack({"default": http_sink.url}), {"to": "ops", "text": "Hi"})

    assert (report.category, report.permanent) == ("configuration", False)
    assert isinstance(report, NotSent)


@pytest.mark.parametrize(
    "make",
    [lambda: Resend("", "s@example.com"), lambda: Resend("key", ""), lambda: Slack({}), lambda: Telegram(""),
     lambda: Slack({"default": "hooks.example/secret"})],
)  # fmt: skip
def test_what_is_missing_is_said_when_it_is_set_up(make):
    with pytest.raises(InvalidArgument) as raised:
        make()
    assert "secret" not in raised.value.message


def test_secrets_are_not_in_representations():
    shown = repr(
        [Resend("canary", "s@example.com"), Slack({"default": "https://canary"}), Telegram("canary")]
    )

    assert "canary" not in shown
