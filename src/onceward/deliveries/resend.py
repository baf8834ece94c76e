"""Email through the HTTP API of Resend, which keeps an idempotency key for a day."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import timedelta

from onceward.deliveries.content import parse_address
from onceward.deliveries.http import TIMEOUT, Request, failed, post
from onceward.deliveries.message import formatted, sender_of
from onceward.deliveries.outgoing import NotSent, Outgoing, Report, Sent
from onceward.errors import InvalidArgument
from onceward.model import Json

# Its own names of errors, which may be shown; its messages may repeat an address.
_KNOWN = frozenset({
    "invalid_idempotency_key", "validation_error", "missing_api_key", "restricted_api_key", "invalid_api_key",
    "not_found", "method_not_allowed", "invalid_idempotent_request", "concurrent_idempotent_requests",
    "invalid_attachment", "invalid_from_address", "invalid_access", "invalid_parameter", "invalid_region",
    "missing_required_field", "monthly_quota_exceeded", "daily_quota_exceeded", "rate_limit_exceeded",
    "security_error", "application_error", "internal_server_error",
})  # fmt: skip
# May pass later, in spite of a status that says otherwise.
_LATER = frozenset({
    "concurrent_idempotent_requests", "daily_quota_exceeded", "monthly_quota_exceeded", "invalid_api_key",
    "missing_api_key", "restricted_api_key",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Resend:
    """`api_key` is Resend's; the sender's domain has to be verified there."""

    api_key: str = field(repr=False)
    sender: str = ""
    base_url: str = "https://api.resend.com"
    timeout: timedelta = TIMEOUT

    name = "resend"
    # An hour less than Resend keeps a key, for clocks that differ.
    idempotent_for = timedelta(hours=23)

    def __post_init__(self) -> None:
        if not self.api_key:
            raise InvalidArgument("API key of Resend is missing", hint="Set RESEND_API_KEY.")
        if not self.sender:
            raise InvalidArgument("sender of emails is missing", hint="Set ONCEWARD_EMAIL_FROM.")
        parse_address("sender", self.sender)

    async def send(self, outgoing: Outgoing) -> Report:
        answer = await post(
            Request(
                f"{self.base_url}/emails",
                json.dumps(self._body(outgoing)).encode(),
                {
                    "Authorization": f"Bearer {self.api_key}",
                    "Content-Type": "application/json",
                    "Idempotency-Key": outgoing.idempotency_key,
                },
                self.timeout,
            )
        )
        if isinstance(answer, NotSent):
            return answer
        problem = failed(answer, now=outgoing.sending_at)
        if problem is None:
            ref = answer.field("id")
            return Sent(ref[:100] if isinstance(ref, str) and ref.replace("-", "").isalnum() else None)
        named = answer.field("name")
        if named in _KNOWN:
            return NotSent(
                problem.category,
                f"{problem.message} ({named})",
                permanent=problem.permanent and named not in _LATER,
                unclear=problem.unclear,
                retry_after=problem.retry_after,
            )
        return problem

    def _body(self, outgoing: Outgoing) -> dict[str, Json]:
        content = outgoing.content
        sender, name = sender_of(content, parse_address("sender", self.sender))
        body: dict[str, Json] = {
            "from": formatted(sender, name),
            "to": [formatted(content["to"], content.get("to_name"))],
            "subject": content["subject"],
            "headers": {"Auto-Submitted": "auto-generated"},
        }
        for field_name in ("text", "html", "reply_to"):
            if content.get(field_name) is not None:
                body[field_name] = content[field_name]
        if content.get("attachments"):
            body["attachments"] = [
                {"filename": item["filename"], "content": item["content"], "content_type": item.get("type")}
                | ({"content_id": item["content_id"]} if item.get("content_id") else {})
                for item in content["attachments"]
            ]
        return body
