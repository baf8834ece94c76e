"""Calls about schedules and their ticks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, LiteralString
from uuid import UUID

from onceward.calls.base import Call, nothing, one, rows_of, scalar
from onceward.model import Json
from onceward.model_schedules import NextTick, ScheduleChange, ScheduleInfo, Ticked, TickInfo

_SCHEDULE: LiteralString = (
    "select id, tenant, name, task, lane, spec, zone, state, next_slot, next_at, payload, priority, max_attempts, retry, "
    "timeout, expires_in, missed, catch_up, grace, overlap, jitter, paused_at, paused_by, pause_reason, source, app, "
    "declared, version, created_at, changed_at, changed_by, last_slot, last_fire_at, last_ticked_at, last_outcome, "
    "last_job_id from onceward.schedules"
)


def add_schedule(
    name: str, *, task: str, spec: str, payload: str, zone: str | None = None, lane: str = "default", priority: int = 0,
    max_attempts: int = 8, retry: Json = None, timeout: timedelta | None = None, expires_in: timedelta | None = None,
    missed: str = "latest", catch_up: int = 1000, grace: timedelta = timedelta(seconds=60), overlap: str = "skip",
    jitter: timedelta = timedelta(0), tenant: str | None = None, uses: Json = None,
) -> Call[ScheduleChange]:  # fmt: skip
    """`payload` is JSON text that jsonsafe has checked."""
    return Call(
        "select outcome, next_slot, next_at from onceward.add_schedule(%(name)s::text, %(task)s::text, %(spec)s::text, "
        "%(zone)s::text, %(payload)s::jsonb, %(lane)s::text, %(priority)s::int, %(max_attempts)s::int, %(retry)s::jsonb, "
        "%(timeout)s::interval, %(expires_in)s::interval, %(missed)s::text, %(catch_up)s::int, %(grace)s::interval, "
        "%(overlap)s::text, %(jitter)s::interval, %(tenant)s::text, %(uses)s::jsonb)",
        {
            "name": name,
            "task": task,
            "spec": spec,
            "zone": zone,
            "payload": payload,
            "lane": lane,
            "priority": priority,
            "max_attempts": max_attempts,
            "retry": None if retry is None else json.dumps(retry),
            "timeout": timeout,
            "expires_in": expires_in,
            "missed": missed,
            "catch_up": catch_up,
            "grace": grace,
            "overlap": overlap,
            "jitter": jitter,
            "tenant": tenant,
            "uses": None if uses is None else json.dumps(uses),
        },
        one(lambda row: ScheduleChange(*row)),
        repeatable=True,
    )


def declare_schedules(app: str, schedules: str) -> Call[dict[str, str]]:
    """`schedules` is a JSON array; the answer says what became of each name."""
    return Call(
        "select name, outcome from onceward.declare_schedules(%(app)s::text, %(schedules)s::jsonb)",
        {"app": app, "schedules": schedules},
        lambda rows: {row[0]: row[1] for row in rows},
        repeatable=True,
    )


def _named(name: str, tenant: str | None) -> dict[str, Any]:
    return {"name": name, "tenant": tenant}


def pause_schedule(name: str, reason: str | None = None, *, tenant: str | None = None) -> Call[bool]:
    return Call(
        "select onceward.pause_schedule(%(name)s::text, %(reason)s::text, %(tenant)s::text)",
        {**_named(name, tenant), "reason": reason},
        scalar,
        repeatable=True,
    )


def resume_schedule(name: str, *, tenant: str | None = None) -> Call[bool]:
    return Call(
        "select onceward.resume_schedule(%(name)s::text, %(tenant)s::text)",
        _named(name, tenant),
        scalar,
        repeatable=True,
    )


def run_schedule_now(name: str, *, tenant: str | None = None) -> Call[UUID]:
    return Call(
        "select onceward.run_schedule_now(%(name)s::text, %(tenant)s::text)", _named(name, tenant), scalar
    )


def drop_schedule(name: str, *, tenant: str | None = None) -> Call[None]:
    return Call(
        "select onceward.drop_schedule(%(name)s::text, %(tenant)s::text)", _named(name, tenant), nothing
    )


def next_ticks(
    spec: str, zone: str | None = None, *, after: datetime | None = None, count: int = 10
) -> Call[list[NextTick]]:
    return Call(
        "select slot, fire_at from onceward.next_ticks(%(spec)s::text, %(zone)s::text, %(after)s::timestamptz, %(count)s::int)",
        {"spec": spec, "zone": zone, "after": after, "count": count},
        rows_of(NextTick),
        repeatable=True,
    )


def tick(limit: int = 100) -> Call[Ticked]:
    return Call(
        "select fired, missed, skipped, next_at, next_in from onceward.tick(%(limit)s::int)",
        {"limit": limit},
        one(lambda row: Ticked(*row)),
        repeatable=True,
    )


def schedules(names: Sequence[str] | None = None, *, tenant: str | None = None) -> Call[list[ScheduleInfo]]:
    return Call(
        _SCHEDULE + " where (%(names)s::text[] is null or name = any (%(names)s::text[]))"
        " and (%(tenant)s::text is null or tenant = %(tenant)s::text) order by name, tenant",
        {"names": None if names is None else list(names), "tenant": tenant},
        rows_of(ScheduleInfo),
        repeatable=True,
    )


def ticks(schedule_id: UUID, *, limit: int = 10) -> Call[list[TickInfo]]:
    """The latest first."""
    return Call(
        "select schedule_id, tenant, schedule, slot, fire_at, outcome, slots, job_id, reason, ticked_at from onceward.ticks "
        "where schedule_id = %(schedule_id)s::uuid order by ticked_at desc, fire_at desc, slot desc limit %(limit)s::int",
        {"schedule_id": schedule_id, "limit": limit},
        rows_of(TickInfo),
        repeatable=True,
    )
