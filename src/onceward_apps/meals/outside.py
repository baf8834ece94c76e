"""What comes in from Stripe and Telegram: whether it is theirs, and what it says."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from onceward import jsonsafe
from onceward_apps.meals.domain import parse_handle

# How old a signed call may be, or how far ahead.
TOLERANCE = timedelta(seconds=300)
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
STATUSES = frozenset({
    "incomplete", "incomplete_expired", "trialing", "active", "past_due", "canceled", "unpaid", "paused",
})  # fmt: skip


def is_secret(given: str | None, secret: str) -> bool:
    """Compared in constant time."""
    return given is not None and hmac.compare_digest(given.encode(), secret.encode())


def bearer(headers: Mapping[str, str]) -> str | None:
    """What `Authorization: Bearer …` holds.  Header names are in lower case."""
    scheme, _, value = headers.get("authorization", "").partition(" ")
    return value.strip() if scheme.lower() == "bearer" and value.strip() else None


# ------------------------------------------------------------ Stripe


def signed_at(body: bytes, header: str, secret: str) -> datetime | None:
    """When Stripe signed this body, by its header; None when it did not.  Whether that is recent is for the caller."""
    pairs = [part.strip().partition("=") for part in header.split(",")]
    times = [value for name, _, value in pairs if name == "t"]
    if len(times) != 1 or not re.fullmatch(r"[0-9]{1,12}", times[0]):
        return None
    wanted = hmac.new(secret.encode(), f"{times[0]}.".encode() + body, hashlib.sha256).hexdigest()
    # Several while a secret is being changed.
    given = [value for name, _, value in pairs if name == "v1"]
    if not any(hmac.compare_digest(wanted.encode(), value.encode()) for value in given):
        return None
    return datetime.fromtimestamp(int(times[0]), UTC)


class Unusable(ValueError):
    """A true event that cannot be acted upon.  Says what is missing, without what was there."""


@dataclass(frozen=True, slots=True)
class StripeEvent:
    id: str
    type: str
    created: datetime
    object: Mapping[str, Any]

    @classmethod
    def parse(cls, body: bytes) -> StripeEvent:
        """Raises ValueError when it is not an event."""
        event = jsonsafe.loads(body.decode())
        if not isinstance(event, dict) or not isinstance(event.get("data"), dict):
            raise ValueError("not an event")  # noqa: TRY004 - one error for whatever is wrong with the body
        about = event["data"].get("object")
        name, kind, created = event.get("id"), event.get("type"), event.get("created")
        if not (
            isinstance(name, str) and 0 < len(name) <= 255 and isinstance(kind, str) and len(kind) <= 100
        ):
            raise ValueError("not an event")
        if not isinstance(created, int) or not 0 <= created < 10**11 or not isinstance(about, dict):
            raise ValueError("not an event")
        return cls(name, kind, datetime.fromtimestamp(created, UTC), about)

    def text(self, *path: str) -> str | None:
        """A text somewhere in the object."""
        found: Any = self.object
        for name in path:
            found = found.get(name) if isinstance(found, dict) else None
        # An expanded object stands for its id.
        if isinstance(found, dict):
            found = found.get("id")
        return found if isinstance(found, str) and 0 < len(found) <= 1000 else None


@dataclass(frozen=True, slots=True)
class Checkout:
    stripe_customer_id: str
    stripe_subscription_id: str
    email: str
    name: str
    handle: str | None


def checkout_of(event: StripeEvent) -> Checkout:
    """Raises Unusable."""
    customer, subscription = event.text("customer"), event.text("subscription")
    email = event.text("customer_details", "email") or event.text("customer_email")
    if not (customer and subscription and email):
        missing = [
            name
            for name, value in (("customer", customer), ("subscription", subscription), ("email", email))
            if not value
        ]
        raise Unusable(f"{', '.join(missing)} missing")
    name = _CONTROLS.sub(" ", event.text("customer_details", "name") or "").strip()[:200]
    return Checkout(customer, subscription, email, name or "there", _handle_of(event))


def _handle_of(event: StripeEvent) -> str | None:
    """From the metadata, or from the field that the customer filled in.  A handle without its @ gets one."""
    given = event.text("metadata", "telegram_handle")
    fields = event.object.get("custom_fields")
    for item in fields if isinstance(fields, list) else ():
        if (
            isinstance(item, dict)
            and item.get("key") == "telegram_handle"
            and isinstance(item.get("text"), dict)
        ):
            given = given or item["text"].get("value")
    if not isinstance(given, str):
        return None
    return parse_handle(given) or parse_handle(f"@{given.strip()}")


# ------------------------------------------------------------ Telegram


@dataclass(frozen=True, slots=True)
class TelegramUpdate:
    update_id: int
    # Of a private chat; None for everything else, which is not answered.
    chat_id: int | None
    command: str
    argument: str

    @classmethod
    def parse(cls, body: bytes) -> TelegramUpdate:
        """Raises ValueError when it is not an update."""
        update = jsonsafe.loads(body.decode())
        if not isinstance(update, dict):
            raise ValueError("not an update")  # noqa: TRY004 - one error for whatever is wrong with the body
        number = update.get("update_id")
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < 2**63:
            raise ValueError("not an update")
        message = update.get("message")
        chat = message.get("chat") if isinstance(message, dict) else None
        chat_id = chat.get("id") if isinstance(chat, dict) and chat.get("type") == "private" else None
        if isinstance(chat_id, bool) or not isinstance(chat_id, int) or not -(2**63) <= chat_id < 2**63:
            chat_id = None
        text = message.get("text") if isinstance(message, dict) else None
        words = text.split(maxsplit=1) if isinstance(text, str) else []
        # In groups, a command names its bot: /today@frontiermealsbot.
        command = words[0].partition("@")[0] if words else ""
        return cls(number, chat_id, command, words[1].strip() if len(words) > 1 else "")
