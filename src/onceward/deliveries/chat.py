"""Chat messages: Slack's incoming webhooks, Telegram's Bot API.  Neither takes an idempotency key."""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta

from onceward.deliveries.http import LONGEST_WAIT, TIMEOUT, Request, failed, post
from onceward.deliveries.outgoing import NotSent, Outgoing, Report, Sent
from onceward.errors import InvalidArgument
from onceward.model import Json

_JSON = {"Content-Type": "application/json"}
# Words of the services that may be shown; any other text may repeat what was sent.
_SLACK_WORDS = frozenset({
    "invalid_payload", "user_not_found", "channel_not_found", "channel_is_archived", "action_prohibited",
    "posting_to_general_channel_denied", "too_many_attachments", "no_service", "no_service_id", "no_team",
    "team_disabled", "invalid_token", "no_text", "no_active_hooks", "invalid_blocks", "rate_limited",
})  # fmt: skip
_TELEGRAM_WORDS = frozenset({
    "Bad Request: chat not found", "Bad Request: message text is empty", "Bad Request: message is too long",
    "Forbidden: bot was blocked by the user", "Forbidden: user is deactivated", "Unauthorized", "Not Found",
    "Forbidden: bot was kicked from the group chat", "Forbidden: bot can't initiate conversation with a user",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Slack:
    """Incoming webhooks by name; a message that names none goes to `default`."""

    urls: Mapping[str, str] = field(repr=False)
    timeout: timedelta = TIMEOUT

    name = "slack"
    idempotent_for = None

    def __post_init__(self) -> None:
        if not self.urls or not all(url.startswith(("https://", "http://")) for url in self.urls.values()):
            raise InvalidArgument(
                "a Slack webhook must be an https URL", hint='Pass Slack({"default": "https://…"}).'
            )

    async def send(self, outgoing: Outgoing) -> Report:
        url = self.urls.get(outgoing.content.get("to") or "default")
        if url is None:
            # Another worker may know it, or this one after a restart.
            return NotSent("configuration", "no webhook of that name is configured")
        body = {name: outgoing.content[name] for name in ("text", "blocks") if name in outgoing.content}
        answer = await post(Request(url, json.dumps(body).encode(), _JSON, self.timeout))
        if isinstance(answer, NotSent):
            return answer
        problem = failed(answer, now=outgoing.sending_at)
        if problem is None:
            return Sent()
        word = answer.body[:100].decode("ascii", "replace").strip()
        return replace(problem, message=f"{problem.message} ({word})") if word in _SLACK_WORDS else problem


@dataclass(frozen=True, slots=True)
class Telegram:
    """A bot, by its token."""

    token: str = field(repr=False)
    base_url: str = "https://api.telegram.org"
    timeout: timedelta = TIMEOUT

    name = "telegram"
    idempotent_for = None

    def __post_init__(self) -> None:
        if not self.token:
            raise InvalidArgument("token of the Telegram bot is missing", hint="Set ONCEWARD_TELEGRAM_TOKEN.")

    async def send(self, outgoing: Outgoing) -> Report:
        content = outgoing.content
        body: dict[str, Json] = {
            name: content[name] for name in ("chat_id", "text", "parse_mode") if name in content
        }
        if content.get("silent"):
            body["disable_notification"] = True
        photo = content.get("photo")
        method = "sendPhoto" if isinstance(photo, dict) else "sendMessage"
        raw, headers = (
            _with_photo(body, photo) if isinstance(photo, dict) else (json.dumps(body).encode(), _JSON)
        )
        url = f"{self.base_url}/bot{self.token}/{method}"
        answer = await post(Request(url, raw, headers, self.timeout))
        if isinstance(answer, NotSent):
            return answer
        problem = failed(answer, now=outgoing.sending_at)
        if problem is None:
            number = answer.field("result", "message_id")
            return Sent(str(number) if isinstance(number, int) else None)
        wait = answer.field("parameters", "retry_after")
        if problem.category == "rate_limited" and isinstance(wait, int) and wait >= 0:
            problem = replace(problem, retry_after=min(timedelta(seconds=min(wait, 86400)), LONGEST_WAIT))
        words = answer.field("description")
        if isinstance(words, str) and words in _TELEGRAM_WORDS:
            problem = replace(problem, message=f"{problem.message} ({words})")
        return problem


def _with_photo(body: Mapping[str, Json], photo: Mapping[str, Json]) -> tuple[bytes, dict[str, str]]:
    """A form with a file, which is how Telegram takes pictures; the text is its caption."""
    boundary = secrets.token_hex(16)
    parts = []
    for name, value in body.items():
        text = json.dumps(value) if isinstance(value, bool) else str(value)
        field = "caption" if name == "text" else name
        parts.append(f'Content-Disposition: form-data; name="{field}"\r\n\r\n{text}'.encode())
    # Its own name is nobody's business, and may hold what a header must not.
    head = f'Content-Disposition: form-data; name="photo"; filename="photo"\r\nContent-Type: {photo.get("type", "image/png")}'
    parts.append(f"{head}\r\n\r\n".encode() + base64.b64decode(str(photo["content"])))
    mark = f"--{boundary}".encode()
    raw = b"".join(mark + b"\r\n" + part + b"\r\n" for part in parts) + mark + b"--\r\n"
    return raw, {"Content-Type": f"multipart/form-data; boundary={boundary}"}
