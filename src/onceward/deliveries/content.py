"""What callers give, as checked content.  Errors name the field and the rule, never the value: it may be private."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from email import policy
from email.errors import MessageError
from typing import Any
from urllib.parse import urlsplit

from onceward import jsonsafe
from onceward.errors import InvalidArgument, PayloadTooLarge
from onceward.model import Json

MOST_ATTACHED = 5 * 1024 * 1024
MOST_SUBJECT = 500
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_LOCAL = re.compile(r"[^\s\x00-\x1f\x7f@<>(),;:\"\\\[\]]{1,64}")
_DOMAIN = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?")
_CONTENT_ID = re.compile(r"[A-Za-z0-9._-]{1,100}")
_TARGET = re.compile(r"(email|slack|telegram|webhook):(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file that goes with an email.  With a `content_id`, it is shown where the html says `<img src="cid:…">`."""

    filename: str
    content: bytes = field(repr=False)
    type: str = "application/octet-stream"
    content_id: str | None = None


def email(given: Mapping[str, Any]) -> dict[str, Json]:
    content: dict[str, Json] = {}
    content["to"], to_name = parse_address("to", given.get("to"))
    if to_name:
        content["to_name"] = to_name
    if given.get("sender") is not None:
        content["from"], from_name = parse_address("sender", given["sender"])
        if from_name:
            content["from_name"] = from_name
    if given.get("reply_to") is not None:
        content["reply_to"], _ = parse_address("reply_to", given["reply_to"])
    subject = header("subject", given.get("subject"))
    if len(subject) > MOST_SUBJECT:
        raise refused("subject", f"must be at most {MOST_SUBJECT} characters")
    content["subject"] = subject
    for name in ("text", "html"):
        if given.get(name) is not None:
            content[name] = text(name, given[name])
    if "text" not in content and "html" not in content:
        raise refused("text", "is missing", hint="Give text, html or both.")
    if given.get("attachments"):
        content["attachments"] = attachments(given["attachments"])
    return content


def slack(given: Mapping[str, Any]) -> dict[str, Json]:
    content: dict[str, Json] = {"text": text("text", given.get("text"))}
    if given.get("to") is not None:
        content["to"] = header("to", given["to"])
    if given.get("blocks") is not None:
        content["blocks"] = given["blocks"]
    return content


def telegram(given: Mapping[str, Any]) -> dict[str, Json]:
    chat = given.get("chat_id")
    if isinstance(chat, bool) or not isinstance(chat, (int, str)):
        raise refused("chat_id", "must be a number, or the @name of a channel")
    content: dict[str, Json] = {"chat_id": chat, "text": text("text", given.get("text"))}
    if given.get("photo") is not None:
        (content["photo"],) = attachments([given["photo"]], name="photo")
    if given.get("parse_mode") is not None:
        content["parse_mode"] = given["parse_mode"]
    if given.get("silent"):
        content["silent"] = True
    return content


def webhook(given: Mapping[str, Any]) -> dict[str, Json]:
    content: dict[str, Json] = {"url": web_address("url", given.get("url")), "payload": given.get("payload")}
    if given.get("secret") is not None:
        content["secret"] = header("secret", given["secret"])
    return content


MAKERS = {"email": email, "slack": slack, "telegram": telegram, "webhook": webhook}


def target(given: str | Mapping[str, Json], name: str = "alerts_to") -> dict[str, Json]:
    """Whom to tell: `email:ops@example.com`, `slack:` or `slack:name`, `telegram:chat`, `webhook:url`; or kind and content."""
    if not isinstance(given, str):
        return dict(given)
    found = _TARGET.fullmatch(given)
    if found is None:
        raise refused(
            name,
            "must be like email:ops@example.com, slack:ops, telegram:@ops or webhook:https://example.com/hook",
        )
    kind, to = found.groups()
    if kind == "email":
        address, _ = parse_address(name, to)
        return {"kind": kind, "content": {"to": address}}
    if kind == "slack":
        return {"kind": kind, "content": {"to": to} if to else {}}
    if kind == "telegram":
        return {"kind": kind, "content": {"chat_id": to}}
    return {"kind": kind, "content": {"url": web_address(name, to)}}


def parse_address(name: str, given: object) -> tuple[str, str]:
    """One address and its display name, from `a@example.com` or `Jane <a@example.com>`."""
    value = header(name, given)
    rule = "must be one address such as jane@example.com or Jane <jane@example.com>"
    try:
        parsed = policy.default.header_factory("to", value)
        (group,) = parsed.groups
        (address,) = group.addresses
    except (ValueError, IndexError, MessageError):
        raise refused(name, rule) from None
    try:
        domain = address.domain.encode("idna").decode("ascii") if address.domain else ""
    except UnicodeError:
        domain = ""
    if (
        parsed.defects
        or group.display_name is not None
        or not _LOCAL.fullmatch(address.username)
        or not _DOMAIN.fullmatch(domain)
    ):
        raise refused(name, rule)
    if not address.username.isascii():
        raise refused(name, "must be in ASCII before the @")
    return f"{address.username}@{domain}", address.display_name[:200]


def web_address(name: str, given: object) -> str:
    """A URL that can be called.  Whether it may be, the sender decides: by its settings, and by where the name leads then."""
    value = header(name, given)
    try:
        parts = urlsplit(value)
        is_good = parts.scheme in ("https", "http") and bool(parts.hostname) and parts.username is None
        parts.port  # noqa: B018 - reading it is the check
    except ValueError:
        is_good = False
    if not is_good:
        raise refused(name, "must be a URL such as https://example.com/hook, without a user name")
    return value


def header(name: str, given: object) -> str:
    """A text for a header: one line, without control characters."""
    value = text(name, given)
    if _CONTROL.search(value):
        raise refused(name, "must not contain control characters")
    return value


def text(name: str, given: object) -> str:
    if not isinstance(given, str) or not given.strip():
        raise refused(name, "is missing" if given is None else "must be a text that is not empty")
    if jsonsafe.printable(given) != given:
        raise refused(name, "must not contain NUL or lone surrogates")
    return given


def attachments(given: Sequence[Attachment], *, name: str = "attachments") -> list[Json]:
    listed = list(given)
    if not all(isinstance(item, Attachment) and isinstance(item.content, bytes) for item in listed):
        what = "a list of " if name == "attachments" else "an "
        raise refused(name, f"must be {what}Attachment(filename, content, type)")
    total = sum(len(item.content) for item in listed)
    if total > MOST_ATTACHED:
        raise PayloadTooLarge(
            f"{name} must be at most {MOST_ATTACHED} bytes together, got {total}",
            detail="Nothing was written.",
            hint="Send a link instead.",
        )
    return [_attachment(item) for item in listed]


def _attachment(item: Attachment) -> dict[str, Json]:
    made: dict[str, Json] = {
        "filename": header("filename", item.filename),
        "type": header("type", item.type),
        "content": base64.b64encode(item.content).decode("ascii"),
    }
    if item.content_id is not None:
        if not isinstance(item.content_id, str) or not _CONTENT_ID.fullmatch(item.content_id):
            raise refused("content_id", "must be 1 to 100 letters, digits, dots, dashes or underscores")
        made["content_id"] = item.content_id
    return made


def refused(name: str, rule: str, *, hint: str | None = None) -> InvalidArgument:
    return InvalidArgument(
        f"{name} of the delivery {rule}", detail="Nothing was written.", hint=hint or f"Correct {name}."
    )
