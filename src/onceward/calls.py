"""One typed description per SQL function: what to send and how to read the answer.

The only SQL in engine Python.  Parameters are plain values and every one is cast, so that a call runs
unchanged through psycopg, asyncpg, SQLAlchemy and Django.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from typing import Any, Generic, LiteralString, TypeVar
from uuid import UUID

from onceward import jsonsafe
from onceward.model import (
    AttemptInfo,
    DeadLetterInfo,
    Heartbeat,
    JobFilter,
    JobInfo,
    JobRef,
    Json,
    LaneInfo,
    Options,
    Promoted,
    WorkerInfo,
)

T = TypeVar("T")
Row = Sequence[Any]


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One call of one SQL function."""

    sql: LiteralString
    params: Mapping[str, object]
    parse: Callable[[Sequence[Row]], T]
    # Whether the call may be repeated when its reply was lost.
    repeatable: bool = False


def _one(make: Callable[[Row], T]) -> Callable[[Sequence[Row]], T]:
    return lambda rows: make(rows[0])


def _scalar(rows: Sequence[Row]) -> Any:
    return rows[0][0]


def _nothing(rows: Sequence[Row]) -> None:
    return None


def _json(value: Json) -> str | None:
    return None if value is None else jsonsafe.dumps(value)


def _option_params(task: str, options: Options) -> dict[str, object]:
    return {
        "task": task,
        "lane": options.lane,
        "priority": options.priority,
        "run_at": options.run_at,
        "expires_at": options.expires_at,
        "timeout": options.timeout,
        "key_window": options.key_window,
        "concurrency_key": options.concurrency_key,
        "concurrency_limit": options.concurrency_limit,
        "max_attempts": options.max_attempts,
        "retry": json.dumps(options.retry.to_json()) if options.retry else None,
        "tenant": options.tenant,
        "headers": jsonsafe.dumps(dict(options.headers), what="headers") if options.headers else None,
    }


# ---------------------------------------------------------------- producing


def enqueue(task: str, payload: str, options: Options) -> Call[JobRef]:
    """`payload` is JSON text that jsonsafe has checked."""
    return Call(
        "select job_id, created, answer, until, reason from onceward.enqueue(%(task)s::text, %(payload)s::jsonb, "
        "%(lane)s::text, %(priority)s::int, %(run_at)s::timestamptz, %(expires_at)s::timestamptz, "
        "%(timeout)s::interval, %(key)s::text, %(key_window)s::text, %(concurrency_key)s::text, "
        "%(concurrency_limit)s::int, %(max_attempts)s::int, %(retry)s::jsonb, %(tenant)s::text, %(headers)s::jsonb)",
        {**_option_params(task, options), "payload": payload, "key": options.key},
        _one(lambda row: JobRef(UUID(str(row[0])), row[1], row[2], row[3], row[4])),
        repeatable=options.key is not None,
    )


def enqueue_many(
    task: str, payloads: str, keys: list[str | None] | None, options: Options
) -> Call[list[JobRef]]:
    return Call(
        "select job_id, created from onceward.enqueue_many(%(task)s::text, "
        "array(select jsonb_array_elements(%(payloads)s::jsonb)), "
        "%(keys)s::text[], %(lane)s::text, %(priority)s::int, %(run_at)s::timestamptz, %(expires_at)s::timestamptz, "
        "%(timeout)s::interval, %(key_window)s::text, %(concurrency_key)s::text, %(concurrency_limit)s::int, "
        "%(max_attempts)s::int, %(retry)s::jsonb, %(tenant)s::text, %(headers)s::jsonb)",
        {**_option_params(task, options), "payloads": payloads, "keys": keys},
        lambda rows: [JobRef(row[0], row[1], "accepted" if row[1] else "existing") for row in rows],
        repeatable=keys is not None and None not in keys,
    )


def declare_lanes(names: Sequence[str]) -> Call[int]:
    return Call(
        "select onceward.declare_lanes(%(names)s::text[])", {"names": list(names)}, _scalar, repeatable=True
    )


# ---------------------------------------------------------------- operating


def cancel(job_id: UUID, reason: str | None = None, *, epoch: int | None = None) -> Call[str]:
    return Call(
        "select onceward.cancel(%(job_id)s::uuid, %(reason)s::text, %(epoch)s::bigint)",
        {"job_id": job_id, "reason": jsonsafe.printable(reason) if reason else None, "epoch": epoch},
        _scalar,
        repeatable=True,
    )


def requeue(job_id: UUID, *, payload: str | None = None, run_at: datetime | None = None) -> Call[str]:
    return Call(
        "select onceward.requeue(%(job_id)s::uuid, %(payload)s::jsonb, %(run_at)s::timestamptz)",
        {"job_id": job_id, "payload": payload, "run_at": run_at},
        _scalar,
    )


def resolve(job_id: UUID, note: str, *, override: bool = False) -> Call[None]:
    return Call(
        "select onceward.resolve(%(job_id)s::uuid, %(note)s::text, %(override)s::boolean)",
        {"job_id": job_id, "note": jsonsafe.printable(note), "override": override},
        _nothing,
    )


def run_now(job_id: UUID) -> Call[str]:
    return Call("select onceward.run_now(%(job_id)s::uuid)", {"job_id": job_id}, _scalar)


def add_lane(
    name: str, *, max_payload_bytes: int | None = None, max_result_bytes: int | None = None
) -> Call[bool]:
    return Call(
        "select onceward.add_lane(%(name)s::text, %(payload)s::int, %(result)s::int)",
        {"name": name, "payload": max_payload_bytes, "result": max_result_bytes},
        _scalar,
        repeatable=True,
    )


def pause_lane(name: str, reason: str | None = None) -> Call[bool]:
    return Call(
        "select onceward.pause_lane(%(name)s::text, %(reason)s::text)",
        {"name": name, "reason": reason},
        _scalar,
        repeatable=True,
    )


def resume_lane(name: str) -> Call[bool]:
    return Call("select onceward.resume_lane(%(name)s::text)", {"name": name}, _scalar, repeatable=True)


# ---------------------------------------------------------------- reading


def _rows_of(kind: Callable[..., T]) -> Callable[[Sequence[Row]], list[T]]:
    return lambda rows: [kind(*row) for row in rows]


_JOB: LiteralString = (
    "select id, tenant, lane, task, state, priority, attempt, max_attempts, snoozes, epoch, created_at, run_at, "
    "started_at, finished_at, expires_at, timeout, worker_id, payload, result, progress, key, concurrency_key, "
    "concurrency_limit, retry, headers, last_error, cancel_at, note from onceward.jobs"
)


def job(job_id: UUID) -> Call[JobInfo | None]:
    return Call(
        _JOB + " where id = %(job_id)s::uuid",
        {"job_id": job_id},
        lambda rows: JobInfo(*rows[0]) if rows else None,
        repeatable=True,
    )


def outcome(job_id: UUID) -> Call[tuple[str, Json, Json, str | None] | None]:
    """State, result, last error and note: what `wait` looks at."""
    return Call(
        "select state, result, last_error, note from onceward.jobs where id = %(job_id)s::uuid",
        {"job_id": job_id},
        lambda rows: (rows[0][0], rows[0][1], rows[0][2], rows[0][3]) if rows else None,
        repeatable=True,
    )


_JOB_FILTER: LiteralString = (
    " where (%(states)s::text[] is null or state = any (%(states)s::text[]))"
    " and (%(lane)s::text is null or lane = %(lane)s::text)"
    " and (%(task)s::text is null or task = %(task)s::text)"
    " and (%(tenant)s::text is null or tenant = %(tenant)s::text)"
    " and (%(key)s::text is null or key = %(key)s::text)"
    " and (%(since)s::timestamptz is null or id >= onceward.id_at(%(since)s::timestamptz))"
    " and (%(until)s::timestamptz is null or id < onceward.id_at(%(until)s::timestamptz))"
    " and (%(error)s::text is null or last_error ->> 'message' ilike '%%' || %(error)s::text || '%%')"
    " and (%(fingerprint)s::text is null or last_error ->> 'fingerprint' = %(fingerprint)s::text)"
)


def _filter_params(wanted: JobFilter) -> dict[str, object]:
    params: dict[str, object] = {f.name: getattr(wanted, f.name) for f in fields(wanted)}
    params["states"] = list(wanted.states) or None
    return params


def jobs(wanted: JobFilter) -> Call[list[JobInfo]]:
    return Call(
        _JOB
        + _JOB_FILTER
        + " and (%(before)s::uuid is null or id < %(before)s::uuid) order by id desc limit %(limit)s::int",
        _filter_params(wanted),
        _rows_of(JobInfo),
        repeatable=True,
    )


def count_jobs(wanted: JobFilter) -> Call[int]:
    return Call(
        "select count(*) from onceward.jobs" + _JOB_FILTER, _filter_params(wanted), _scalar, repeatable=True
    )


def attempts(job_id: UUID) -> Call[list[AttemptInfo]]:
    return Call(
        "select job_id, epoch, tenant, task, attempt, worker_id, started_at, ended_at, outcome, error_type, category, "
        "message, fingerprint, traceback, retry_at from onceward.attempts where job_id = %(job_id)s::uuid order by epoch",
        {"job_id": job_id},
        _rows_of(AttemptInfo),
        repeatable=True,
    )


def lanes() -> Call[list[LaneInfo]]:
    return Call(
        "select name, paused, paused_at, paused_by, pause_reason, ready, running, scheduled, blocked, dead_letter, "
        "oldest_ready_at, max_payload_bytes, max_result_bytes, created_at from onceward.lanes order by name",
        {},
        _rows_of(LaneInfo),
        repeatable=True,
    )


def workers() -> Call[list[WorkerInfo]]:
    return Call(
        "select id, name, host, pid, lanes, tasks, version, concurrency, lease, started_at, heartbeat_at, expires_at, "
        "retired_at, retired_why, state, running from onceward.workers order by started_at desc",
        {},
        _rows_of(WorkerInfo),
        repeatable=True,
    )


def task_names() -> Call[list[str]]:
    return Call(
        "select name from onceward.tasks order by name",
        {},
        lambda rows: [row[0] for row in rows],
        repeatable=True,
    )


_DEAD: LiteralString = (
    " from onceward.dead_letters"
    " where (%(lane)s::text is null or lane = %(lane)s::text)"
    " and (%(task)s::text is null or task = %(task)s::text)"
    " and (%(tenant)s::text is null or tenant = %(tenant)s::text)"
    " and (%(key)s::text is null or key = %(key)s::text)"
    " and (%(since)s::timestamptz is null or dead_at >= %(since)s::timestamptz)"
    " and (%(until)s::timestamptz is null or dead_at < %(until)s::timestamptz)"
    " and (%(error)s::text is null or message ilike '%%' || %(error)s::text || '%%')"
    " and (%(fingerprint)s::text is null or fingerprint = %(fingerprint)s::text)"
)


def dead_letters(wanted: JobFilter) -> Call[list[DeadLetterInfo]]:
    return Call(
        "select id, tenant, lane, task, priority, attempt, max_attempts, created_at, dead_at, payload, key, error_type, "
        "category, message, fingerprint" + _DEAD + " order by dead_at desc, id desc limit %(limit)s::int",
        _filter_params(wanted),
        _rows_of(DeadLetterInfo),
        repeatable=True,
    )


def count_dead_letters(wanted: JobFilter) -> Call[int]:
    return Call("select count(*)" + _DEAD, _filter_params(wanted), _scalar, repeatable=True)


@dataclass(frozen=True, slots=True)
class DeadLetterGroup:
    """Dead letters of one fingerprint; id, error_type and message are those of the latest."""

    fingerprint: str | None
    task: str
    count: int
    first_dead_at: datetime
    last_dead_at: datetime
    id: UUID
    error_type: str | None
    message: str | None


@dataclass(frozen=True, slots=True)
class PayloadEdit:
    """One row of the view `payload_edits`."""

    job_id: UUID
    edited_at: datetime
    tenant: str
    edited_by: str
    payload_before: Json


def dead_letter_ids(wanted: JobFilter) -> Call[list[UUID]]:
    """What a bulk action takes, oldest first: the order in which the jobs would have run."""
    return Call(
        "select id" + _DEAD + " order by dead_at, id limit %(limit)s::int",
        _filter_params(wanted),
        lambda rows: [row[0] for row in rows],
        repeatable=True,
    )


def dead_letter_groups(wanted: JobFilter) -> Call[list[DeadLetterGroup]]:
    return Call(
        "select fingerprint, task, count(*), min(dead_at), max(dead_at), (array_agg(id order by dead_at desc, id desc))[1], "
        "(array_agg(error_type order by dead_at desc, id desc))[1], (array_agg(message order by dead_at desc, id desc))[1]"
        + _DEAD
        + " group by fingerprint, task order by count(*) desc, max(dead_at) desc, task limit %(limit)s::int",
        _filter_params(wanted),
        _rows_of(DeadLetterGroup),
        repeatable=True,
    )


def payload_edits(job_id: UUID) -> Call[list[PayloadEdit]]:
    return Call(
        "select job_id, edited_at, tenant, edited_by, payload_before from onceward.payload_edits "
        "where job_id = %(job_id)s::uuid order by edited_at",
        {"job_id": job_id},
        _rows_of(PayloadEdit),
        repeatable=True,
    )


def lanes_of_tenant(tenant: str) -> Call[list[LaneInfo]]:
    """Lanes with the counts of one tenant, also for a role that sees every tenant."""
    return Call(
        "select l.name, l.paused, l.paused_at, l.paused_by, l.pause_reason, "
        "count(*) filter (where j.state = 'ready'), count(*) filter (where j.state = 'running'), "
        "count(*) filter (where j.state = 'scheduled'), count(*) filter (where j.state = 'blocked'), "
        "count(*) filter (where j.state = 'dead_letter'), min(j.run_at) filter (where j.state = 'ready'), "
        "l.max_payload_bytes, l.max_result_bytes, l.created_at "
        "from onceward.lanes as l left join onceward.jobs as j on j.lane = l.name and j.tenant = %(tenant)s::text "
        "and j.state in ('ready', 'running', 'scheduled', 'blocked', 'dead_letter') "
        "group by 1, 2, 3, 4, 5, 12, 13, 14 order by l.name",
        {"tenant": tenant},
        _rows_of(LaneInfo),
        repeatable=True,
    )


# ---------------------------------------------------------------- working


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
        _scalar,
    )


def retire_worker(worker_id: UUID) -> Call[int]:
    return Call(
        "select onceward.retire_worker(%(worker_id)s::uuid)",
        {"worker_id": worker_id},
        _scalar,
        repeatable=True,
    )


def heartbeat(worker_id: UUID) -> Call[Heartbeat]:
    return Call(
        "select expires_at, cancel_job_ids from onceward.heartbeat(%(worker_id)s::uuid)",
        {"worker_id": worker_id},
        _one(lambda row: Heartbeat(row[0], row[1])),
        repeatable=True,
    )


def exchange(
    worker_id: UUID,
    *,
    done: Sequence[tuple[UUID, int, str | None]],
    lanes: Sequence[str],
    limits: Sequence[int] | None,
    room: int,
    floors: Mapping[str, Mapping[int, int]] | None,
    sleep: bool,
) -> Call[Sequence[Row]]:
    """Raw rows (outcome, job_id, epoch, task, payload, …): the worker reads them without copies."""
    results = [item[2] for item in done]
    return Call(
        "select * from onceward.exchange(%(worker_id)s::uuid, %(ids)s::uuid[], %(epochs)s::bigint[], "
        "%(results)s::text[]::jsonb[], %(lanes)s::text[], %(limits)s::int[], %(room)s::int, %(floors)s::jsonb, "
        "%(sleep)s::boolean)",
        {
            "worker_id": worker_id,
            "ids": [item[0] for item in done],
            "epochs": [item[1] for item in done],
            "results": results if any(result is not None for result in results) else None,
            "lanes": list(lanes),
            "limits": None if limits is None else list(limits),
            "room": room,
            "floors": json.dumps(floors) if floors else None,
            "sleep": sleep,
        },
        lambda rows: rows,
        repeatable=True,
    )


_CLAIMED: LiteralString = (
    "select 'claimed'::text, job_id, epoch, task, payload, lane, priority, ready_seq, attempt, max_attempts, tenant, "
    "timeout, headers, key "
)


def claim(worker_id: UUID, lanes: Sequence[str], limit: int) -> Call[Sequence[Row]]:
    """Rows as `exchange` returns them."""
    return Call(
        _CLAIMED + "from onceward.claim(%(worker_id)s::uuid, %(lanes)s::text[], %(limit)s::int)",
        {"worker_id": worker_id, "lanes": list(lanes), "limit": limit},
        lambda rows: rows,
    )


def adopt(worker_id: UUID, known: Sequence[UUID]) -> Call[Sequence[Row]]:
    return Call(
        _CLAIMED + "from onceward.adopt(%(worker_id)s::uuid, %(known)s::uuid[])",
        {"worker_id": worker_id, "known": list(known)},
        lambda rows: rows,
        repeatable=True,
    )


def complete(job_id: UUID, epoch: int, result: str | None) -> Call[None]:
    return Call(
        "select onceward.complete(%(job_id)s::uuid, %(epoch)s::bigint, %(result)s::jsonb)",
        {"job_id": job_id, "epoch": epoch, "result": result},
        _nothing,
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
            "category": category,
            "traceback": jsonsafe.printable(traceback) if traceback else None,
            "permanent": permanent,
            "after": retry_after,
        },
        _one(lambda row: (row[0], row[1])),
        repeatable=True,
    )


def snooze(
    job_id: UUID, epoch: int, delay: timedelta, reason: str | None
) -> Call[tuple[str, datetime | None]]:
    return Call(
        "select state, run_at from onceward.snooze(%(job_id)s::uuid, %(epoch)s::bigint, %(delay)s::interval, %(reason)s::text)",
        {
            "job_id": job_id,
            "epoch": epoch,
            "delay": delay,
            "reason": jsonsafe.printable(reason) if reason else None,
        },
        _one(lambda row: (row[0], row[1])),
        repeatable=True,
    )


def progress(job_id: UUID, epoch: int, value: Json) -> Call[None]:
    return Call(
        "select onceward.progress(%(job_id)s::uuid, %(epoch)s::bigint, %(value)s::jsonb)",
        {"job_id": job_id, "epoch": epoch, "value": jsonsafe.dumps(value, what="progress")},
        _nothing,
        repeatable=True,
    )


def release(worker_id: UUID, job_ids: Sequence[UUID] | None = None) -> Call[int]:
    return Call(
        "select onceward.release(%(worker_id)s::uuid, %(job_ids)s::uuid[])",
        {"worker_id": worker_id, "job_ids": None if job_ids is None else list(job_ids)},
        _scalar,
        repeatable=True,
    )


def promote(limit: int = 1000) -> Call[Promoted]:
    return Call(
        "select promoted, expired, next_run_at, next_in from onceward.promote(%(limit)s::int)",
        {"limit": limit},
        _one(lambda row: Promoted(row[0], row[1], row[2], row[3])),
        repeatable=True,
    )


def rescue(limit: int = 500, *, thorough: bool = True) -> Call[int]:
    return Call(
        "select onceward.rescue(%(limit)s::int, %(thorough)s::boolean)",
        {"limit": limit, "thorough": thorough},
        _scalar,
        repeatable=True,
    )


def ensure_partitions() -> Call[int]:
    return Call("select onceward.ensure_partitions()", {}, _scalar, repeatable=True)


def tidy(limit: int = 1000) -> Call[int]:
    return Call("select onceward.tidy(%(limit)s::int)", {"limit": limit}, _scalar, repeatable=True)


def now() -> Call[datetime]:
    return Call("select onceward.now()", {}, _scalar, repeatable=True)


def set_tenant(tenant: str) -> Call[None]:
    """For the rest of the transaction, act for this tenant ('*': all that the role may see)."""
    return Call("select set_config('onceward.tenant', %(tenant)s::text, true)", {"tenant": tenant}, _nothing)
