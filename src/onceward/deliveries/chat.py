"""Chat messages: Slack's incoming webhooks, Telegram's Bot API.  Neither takes an idempotency key."""

from __future__ import annotations

import json
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
        url = f"{self.base_url}/bot{self.token}/sendMessage"
        answer = await post(Request(url, json.dumps(body).encode(), _JSON, self.timeout))
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
