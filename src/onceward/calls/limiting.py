"""Calls about limits, shares and bounds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

from onceward import jsonsafe
from onceward.calls.base import Call, nothing, one, rows_of, scalar
from onceward.model_limits import Acquired, BoundInfo, Limit, LimitInfo, LimitLevel, ShareInfo


def declare_limits(limits: Sequence[Limit], *, only_new: bool = False) -> Call[int]:
    return Call(
        "select onceward.declare_limits(%(limits)s::jsonb, %(only_new)s::boolean)",
        {"limits": json.dumps([limit.to_json() for limit in limits]), "only_new": only_new},
        scalar,
        repeatable=True,
    )


def set_limit(limit: Limit) -> Call[bool]:
    return Call(
        "select onceward.set_limit(%(name)s::text, %(requests)s::int, %(period)s::interval, %(weight)s::bigint, "
        "%(weight_period)s::interval, %(slots)s::int, %(burst)s::int, %(weight_burst)s::bigint, %(allowance)s::interval, "
        "%(per_key)s::boolean, %(threshold)s::float8, %(over)s::text)",
        {
            "name": limit.name,
            "requests": limit.requests,
            "period": limit.per,
            "weight": limit.tokens,
            "weight_period": limit.tokens_per,
            "slots": limit.slots,
            "burst": limit.burst,
            "weight_burst": limit.tokens_burst,
            "allowance": limit.allowance,
            "per_key": limit.per_key,
            "threshold": limit.threshold,
            "over": limit.over,
        },
        scalar,
        repeatable=True,
    )


def drop_limit(name: str) -> Call[None]:
    return Call("select onceward.drop_limit(%(name)s::text)", {"name": name}, nothing)


def pause_limit(name: str, duration: timedelta, key: str = "", reason: str | None = None) -> Call[datetime]:
    return Call(
        "select onceward.pause_limit(%(name)s::text, %(for)s::interval, %(key)s::text, %(reason)s::text)",
        {
            "name": name,
            "for": duration,
            "key": key,
            "reason": jsonsafe.printable(reason) if reason else None,
        },
        scalar,
        repeatable=True,
    )


def resume_limit(name: str, key: str = "") -> Call[bool]:
    return Call(
        "select onceward.resume_limit(%(name)s::text, %(key)s::text)",
        {"name": name, "key": key},
        scalar,
        repeatable=True,
    )


def limits(name: str | None = None) -> Call[list[LimitInfo]]:
    return Call(
        "select name, key, requests, period, weight, weight_period, slots, burst, weight_burst, allowance, per_key, threshold, "
        "over, source, requests_left, weight_left, slots_held, next_room_at, reason, paused_until, changed_at, changed_by "
        "from onceward.limits where %(name)s::text is null or name = %(name)s::text order by name, key",
        {"name": name},
        rows_of(LimitInfo),
        repeatable=True,
    )


def settle(job_id: UUID, epoch: int, limit: str, weight: int) -> Call[None]:
    return Call(
        "select onceward.settle(%(job_id)s::uuid, %(epoch)s::bigint, %(limit)s::text, %(weight)s::bigint)",
        {"job_id": job_id, "epoch": epoch, "limit": limit, "weight": weight},
        nothing,
        repeatable=True,
    )


def limited(
    job_id: UUID, epoch: int, limit: str | None, retry_after: timedelta, reason: str | None
) -> Call[tuple[str, datetime | None]]:
    return Call(
        "select state, run_at from onceward.limited(%(job_id)s::uuid, %(epoch)s::bigint, %(limit)s::text, "
        "%(after)s::interval, %(reason)s::text)",
        {
            "job_id": job_id,
            "epoch": epoch,
            "limit": limit,
            "after": retry_after,
            "reason": jsonsafe.printable(reason, 500) if reason else None,
        },
        one(lambda row: (row[0], row[1])),
        repeatable=True,
    )


def acquire(limit: str, *, key: str, requests: int, weight: int, lease: timedelta) -> Call[Acquired]:
    return Call(
        "select hold_id, wait, reason from onceward.acquire(%(limit)s::text, %(key)s::text, %(requests)s::int, "
        "%(weight)s::bigint, %(lease)s::interval)",
        {"limit": limit, "key": key, "requests": requests, "weight": weight, "lease": lease},
        one(lambda row: Acquired(*row)),
    )


def settle_hold(hold_id: UUID, weight: int) -> Call[None]:
    return Call(
        "select onceward.settle_hold(%(hold_id)s::uuid, %(weight)s::bigint)",
        {"hold_id": hold_id, "weight": weight},
        nothing,
        repeatable=True,
    )


def release_hold(hold_id: UUID) -> Call[bool]:
    return Call(
        "select onceward.release_hold(%(hold_id)s::uuid)", {"hold_id": hold_id}, scalar, repeatable=True
    )


def set_share(lane: str, tenant: str, share: int) -> Call[None]:
    return Call(
        "select onceward.set_share(%(lane)s::text, %(tenant)s::text, %(share)s::int)",
        {"lane": lane, "tenant": tenant, "share": share},
        nothing,
        repeatable=True,
    )


def shares(lane: str | None = None) -> Call[list[ShareInfo]]:
    return Call(
        "select lane, tenant, share from onceward.shares where %(lane)s::text is null or lane = %(lane)s::text "
        "order by lane, tenant",
        {"lane": lane},
        rows_of(ShareInfo),
        repeatable=True,
    )


def set_bound(
    lane: str, *, max_depth: int | None, max_age: timedelta | None, max_bytes: int | None, over: str, tenant: str,
    defer_by: timedelta,
) -> Call[None]:  # fmt: skip
    return Call(
        "select onceward.set_bound(%(lane)s::text, %(max_depth)s::bigint, %(max_age)s::interval, %(max_bytes)s::bigint, "
        "%(over)s::text, %(tenant)s::text, %(defer_by)s::interval)",
        {
            "lane": lane,
            "max_depth": max_depth,
            "max_age": max_age,
            "max_bytes": max_bytes,
            "over": over,
            "tenant": tenant,
            "defer_by": defer_by,
        },
        nothing,
        repeatable=True,
    )


def drop_bound(lane: str, tenant: str = "") -> Call[bool]:
    return Call(
        "select onceward.drop_bound(%(lane)s::text, %(tenant)s::text)",
        {"lane": lane, "tenant": tenant},
        scalar,
        repeatable=True,
    )


def bounds(lane: str | None = None) -> Call[list[BoundInfo]]:
    return Call(
        "select lane, tenant, max_depth, max_age, max_bytes, over, defer_by, measured_tenant, depth, oldest_at, bytes, reason, "
        "measured_at from onceward.bounds where %(lane)s::text is null or lane = %(lane)s::text",
        {"lane": lane},
        rows_of(BoundInfo),
        repeatable=True,
    )


def limit_history(since: datetime, name: str | None = None) -> Call[list[LimitLevel]]:
    """Minute by minute, as long as it is kept, the oldest first; of all limits or one."""
    return Call(
        "select name, at, level, waiting, paused from onceward.limit_history "
        "where at >= %(since)s::timestamptz and (%(name)s::text is null or name = %(name)s::text) order by name, at",
        {"since": since, "name": name},
        rows_of(LimitLevel),
        repeatable=True,
    )
