"""Calls of the ledger of outside effects."""

from __future__ import annotations

import json
from dataclasses import fields
from datetime import datetime, timedelta
from typing import LiteralString
from uuid import UUID

from onceward import jsonsafe
from onceward.calls.base import Call, one, rows_of, scalar
from onceward.model import BegunDelivery, Delivery, DeliveryFilter, DeliveryInfo, Json, Options


def deliver(
    kind: str,
    content: str,
    options: Options,
    *,
    lane: str = "deliveries",
    alerts_to: str | None = None,
    made_by: str | None = None,
) -> Call[Delivery]:
    """`content` and `alerts_to` are JSON text that jsonsafe has checked.

    Of the options, only the key, the times, priority, retry and tenant count; without a retry policy, that of the kind.
    """
    return Call(
        "select delivery_id, created, state from onceward.deliver(%(kind)s::text, %(key)s::text, %(content)s::jsonb, "
        "%(tenant)s::text, coalesce(%(run_at)s::timestamptz, onceward.now() + %(delay)s::interval), "
        "coalesce(%(expires_at)s::timestamptz, coalesce(%(run_at)s::timestamptz, "
        "onceward.now() + coalesce(%(delay)s::interval, '0')) + %(expires_in)s::interval), "
        "%(priority)s::int, %(retry)s::jsonb, null, %(alerts_to)s::jsonb, %(headers)s::jsonb, %(lane)s::text, %(made_by)s::uuid)",
        {
            "kind": kind,
            "key": options.key,
            "content": content,
            "tenant": options.tenant,
            "run_at": options.run_at,
            "delay": options.delay,
            "expires_at": options.expires_at,
            "expires_in": options.expires_in,
            "priority": options.priority,
            "retry": json.dumps(options.retry.to_json()) if options.retry else None,
            "alerts_to": alerts_to,
            "lane": lane,
            "headers": json.dumps(dict(options.headers)) if options.headers else None,
            "made_by": made_by,
        },
        one(lambda row: Delivery(UUID(str(row[0])), row[1], row[2])),
        repeatable=True,
    )


def begin_delivery(job_id: UUID, epoch: int, provider: str) -> Call[BegunDelivery]:
    return Call(
        "select kind, key, tenant, content, tries, first_try_at, sending_at, unclear_since, unclear_provider "
        "from onceward.begin_delivery(%(job_id)s::uuid, %(epoch)s::bigint, %(provider)s::text)",
        {"job_id": job_id, "epoch": epoch, "provider": provider},
        one(lambda row: BegunDelivery(*row)),
        repeatable=True,
    )


def settle_delivery(
    job_id: UUID,
    epoch: int,
    outcome: str,
    *,
    provider_ref: str | None = None,
    error_type: str | None = None,
    category: str | None = None,
    message: str | None = None,
    retry_after: timedelta | None = None,
    unclear: bool = False,
    cleared: bool = False,
) -> Call[tuple[str, datetime | None]]:
    """Ends the attempt of the job as well.  Returns the state of the delivery, and when it is tried again."""
    return Call(
        "select state, next_try_at from onceward.settle_delivery(%(job_id)s::uuid, %(epoch)s::bigint, %(outcome)s::text, "
        "%(provider_ref)s::text, %(error_type)s::text, %(category)s::text, %(message)s::text, %(retry_after)s::interval, "
        "%(unclear)s::boolean, %(cleared)s::boolean)",
        {
            "job_id": job_id,
            "epoch": epoch,
            "outcome": outcome,
            "provider_ref": jsonsafe.printable(provider_ref, 500) if provider_ref else None,
            "error_type": error_type,
            "category": category,
            "message": jsonsafe.printable(message, 2000) if message else None,
            "retry_after": retry_after,
            "unclear": unclear,
            "cleared": cleared,
        },
        one(lambda row: (row[0], row[1])),
        repeatable=True,
    )


def decide_delivery(delivery_id: UUID, decision: str, note: str) -> Call[str]:
    return Call(
        "select onceward.decide_delivery(%(id)s::uuid, %(decision)s::text, %(note)s::text)",
        {"id": delivery_id, "decision": decision, "note": jsonsafe.printable(note)},
        scalar,
    )


def delivery_content(delivery_id: UUID) -> Call[Json]:
    return Call(
        "select onceward.delivery_content(%(id)s::uuid)", {"id": delivery_id}, scalar, repeatable=True
    )


_DELIVERY: LiteralString = (
    "select id, tenant, kind, key, state, tries, provider, provider_ref, created_at, first_try_at, sending_at, "
    "next_try_at, unclear_since, ended_at, error_type, category, message, decided_by, note, is_alert, made_by "
    "from onceward.deliveries"
)


def delivery(delivery_id: UUID) -> Call[DeliveryInfo | None]:
    return Call(
        _DELIVERY + " where id = %(id)s::uuid",
        {"id": delivery_id},
        lambda rows: DeliveryInfo(*rows[0]) if rows else None,
        repeatable=True,
    )


def deliveries(wanted: DeliveryFilter) -> Call[list[DeliveryInfo]]:
    params: dict[str, object] = {f.name: getattr(wanted, f.name) for f in fields(wanted)}
    params["states"] = list(wanted.states) or None
    return Call(
        _DELIVERY + " where (%(states)s::text[] is null or state = any (%(states)s::text[]))"
        " and (%(kind)s::text is null or kind = %(kind)s::text)"
        " and (%(key)s::text is null or key = %(key)s::text)"
        " and (%(tenant)s::text is null or tenant = %(tenant)s::text)"
        " and (%(before)s::uuid is null or id < %(before)s::uuid) order by id desc limit %(limit)s::int",
        params,
        rows_of(DeliveryInfo),
        repeatable=True,
    )


def deliveries_of(job_id: UUID, limit: int) -> Call[list[DeliveryInfo]]:
    """Those that the handler of this job has asked for, in order."""
    return Call(
        _DELIVERY + " where made_by = %(job_id)s::uuid order by id limit %(limit)s::int",
        {"job_id": job_id, "limit": limit},
        rows_of(DeliveryInfo),
        repeatable=True,
    )


def delivery_trouble() -> Call[dict[str, int]]:
    """How many deliveries wait for a person: uncertain ones, and abandoned ones that nobody has resolved."""
    return Call(
        "select d.state, count(*) from onceward.deliveries as d where d.state = 'uncertain' or (d.state = 'abandoned' "
        "and exists (select from onceward.dead_letters as l where l.id = d.id)) group by d.state",
        {},
        lambda rows: {row[0]: row[1] for row in rows},
        repeatable=True,
    )
