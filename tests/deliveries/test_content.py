"""What callers may give, and what becomes of it."""

from __future__ import annotations

import pytest

from onceward.deliveries import Attachment, NotSent, Outbox, Sent
from onceward.deliveries.content import email, target, telegram, webhook
from onceward.deliveries.message import build
from onceward.errors import InvalidArgument, PayloadTooLarge
from tests.deliveries.conftest import MAIL, outgoing, send

GIVEN = {"to": "jane@example.com", "subject": "Welcome", "text": "Hello"}


@pytest.mark.parametrize(
    ("given", "address", "name"),
    [
        ("jane@example.com", "jane@example.com", None),
        ("Jane <jane@example.com>", "jane@example.com", "Jane"),
        ('"Doe, Jane" <jane+x@example.com>', "jane+x@example.com", "Doe, Jane"),
        ("Zoë <zoe@bücher.example>", "zoe@xn--bcher-kva.example", "Zoë"),
    ],
)
def test_one_recipient_with_or_without_a_name(given, address, name):
    content = email({**GIVEN, "to": given})

    assert (content["to"], content.get("to_name")) == (address, name)


@pytest.mark.parametrize(
    "to",
    ["", "canary", "canary@", "@canary.example", "canary@example.com, b@example.com", "canary@example.com;b@example.com",
     "a@b@canary.example", "canary@example.com\nBcc: b@example.com", "Group: canary@example.com;", "<canary@example.com",
     "cänary@example.com", 42, None, ["canary@example.com"]],
)  # fmt: skip
def test_anything_but_one_recipient_is_refused_without_repeating_it(to):
    with pytest.raises(InvalidArgument, match="to of the delivery") as raised:
        email({**GIVEN, "to": to})
    assert "canary" not in str(raised.value)


@pytest.mark.parametrize(
    "wrong",
    [{"subject": "a\r\nBcc: canary@example.com"}, {"subject": "canary" * 100}, {"subject": ""}, {"text": None},
     {"text": "canary\x00"}, {"sender": "canary"}, {"reply_to": "canary"}, {"attachments": ["canary"]},
     {"attachments": [Attachment("canary\n.txt", b"")]}, {"attachments": [Attachment("a", b"", content_id="canary>")]}],
)  # fmt: skip
def test_bad_fields_are_refused_without_repeating_them(wrong):
    with pytest.raises(InvalidArgument) as raised:
        email({**GIVEN, **wrong})
    assert "canary" not in str(raised.value)


@pytest.mark.parametrize(
    "photo", [b"canary", "canary", Attachment("canary\n.png", b""), Attachment("a", "canary")]
)
def test_a_photo_that_is_none_is_refused_without_repeating_it(photo):
    with pytest.raises(InvalidArgument) as raised:
        telegram({"chat_id": 42, "text": "Hi", "photo": photo})
    assert "canary" not in str(raised.value)


def test_attachments_have_a_cap():
    with pytest.raises(PayloadTooLarge, match="5242880 bytes together"):
        email({**GIVEN, "attachments": [Attachment("a", b"x" * 2_700_000)] * 2})


def test_a_message_with_everything_is_the_same_in_every_try():
    content = email({
        **GIVEN, "to": "Zoë <zoe@example.com>", "subject": "Grüße", "html": "<p>Hi</p>", "reply_to": "help@example.com",
        "sender": "Büro <office@example.com>", "attachments": [Attachment("é.pdf", b"%PDF", "application/pdf")],
    })  # fmt: skip

    first, second = (build(outgoing(content, tries=n), ("x@example.com", "")) for n in (1, 2))

    assert first.as_bytes() == second.as_bytes()
    assert first["From"] == "Büro <office@example.com>"
    assert first["Message-ID"].endswith("@example.com>")
    assert first.get_body(("plain",)).get_content() == "Hello\n"
    assert first.get_body(("html",)).get_content() == "<p>Hi</p>\n"
    (attached,) = first.iter_attachments()
    assert (attached.get_filename(), attached.get_content()) == ("é.pdf", b"%PDF")
    assert first.as_bytes().isascii()


def test_pictures_with_a_content_id_belong_to_the_html_and_files_stay_beside_it():
    content = email({
        **GIVEN, "html": '<img src="cid:code">', "attachments": [
            Attachment("a.pdf", b"%PDF", "application/pdf"), Attachment("code.png", b"png", "image/png", content_id="code"),
            Attachment("logo.png", b"logo", "image/png", content_id="logo"),
        ],
    })  # fmt: skip

    first, second = (build(outgoing(content, tries=n), ("x@example.com", "")) for n in (1, 2))

    assert first.as_bytes() == second.as_bytes()
    shape = [part.get_content_type() for part in first.walk()]
    assert shape == [
        "multipart/mixed", "multipart/alternative", "text/plain", "multipart/related", "text/html", "image/png",
        "image/png", "application/pdf",
    ]  # fmt: skip
    pictures = [part for part in first.walk() if part.get_content_type() == "image/png"]
    assert [part["Content-ID"] for part in pictures] == ["<code>", "<logo>"]
    assert [part.get_content_disposition() for part in pictures] == ["inline", "inline"]
    assert [part.get_content() for part in pictures] == [b"png", b"logo"]
    assert [part.get_filename() for part in first.iter_attachments()] == ["a.pdf"]


def test_a_picture_without_html_is_a_file():
    content = email(
        {**GIVEN, "attachments": [Attachment("code.png", b"png", "image/png", content_id="code")]}
    )

    (attached,) = build(outgoing(content), ("x@example.com", "")).iter_attachments()

    assert attached.get_filename() == "code.png"


def test_the_outbox_holds_one_whole_file_per_delivery(tmp_path):
    outbox = Outbox(tmp_path / "out")

    assert send(outbox) == send(outbox, tries=2) == Sent("00000000-0000-0000-0000-000000000007.eml")

    (file,) = (tmp_path / "out").iterdir()
    assert b"Hello Jane" in file.read_bytes()
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o700


def test_an_outbox_that_cannot_be_written_is_tried_again(tmp_path):
    (tmp_path / "file").write_text("in the way")

    report = send(Outbox(tmp_path / "file" / "out"))

    assert (report.category, report.permanent, report.unclear) == ("disk", False, False)


def test_content_that_is_no_message_is_abandoned(tmp_path):
    report = send(Outbox(tmp_path), {**MAIL, "attachments": [{"filename": "a", "content": "%"}]})

    assert report == NotSent("content", "the content cannot be made into a message", permanent=True)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("email:ops@example.com", {"kind": "email", "content": {"to": "ops@example.com"}}),
        ("slack:", {"kind": "slack", "content": {}}),
        ("slack:ops", {"kind": "slack", "content": {"to": "ops"}}),
        ("telegram:-100", {"kind": "telegram", "content": {"chat_id": "-100"}}),
        ({"kind": "slack", "content": {}}, {"kind": "slack", "content": {}}),
        (
            "webhook:https://example.com:8443/hook?a=1",
            {"kind": "webhook", "content": {"url": "https://example.com:8443/hook?a=1"}},
        ),
    ],
)
def test_targets_of_alerts(given, meant):
    assert target(given) == meant


def test_an_unknown_target_of_alerts_is_refused():
    with pytest.raises(InvalidArgument, match="alerts_to"):
        target("fax:canary")


@pytest.mark.parametrize(
    "url",
    ["canary", "ftp://canary.example/", "https://", "https://canary.example:99999/", "https://canary.example:x/",
     "https://[canary/", "https://canary:x@example.com/", "", None, 7],
)  # fmt: skip
def test_a_url_that_nobody_can_call_is_refused_without_repeating_it(url):
    with pytest.raises(InvalidArgument, match="url of the delivery") as raised:
        webhook({"url": url, "payload": {}})
    assert "canary" not in str(raised.value)
    with pytest.raises(InvalidArgument, match="alerts_to") as raised:
        target(f"webhook:{url}")
    assert "canary" not in str(raised.value)
