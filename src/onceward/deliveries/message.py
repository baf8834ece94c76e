"""An email as bytes: the same bytes in every try."""

from __future__ import annotations

import base64
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime, formataddr
from typing import cast

from onceward.deliveries.outgoing import Outgoing
from onceward.model import Json

# Any server takes seven bits; what it offers beyond that need not be asked.
_POLICY = SMTP.clone(cte_type="7bit")


def sender_of(content: dict[str, Json], default: tuple[str, str]) -> tuple[str, str]:
    """Address and name of the sender."""
    if content.get("from"):
        return content["from"], content.get("from_name") or ""
    return default


def formatted(address: str, name: str | None) -> str:
    return formataddr((name, address)) if name else address


def message_id(outgoing: Outgoing, sender: str) -> str:
    """Made of the delivery's id, so that receivers and logs know a second try by it."""
    return f"<{outgoing.id}@{sender.rpartition('@')[2]}>"


def build(outgoing: Outgoing, default_sender: tuple[str, str]) -> EmailMessage:
    """Raises ValueError when the content cannot be a message."""
    content = outgoing.content
    sender, sender_name = sender_of(content, default_sender)
    message = EmailMessage(policy=_POLICY)
    message["From"] = Address(display_name=sender_name, addr_spec=sender)
    message["To"] = Address(display_name=content.get("to_name") or "", addr_spec=content["to"])
    if content.get("reply_to"):
        message["Reply-To"] = Address(addr_spec=content["reply_to"])
    message["Subject"] = content["subject"]
    message["Date"] = format_datetime(outgoing.first_try_at)
    message["Message-ID"] = message_id(outgoing, sender)
    message["Auto-Submitted"] = "auto-generated"
    if content.get("text") is not None:
        message.set_content(content["text"])
        if content.get("html") is not None:
            message.add_alternative(content["html"], subtype="html")
    else:
        message.set_content(content["html"], subtype="html")
    # Pictures belong to the html part, and come before the files beside it.
    for item in sorted(content.get("attachments") or (), key=lambda item: "content_id" not in item):
        _attach(message, item)
    for number, part in enumerate(message.walk()):
        if part.is_multipart():
            part.set_boundary(f"=_{outgoing.id.hex}_{number}")
    return message


def _attach(message: EmailMessage, item: dict[str, Json]) -> None:
    main, _, sub = (item.get("type") or "application/octet-stream").partition("/")
    data = base64.b64decode(item["content"], validate=True)
    # The html, or the html with the pictures that it has already.
    body = cast("EmailMessage | None", message.get_body(("related", "html")))
    if item.get("content_id") and body is not None:
        body.add_related(
            data,
            maintype=main,
            subtype=sub,
            cid=f"<{item['content_id']}>",
            filename=item["filename"],
            disposition="inline",
        )
    else:
        message.add_attachment(data, maintype=main, subtype=sub, filename=item["filename"])
