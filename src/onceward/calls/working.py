"""Calls of workers: claim, finish, keep the lease, look after the lanes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import LiteralString
from uuid import UUID

from onceward import jsonsafe
from onceward.calls.base import Call, Row, nothing, one, scalar
from onceward.model import (
    Heartbeat,
    Json,
    Promoted,
)


def installed() -> Call[tuple[list[str], str | None]]:
    """The migrations that were applied, in order, and the digest of the code."""
    return Call(
        "select (select array_agg(name::text order by version) from onceward.migration_private), "
        "(select digest::text from onceward.code_private)",
        {},
        one(lambda row: (list(row[0] or ()), row[1])),
        repeatable=True,
    )


def register_worker(
    *, name: str, lanes: Sequence[str], tasks: Sequence[str], lease: timedelta, host: str, pid: int,
    version: str | None, concurrency: int,
) -> Call[UUID]:  # fmt: skip
    return Call(
        "select onceward.register_worker(%(name)s::text, %(lanes)s::text[], %(tasks)s::text[], %(lease)s::interval, "
        "%(host)s::text, %(pid)s::bigint, %(version)s::text, %(concurrency)s::int)",
        {
            "name": name,
            "lanes": list(lanes),
            "tasks": list(tasks),
            "lease": lease,
            "host": host,
            "pid": pid,
            "version": version,
            "concurrency": concurrency,
        },
        scalar,
    )


def retire_worker(worker_id: UUID) -> Call[int]:
    return Call(
        "select onceward.retire_worker(%(worker_id)s::uuid)",
        {"worker_id": worker_id},
        scalar,
        repeatable=True,
    )


def heartbeat(worker_id: UUID) -> Call[Heartbeat]:
    return Call(
        "select expires_at, cancel_job_ids from onceward.heartbeat(%(worker_id)s::uuid)",
        {"worker_id": worker_id},
        one(lambda row: Heartbeat(row[0], row[1])),
        repeatable=True,
    )


_CLAIMED: LiteralString = (
    "job_id::text, epoch, task, payload::text, lane, priority, ready_seq, attempt, max_attempts, tenant, timeout, "
    "headers, key, line "
)


def exchange(
    worker_id: UUID,
    *,
    done: Sequence[tuple[str, int, str | None]],
    lanes: Sequence[str],
    limits: Sequence[int] | None,
    room: int,
    floors: Mapping[str, Mapping[int, int]] | None,
    sleep: bool,
    lines: Mapping[str, Mapping[str, Json]] | None = None,
    start: int | None = None,
) -> Call[Sequence[Row]]:
    """Raw rows (outcome, job_id, epoch, task, payload, …): the worker reads them without copies.

    Ids and payloads travel as text, and arrays as one text: to make objects of them takes as long as the whole rest.
    """
    results = [item[2] for item in done]
    return Call(
        "select outcome, " + _CLAIMED + "from onceward.exchange(%(worker_id)s::uuid, %(ids)s::text::uuid[], "
        "%(epochs)s::text::bigint[], "
        "%(results)s::text[]::jsonb[], %(lanes)s::text::text[], %(limits)s::int[], %(room)s::int, %(floors)s::jsonb, "
        "%(sleep)s::boolean, %(lines)s::jsonb, %(start)s::int)",
        {
            "worker_id": worker_id,
            "ids": "{" + ",".join([item[0] for item in done]) + "}",
            "epochs": "{" + ",".join([str(item[1]) for item in done]) + "}",
            "results": results if any(result is not None for result in results) else None,
            "lanes": "{" + ",".join(map(_quoted, lanes)) + "}",
            "limits": None if limits is None else list(limits),
            "room": room,
            "floors": json.dumps(floors) if floors else None,
            "sleep": sleep,
            "lines": json.dumps(lines) if lines else None,
            "start": start,
        },
        lambda rows: rows,
        repeatable=True,
    )


def _quoted(text: str) -> str:
    """As a member of an array that travels as one text."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def claim(worker_id: UUID, lanes: Sequence[str], limit: int) -> Call[Sequence[Row]]:
    """Rows as `exchange` returns them."""
    return Call(
        "select 'claimed'::text, "
        + _CLAIMED
        + "from onceward.claim(%(worker_id)s::uuid, %(lanes)s::text[], %(limit)s::int)",
        {"worker_id": worker_id, "lanes": list(lanes), "limit": limit},
        lambda rows: rows,
    )


def adopt(worker_id: UUID, known: Sequence[str]) -> Call[Sequence[Row]]:
    return Call(
        "select 'claimed'::text, "
        + _CLAIMED
        + "from onceward.adopt(%(worker_id)s::uuid, %(known)s::text[]::uuid[])",
        {"worker_id": worker_id, "known": list(known)},
        lambda rows: rows,
        repeatable=True,
    )


def complete(job_id: UUID, epoch: int, result: str | None) -> Call[None]:
    return Call(
        "select onceward.complete(%(job_id)s::uuid, %(epoch)s::bigint, %(result)s::jsonb)",
        {"job_id": job_id, "epoch": epoch, "result": result},
        nothing,
        repeatable=True,
    )


def fail(
    job_id: UUID, epoch: int, *, error_type: str, message: str, category: str, traceback: str | None,
    permanent: bool, retry_after: timedelta | None,
) -> Call[tuple[str, datetime | None]]:  # fmt: skip
    return Call(
        "select state, retry_at from onceward.fail(%(job_id)s::uuid, %(epoch)s::bigint, %(type)s::text, "
        "%(message)s::text, %(category)s::text, %(traceback)s::text, %(permanent)s::boolean, %(after)s::interval)",
        {
            "job_id": job_id,
            "epoch": epoch,
            "type": jsonsafe.printable(error_type, 200),
            "message": jsonsafe.printable(message, 4000),
            "category": jsonsafe.printable(category, 100),
            "traceback": jsonsafe.printable(traceback) if traceback else None,
            "permanent": permanent,
            "after": retry_after,
        },
        one(lambda row: (row[0], row[1])),
        repeatable=True,
    )


def snooze(
    job_id: UUID, epoch: int, delay: timedelta, reason: str | None, *, counted: bool = True
) -> Call[tuple[str, datetime | None]]:
    return Call(
        "select state, run_at from onceward.snooze(%(job_id)s::uuid, %(epoch)s::bigint, %(delay)s::interval, "
        "%(reason)s::text, %(counted)s::boolean)",
        {
            "job_id": job_id,
            "epoch": epoch,
            "delay": delay,
            "reason": jsonsafe.printable(reason) if reason else None,
            "counted": counted,
        },
        one(lambda row: (row[0], row[1])),
        repeatable=True,
    )


def progress(job_id: UUID, epoch: int, value: Json) -> Call[None]:
    return Call(
        "select onceward.progress(%(job_id)s::uuid, %(epoch)s::bigint, %(value)s::jsonb)",
        {"job_id": job_id, "epoch": epoch, "value": jsonsafe.dumps(value, what="progress")},
        nothing,
        repeatable=True,
    )


def release(worker_id: UUID, jobs: Sequence[tuple[UUID, int]]) -> Call[int]:
    """Jobs that were not begun, as pairs of id and epoch."""
    return Call(
        "select onceward.release(%(worker_id)s::uuid, %(job_ids)s::uuid[], %(epochs)s::bigint[], true)",
        {
            "worker_id": worker_id,
            "job_ids": [job_id for job_id, _ in jobs],
            "epochs": [epoch for _, epoch in jobs],
        },
        scalar,
        repeatable=True,
    )


def promote(limit: int = 1000) -> Call[Promoted]:
    return Call(
        "select promoted, expired, next_run_at, next_in, more from onceward.promote(%(limit)s::int)",
        {"limit": limit},
        one(lambda row: Promoted(*row)),
        repeatable=True,
    )


def rescue(limit: int = 500, *, thorough: bool = True) -> Call[int]:
    return Call(
        "select onceward.rescue(%(limit)s::int, %(thorough)s::boolean)",
        {"limit": limit, "thorough": thorough},
        scalar,
        repeatable=True,
    )


def ensure_partitions() -> Call[int]:
    return Call("select onceward.ensure_partitions()", {}, scalar, repeatable=True)


def tidy(limit: int = 1000) -> Call[int]:
    return Call("select onceward.tidy(%(limit)s::int)", {"limit": limit}, scalar, repeatable=True)
