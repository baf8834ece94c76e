"""Calls by which people act on jobs and lanes."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

from onceward import jsonsafe
from onceward.calls.base import Call, nothing, scalar


def cancel(job_id: UUID, reason: str | None = None, *, epoch: int | None = None) -> Call[str]:
    return Call(
        "select onceward.cancel(%(job_id)s::uuid, %(reason)s::text, %(epoch)s::bigint)",
        {"job_id": job_id, "reason": jsonsafe.printable(reason) if reason else None, "epoch": epoch},
        scalar,
        repeatable=True,
    )


def requeue(job_id: UUID, *, payload: str | None = None, run_at: datetime | None = None) -> Call[str]:
    return Call(
        "select onceward.requeue(%(job_id)s::uuid, %(payload)s::jsonb, %(run_at)s::timestamptz)",
        {"job_id": job_id, "payload": payload, "run_at": run_at},
        scalar,
    )


def resolve(job_id: UUID, note: str, *, override: bool = False) -> Call[None]:
    return Call(
        "select onceward.resolve(%(job_id)s::uuid, %(note)s::text, %(override)s::boolean)",
        {"job_id": job_id, "note": jsonsafe.printable(note), "override": override},
        nothing,
    )


def run_now(job_id: UUID) -> Call[str]:
    return Call("select onceward.run_now(%(job_id)s::uuid)", {"job_id": job_id}, scalar)


def add_lane(
    name: str,
    *,
    max_payload_bytes: int | None = None,
    max_result_bytes: int | None = None,
    fair: bool | None = None,
    max_wait: timedelta | None = None,
    max_running: int | None = None,
) -> Call[bool]:
    """`max_wait` of nothing means that low priorities may wait for ever; `max_running` of 0, that any number may run."""
    return Call(
        "select onceward.add_lane(%(name)s::text, %(payload)s::int, %(result)s::int, %(fair)s::boolean, %(wait)s::interval, "
        "%(running)s::int)",
        {
            "name": name,
            "payload": max_payload_bytes,
            "result": max_result_bytes,
            "fair": fair,
            "wait": max_wait,
            "running": max_running,
        },
        scalar,
        repeatable=True,
    )


def pause_lane(name: str, reason: str | None = None) -> Call[bool]:
    return Call(
        "select onceward.pause_lane(%(name)s::text, %(reason)s::text)",
        {"name": name, "reason": reason},
        scalar,
        repeatable=True,
    )


def resume_lane(name: str) -> Call[bool]:
    return Call("select onceward.resume_lane(%(name)s::text)", {"name": name}, scalar, repeatable=True)
