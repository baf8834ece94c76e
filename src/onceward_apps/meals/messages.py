"""What customers read: emails and chat messages, entered into the ledger in the caller's transaction.

Links and codes are sealed, see sealing.py.  Keys are made of template, customer and day or cause, so that whatever happens
twice sends once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from email.utils import formataddr
from html import escape
from typing import Any

from onceward.deliveries import Attachment, DeliveryClient
from onceward_apps.kit import qr
from onceward_apps.meals import store
from onceward_apps.meals.domain import QrKeys, QrToken
from onceward_apps.meals.sealing import Seal
from onceward_apps.meals.settings import Settings
from onceward_apps.meals.store import Connection, Customer

# Five pixels for a module of a code with 420 characters: read from a phone at arm's length.
QR_PIXELS = 480
_STYLE = "font-family:sans-serif;font-size:16px;line-height:1.5;max-width:34em;margin:0 auto;padding:16px"
_BUTTON = "display:inline-block;padding:12px 20px;border-radius:6px;background:black;color:white;text-decoration:none"


@dataclass(frozen=True, slots=True)
class Link:
    """A line that leads somewhere.  The address is sealed."""

    label: str
    url: str


@dataclass(frozen=True, slots=True)
class Letter:
    """One email: paragraphs, links and at most one picture, as text and as html."""

    template: str
    key: str
    subject: str
    parts: Sequence[str | Link]
    picture: bytes | None = field(default=None, repr=False)
    picture_text: str = ""
    expires_at: datetime | None = None

    def text(self) -> str:
        return "\n\n".join(
            part if isinstance(part, str) else f"{part.label}:\n{part.url}" for part in self.parts
        )

    def html(self) -> str:
        shown = [
            f"<p>{escape(part)}</p>"
            if isinstance(part, str)
            else f'<p><a href="{escape(part.url)}" style="{_BUTTON}">{escape(part.label)}</a></p>'
            for part in self.parts
        ]
        if self.picture is not None:
            # First: it is what is held under the scanner.
            size = QR_PIXELS // 2
            shown.insert(
                0,
                f'<p><img src="cid:qr" width="{size}" height="{size}" alt="{escape(self.picture_text)}"></p>',
            )
        return (
            f'<!doctype html><html lang="en"><body><div style="{_STYLE}">{"".join(shown)}</div></body></html>'
        )


class Messages:
    """Enters messages into the ledger.  Every method works in the transaction of its connection."""

    def __init__(self, settings: Settings, keys: QrKeys, seal: Seal, ledger: DeliveryClient) -> None:
        self._settings = settings
        self._keys = keys
        self._seal = seal
        self._ledger = ledger

    # ------------------------------------------------------------ where links lead

    def deep_link(self, token: str) -> str:
        return f"https://t.me/{self._settings.bot}?start={token}"

    def correction_link(self, token: str) -> str:
        return f"{self._settings.base_url}/handle/update/{token}"

    def today_link(self, token: QrToken) -> str:
        return f"{self._settings.base_url}/today/{self._keys.sign(token)}"

    # ------------------------------------------------------------ emails

    def welcome(
        self,
        connection: Connection,
        customer: Customer,
        *,
        event_id: str,
        handle: str | None,
        deep: str,
        correction: str,
    ) -> None:
        known = (
            f"You told us that your Telegram handle is {handle}."
            if handle
            else "We could not read your Telegram handle."
        )
        self._send(
            connection,
            customer,
            Letter(
                "welcome",
                f"welcome:{customer.id}:{event_id}",
                "Welcome to Frontier Meals",
                [
                    f"Hello {customer.name},",
                    "thank you for your subscription. Connect your Telegram account to get your meals:",
                    Link("Open Telegram Bot", self._seal.text(self.deep_link(deep))),
                    f"{known} If that is not right, correct it here:",
                    Link("Correct your handle", self._seal.text(self.correction_link(correction))),
                    "Both links work once, within 7 days.",
                ],
            ),
        )

    def handle_updated(
        self, connection: Connection, customer: Customer, *, cause: str, handle: str, deep: str
    ) -> None:
        self._send(
            connection,
            customer,
            Letter(
                "handle_updated",
                f"handle_updated:{customer.id}:{cause}",
                "Your Telegram handle was updated",
                [
                    f"Hello {customer.name},",
                    f"your Telegram handle is now {handle}. Connect your account with this link:",
                    Link("Open Telegram Bot", self._seal.text(self.deep_link(deep))),
                    "It works once, within 7 days.",
                ],
            ),
        )

    def correction(self, connection: Connection, customer: Customer, *, cause: str, correction: str) -> None:
        """A new correction link, which somebody of the staff sends."""
        self._send(
            connection,
            customer,
            Letter(
                "handle_correction",
                f"handle_correction:{customer.id}:{cause}",
                "Correct your Telegram handle",
                [
                    f"Hello {customer.name},",
                    "tell us your Telegram handle here, and you get a new link to our bot:",
                    Link("Correct your handle", self._seal.text(self.correction_link(correction))),
                    "It works once, within 7 days.",
                ],
            ),
        )

    def qr(self, connection: Connection, customer: Customer, token: QrToken, *, again: int = 0) -> None:
        """The code of a day.  Only a person sends it `again`, under a key of its own."""
        day = spoken(token.service_date)
        self._send(
            connection,
            customer,
            Letter(
                "qr",
                f"qr:{customer.id}:{token.service_date}" + (f":{again}" if again else ""),
                f"Your meal QR code for {day}",
                [
                    f"Hello {customer.name},",
                    f"this is your code for {day}. Show it at the counter; it is good for one meal.",
                    Link("Show the code on a page", self._seal.text(self.today_link(token))),
                ],
                picture=qr.png(self._keys.sign(token), pixels=QR_PIXELS),
                picture_text=f"QR code for your meal on {day}",
                # Tomorrow it would be taken for tomorrow's.
                expires_at=token.expires_at,
            ),
        )

    def dunning(self, connection: Connection, customer: Customer, *, event_id: str) -> None:
        self._send(
            connection,
            customer,
            Letter(
                "dunning",
                f"dunning:{customer.id}:{event_id}",
                "Your payment did not go through",
                [
                    f"Hello {customer.name},",
                    "we could not collect the payment for your meals. Please check your card, so that your subscription goes on.",
                ],
            ),
        )

    def _send(self, connection: Connection, customer: Customer, letter: Letter) -> None:
        options: dict[str, Any] = {}
        if letter.picture is not None:
            sealed = self._seal.data(letter.picture)
            options["attachments"] = [Attachment("qr.png", sealed, "image/png", content_id="qr")]
        if letter.expires_at is not None:
            options["expires_at"] = letter.expires_at
        delivery = self._ledger.email(
            to=formataddr((customer.name, customer.email)),
            sender=self._settings.sender,
            subject=letter.subject,
            text=letter.text(),
            html=letter.html(),
            key=letter.key,
            connection=connection,
            **options,
        )
        tags = [{"name": "template", "value": letter.template}]
        store.note_email(connection, delivery.id, customer.id, letter.template, tags)

    # ------------------------------------------------------------ chat

    def reply(self, connection: Connection, chat_id: int, text: str, *, update_id: int) -> None:
        """Answer one update of Telegram."""
        self._ledger.telegram(chat_id=chat_id, text=text, key=f"telegram:{update_id}", connection=connection)

    def show_code(
        self, connection: Connection, chat_id: int, text: str, token: QrToken, *, update_id: int
    ) -> None:
        """Answer with the picture of the code, and with the page for who cannot see it."""
        picture = self._seal.data(qr.png(self._keys.sign(token), pixels=QR_PIXELS))
        self._ledger.telegram(
            chat_id=chat_id,
            text=f"{text}\n{self._seal.text(self.today_link(token))}",
            photo=Attachment("qr.png", picture, "image/png"),
            key=f"telegram:{update_id}",
            # Tomorrow it would be taken for tomorrow's.
            expires_at=token.expires_at,
            connection=connection,
        )


def dated(day: date) -> str:
    """Like Monday, November 16, 2026: for a day that may be of another year."""
    return f"{spoken(day)}, {day.year}"


def spoken(day: date) -> str:
    """Like Monday, November 16: the language of the messages, whatever the locale of the machine."""
    days = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
    months = (
        "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
        "December",
    )  # fmt: skip
    return f"{days[day.weekday()]}, {months[day.month - 1]} {day.day}"
