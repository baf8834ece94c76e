"""The ledger as callers see it: `client.deliveries`, the same for both clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, Required, TypedDict, Unpack, cast
from uuid import UUID

from onceward import calls, jsonsafe
from onceward.answers import job_id_of
from onceward.calls import Call
from onceward.deliveries import content
from onceward.deliveries.content import Attachment
from onceward.deliveries.handler import LANE, TASK
from onceward.errors import InvalidArgument, UnknownJob
from onceward.handling import current_job
from onceward.model import Delivery, DeliveryFilter, DeliveryInfo, Json, Retry

if TYPE_CHECKING:
    from onceward.async_client import AsyncClient
    from onceward.client import Client
    from onceward.deliveries.settings import Deliveries
    from onceward.requests import EnqueueOptions, Requests

Decision = Literal["sent", "send_again", "abandon"]
AnyDelivery = Delivery | UUID | str


class DeliveryOptions(TypedDict, total=False):
    """What every delivery takes.  The key names the effect: the same key never sends twice."""

    key: Required[str]
    tenant: str | None
    delay: timedelta | None
    run_at: datetime | None
    expires_in: timedelta | None
    expires_at: datetime | None
    priority: int | None
    waits: Sequence[timedelta] | None
    alerts_to: str | Mapping[str, Json] | None


class Email(DeliveryOptions, total=False):
    """`to`, `sender` and `reply_to` are one address each: `a@example.com` or `Jane <a@example.com>`."""

    to: Required[str]
    subject: Required[str]
    text: str | None
    html: str | None
    sender: str | None
    reply_to: str | None
    attachments: Sequence[Attachment] | None


class SlackMessage(DeliveryOptions, total=False):
    """`to` is the name of a webhook that workers know; without it, their default."""

    text: Required[str]
    to: str | None
    blocks: Sequence[Json] | None


class TelegramMessage(DeliveryOptions, total=False):
    """With a `photo`, the text is what stands under it: at most 1,024 characters instead of 4,096."""

    chat_id: Required[int | str]
    text: Required[str]
    photo: Attachment | None
    parse_mode: Literal["HTML", "MarkdownV2"] | None
    silent: bool | None


class Webhook(DeliveryOptions, total=False):
    """`secret` is the name of a signing secret that workers know; without it, their default."""

    url: Required[str]
    payload: Required[Json]
    secret: str | None


_FIELDS: dict[str, frozenset[str]] = {
    kind: frozenset(fields.__annotations__) - frozenset(DeliveryOptions.__annotations__)
    for kind, fields in {
        "email": Email,
        "slack": SlackMessage,
        "telegram": TelegramMessage,
        "webhook": Webhook,
    }.items()
}


class DeliveryClient:
    """`client.deliveries`, for synchronous code."""

    def __init__(self, client: Client, settings: Deliveries | None) -> None:
        self._client = client
        self._settings = settings

    def email(self, *, connection: Any = None, **email: Unpack[Email]) -> Delivery:
        """With `connection`, in the caller's transaction."""
        return self._deliver("email", email, connection)

    def slack(self, *, connection: Any = None, **message: Unpack[SlackMessage]) -> Delivery:
        return self._deliver("slack", message, connection)

    def telegram(self, *, connection: Any = None, **message: Unpack[TelegramMessage]) -> Delivery:
        return self._deliver("telegram", message, connection)

    def webhook(self, *, connection: Any = None, **webhook: Unpack[Webhook]) -> Delivery:
        return self._deliver("webhook", webhook, connection)

    def _deliver(self, kind: str, given: Mapping[str, Any], connection: Any) -> Delivery:
        with self._client._traced(TASK, {}) as traced:  # noqa: SLF001 - the two shells are ours
            call = _call(self, kind, given, traced.get("headers"))
            return self._client.run(call, connection=connection)

    def get(self, delivery: AnyDelivery) -> DeliveryInfo:
        return _found(delivery, self._client.run(calls.delivery(id_of(delivery))))

    def list(self, wanted: DeliveryFilter | None = None) -> list[DeliveryInfo]:
        return self._client.run(calls.deliveries(wanted or DeliveryFilter()))

    def content(self, delivery: AnyDelivery) -> Json:
        return self._client.run(calls.delivery_content(id_of(delivery)))

    def decide(self, delivery: AnyDelivery, decision: Decision, *, note: str) -> str:
        """Settle an uncertain delivery.  Returns its new state."""
        return self._client.run(calls.decide_delivery(id_of(delivery), decision, note))

    def cancel(self, delivery: AnyDelivery, reason: str | None = None) -> str:
        return self._client.cancel(id_of(delivery), reason)


class AsyncDeliveryClient:
    """`client.deliveries`, for asyncio code."""

    def __init__(self, client: AsyncClient, settings: Deliveries | None) -> None:
        self._client = client
        self._settings = settings

    async def email(self, *, connection: Any = None, **email: Unpack[Email]) -> Delivery:
        """With `connection`, in the caller's transaction."""
        return await self._deliver("email", email, connection)

    async def slack(self, *, connection: Any = None, **message: Unpack[SlackMessage]) -> Delivery:
        return await self._deliver("slack", message, connection)

    async def telegram(self, *, connection: Any = None, **message: Unpack[TelegramMessage]) -> Delivery:
        return await self._deliver("telegram", message, connection)

    async def webhook(self, *, connection: Any = None, **webhook: Unpack[Webhook]) -> Delivery:
        return await self._deliver("webhook", webhook, connection)

    async def _deliver(self, kind: str, given: Mapping[str, Any], connection: Any) -> Delivery:
        with self._client._traced(TASK, {}) as traced:  # noqa: SLF001 - the two shells are ours
            call = _call(self, kind, given, traced.get("headers"))
            return await self._client.run(call, connection=connection)

    async def get(self, delivery: AnyDelivery) -> DeliveryInfo:
        return _found(delivery, await self._client.run(calls.delivery(id_of(delivery))))

    async def list(self, wanted: DeliveryFilter | None = None) -> list[DeliveryInfo]:
        return await self._client.run(calls.deliveries(wanted or DeliveryFilter()))

    async def content(self, delivery: AnyDelivery) -> Json:
        return await self._client.run(calls.delivery_content(id_of(delivery)))

    async def decide(self, delivery: AnyDelivery, decision: Decision, *, note: str) -> str:
        """Settle an uncertain delivery.  Returns its new state."""
        return await self._client.run(calls.decide_delivery(id_of(delivery), decision, note))

    async def cancel(self, delivery: AnyDelivery, reason: str | None = None) -> str:
        return await self._client.cancel(id_of(delivery), reason)


def _call(
    shell: DeliveryClient | AsyncDeliveryClient,
    kind: str,
    given: Mapping[str, Any],
    headers: Mapping[str, str] | None,
) -> Call[Delivery]:
    client: Requests = shell._client  # noqa: SLF001 - the two shells are ours
    settings = shell._settings  # noqa: SLF001
    unknown = set(given) - _FIELDS[kind] - set(DeliveryOptions.__annotations__)
    if unknown:
        raise InvalidArgument(
            f"{kind} has no option {', '.join(sorted(unknown))}",
            hint=f"Options: {', '.join(sorted(_FIELDS[kind] | set(DeliveryOptions.__annotations__)))}.",
        )
    if not isinstance(given.get("key"), str) or not given["key"]:
        raise InvalidArgument(
            "key of the delivery is missing",
            hint="Make it of what the effect is for, such as welcome:42; the same key never sends twice.",
        )
    made = content.MAKERS[kind](given)
    alerts_to = given.get("alerts_to")
    target = content.target(alerts_to) if alerts_to else settings.alerts_to if settings else None
    waits = given.get("waits")
    if waits is None and settings is not None:
        waits = settings.waits.get(kind)
    options: dict[str, Any] = {
        name: given.get(name)
        for name in DeliveryOptions.__annotations__
        if name not in {"waits", "alerts_to"}
    }
    if waits is not None:
        options["retry"] = Retry(waits=list(waits))
    options["headers"] = headers
    return calls.deliver(
        kind,
        jsonsafe.dumps(made, what=kind),
        client._options(None, cast("EnqueueOptions", options)),  # noqa: SLF001
        lane=settings.lane if settings else LANE,
        alerts_to=None if target is None else jsonsafe.dumps(target, what="alerts_to"),
        made_by=current_job.get(),
    )


def id_of(delivery: AnyDelivery) -> UUID:
    return delivery.id if isinstance(delivery, Delivery) else job_id_of(delivery)


def _found(delivery: AnyDelivery, found: DeliveryInfo | None) -> DeliveryInfo:
    if found is None:
        raise UnknownJob(
            f"delivery {id_of(delivery)} does not exist",
            detail="It was never committed, or this client may not see it.",
        )
    return found
