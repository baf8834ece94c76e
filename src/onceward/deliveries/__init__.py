"""Deliveries: the ledger of outside effects.

`Deliveries(app)` makes the workers of an application send; `client.deliveries.email(…)` puts an effect into the ledger, in
the caller's own transaction if a connection is given.
"""

from __future__ import annotations

from onceward.deliveries.api import AsyncDeliveryClient, DeliveryClient
from onceward.deliveries.chat import Slack, Telegram
from onceward.deliveries.content import Attachment
from onceward.deliveries.outbox import Outbox
from onceward.deliveries.outgoing import NotSent, Outgoing, Provider, Report, Sent, Verdict
from onceward.deliveries.resend import Resend
from onceward.deliveries.settings import Deliveries
from onceward.deliveries.smtp import Smtp
from onceward.deliveries.webhook import Webhooks
from onceward.model import Delivery, DeliveryFilter, DeliveryInfo

__all__ = [
    "AsyncDeliveryClient",
    "Attachment",
    "Deliveries",
    "Delivery",
    "DeliveryClient",
    "DeliveryFilter",
    "DeliveryInfo",
    "NotSent",
    "Outbox",
    "Outgoing",
    "Provider",
    "Report",
    "Resend",
    "Sent",
    "Slack",
    "Smtp",
    "Telegram",
    "Verdict",
    "Webhooks",
]
