"""Which providers an application sends through, from code or from the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from onceward.deliveries import content
from onceward.deliveries.chat import Slack, Telegram
from onceward.deliveries.handler import LANE, TASK, Reconcile, make_handler
from onceward.deliveries.outbox import Outbox
from onceward.deliveries.outgoing import Provider
from onceward.deliveries.resend import Resend
from onceward.deliveries.smtp import Smtp
from onceward.deliveries.webhook import Webhooks
from onceward.errors import InvalidArgument
from onceward.model import DELIVERY_KINDS, Json, Options
from onceward.registry import build_task

if TYPE_CHECKING:
    from onceward.app import Onceward


class Deliveries:
    """Makes an application's workers send, and its clients use the lane that they serve.

    Applications that share a database and send through different providers each need a `lane` of their own.
    Alerts of monitors are in the lane `deliveries`; `onceward worker onceward.deliveries.sender:app` serves just that one.

    What is not given comes from the environment:

    ONCEWARD_EMAIL            outbox:/folder (the default is a folder of its own), smtp://…, smtps://… or resend:
    ONCEWARD_EMAIL_FROM       the sender, for smtp and resend
    ONCEWARD_SMTP_PASSWORD    RESEND_API_KEY    ONCEWARD_TELEGRAM_TOKEN    ONCEWARD_WEBHOOK_SECRET
    ONCEWARD_SLACK_WEBHOOK    the URL of the default webhook
    ONCEWARD_ALERTS_TO        email:ops@example.com, slack:name or telegram:chat

    `waits` are those between tries, per kind.  `reconcile` is asked what became of a try whose outcome is unclear.
    """

    def __init__(  # noqa: PLR0913 - one keyword per kind, and what holds for all of them
        self,
        app: Onceward,
        *,
        lane: str = LANE,
        email: Provider | None = None,
        slack: Provider | None = None,
        telegram: Provider | None = None,
        webhook: Provider | None = None,
        alerts_to: str | Mapping[str, Json] | None = None,
        waits: Mapping[str, Sequence[timedelta]] | None = None,
        reconcile: Reconcile | None = None,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        if app.deliveries is not None or TASK in app.tasks:
            raise InvalidArgument("deliveries of this application are set up twice")
        unknown = set(waits or ()) - set(DELIVERY_KINDS)
        if unknown:
            raise InvalidArgument(
                f"waits name an unknown kind: {', '.join(sorted(unknown))}",
                hint=f"Kinds: {', '.join(DELIVERY_KINDS)}.",
            )
        found = {
            "email": email or email_from(environ),
            "slack": slack or slack_from(environ),
            "telegram": telegram or telegram_from(environ),
            "webhook": webhook or webhooks_from(environ),
        }
        self.providers: dict[str, Provider] = {kind: way for kind, way in found.items() if way is not None}
        self.waits = {kind: tuple(listed) for kind, listed in (waits or {}).items()}
        to = alerts_to if alerts_to is not None else environ.get("ONCEWARD_ALERTS_TO")
        self.alerts_to = content.target(to) if to else None
        self.lane = lane
        handler = make_handler(self.providers, reconcile)
        app.tasks[TASK] = build_task(handler, name=TASK, options=Options(lane=lane))
        app.deliveries = self


def email_from(environ: Mapping[str, str]) -> Provider:
    given = environ.get("ONCEWARD_EMAIL", "")
    sender = environ.get("ONCEWARD_EMAIL_FROM", "")
    scheme, _, rest = given.partition(":")
    if scheme in {"", "outbox"}:
        return Outbox(rest or None, sender=sender or "onceward@localhost")
    if scheme in {"smtp", "smtps"}:
        return Smtp.from_url(given, sender=sender, environ=environ)
    if scheme == "resend" and not rest:
        return Resend(environ.get("RESEND_API_KEY", ""), sender)
    raise InvalidArgument(
        "ONCEWARD_EMAIL cannot be read",
        hint="Write it like outbox:/var/mail/out, smtp://user@mail.example.com:587 or resend:.",
    )


def slack_from(environ: Mapping[str, str]) -> Provider | None:
    url = environ.get("ONCEWARD_SLACK_WEBHOOK")
    return Slack({"default": url}) if url else None


def telegram_from(environ: Mapping[str, str]) -> Provider | None:
    token = environ.get("ONCEWARD_TELEGRAM_TOKEN")
    return Telegram(token) if token else None


def webhooks_from(environ: Mapping[str, str]) -> Provider | None:
    secret = environ.get("ONCEWARD_WEBHOOK_SECRET")
    return Webhooks({"default": secret}) if secret else None
