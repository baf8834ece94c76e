"""Calls that read the views."""

from __future__ import annotations

from dataclasses import fields
from datetime import datetime, timedelta
from typing import LiteralString
from uuid import UUID

from onceward.calls.base import Call, nothing, rows_of, scalar
from onceward.model import (
    AttemptInfo,
    DeadLetterGroup,
    DeadLetterInfo,
    JobFilter,
    JobInfo,
    Json,
    LaneInfo,
    PayloadEdit,
    WorkerInfo,
)

JOB: LiteralString = (
    "select id, tenant, lane, task, state, priority, attempt, max_attempts, snoozes, epoch, created_at, run_at, "
    "started_at, finished_at, expires_at, timeout, worker_id, payload, result, progress, key, concurrency_key, "
    "concurrency_limit, retry, headers, last_error, cancel_at, note, workflow_id, parent_id, node, after, after_policy, "
    "awaits, uses from onceward.jobs"
)


def job(job_id: UUID) -> Call[JobInfo | None]:
    return Call(
        JOB + " where id = %(job_id)s::uuid",
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
        JOB
        + _JOB_FILTER
        + " and (%(before)s::uuid is null or id < %(before)s::uuid) order by id desc limit %(limit)s::int",
        _filter_params(wanted),
        rows_of(JobInfo),
        repeatable=True,
    )


def count_jobs(wanted: JobFilter) -> Call[int]:
    return Call(
        "select count(*) from onceward.jobs" + _JOB_FILTER, _filter_params(wanted), scalar, repeatable=True
    )


def attempts(job_id: UUID) -> Call[list[AttemptInfo]]:
    return Call(
        "select job_id, epoch, tenant, task, attempt, worker_id, started_at, ended_at, outcome, error_type, category, "
        "message, fingerprint, traceback, retry_at from onceward.attempts where job_id = %(job_id)s::uuid order by epoch",
        {"job_id": job_id},
        rows_of(AttemptInfo),
        repeatable=True,
    )


def lanes() -> Call[list[LaneInfo]]:
    return Call(
        "select name, paused, paused_at, paused_by, pause_reason, ready, running, scheduled, blocked, dead_letter, "
        "oldest_ready_at, max_payload_bytes, max_result_bytes, created_at, fair, max_wait, audit, max_running "
        "from onceward.lanes order by name",
        {},
        rows_of(LaneInfo),
        repeatable=True,
    )


def workers() -> Call[list[WorkerInfo]]:
    return Call(
        "select id, name, host, pid, lanes, tasks, version, concurrency, lease, started_at, heartbeat_at, expires_at, "
        "retired_at, retired_why, state, running from onceward.workers order by started_at desc",
        {},
        rows_of(WorkerInfo),
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


def dead_letters(
    wanted: JobFilter, *, before: tuple[datetime, UUID] | None = None
) -> Call[list[DeadLetterInfo]]:
    """The latest first.  `before`: the time and id of the last one of the page before."""
    return Call(
        "select id, tenant, lane, task, priority, attempt, max_attempts, created_at, dead_at, payload, key, error_type, "
        "category, message, fingerprint"
        + _DEAD
        + " and (%(before_at)s::timestamptz is null or (dead_at, id) < (%(before_at)s::timestamptz, %(before_id)s::uuid))"
        " order by dead_at desc, id desc limit %(limit)s::int",
        {
            **_filter_params(wanted),
            "before_at": before[0] if before else None,
            "before_id": before[1] if before else None,
        },
        rows_of(DeadLetterInfo),
        repeatable=True,
    )


def count_dead_letters(wanted: JobFilter) -> Call[int]:
    return Call("select count(*)" + _DEAD, _filter_params(wanted), scalar, repeatable=True)


def dead_letter_ids(wanted: JobFilter) -> Call[list[UUID]]:
    """What a bulk action takes, oldest first: the order in which the jobs would have run."""
    return Call(
        "select id" + _DEAD + " order by dead_at, id limit %(limit)s::int",
        _filter_params(wanted),
        lambda rows: [row[0] for row in rows],
        repeatable=True,
    )


def dead_letter_groups(wanted: JobFilter) -> Call[list[DeadLetterGroup]]:
    # The words of the latest are fetched for the groups that are shown, and not carried along for every dead letter.
    return Call(
        "select g.fingerprint, g.task, g.count, g.first_at, g.last_at, g.id, d.error_type, d.message from ("
        "select fingerprint, task, count(*), min(dead_at) as first_at, max(dead_at) as last_at, "
        "(array_agg(id order by dead_at desc, id desc))[1] as id"
        + _DEAD
        + " group by fingerprint, task order by count(*) desc, max(dead_at) desc, task limit %(limit)s::int) as g "
        "join onceward.dead_letters as d on d.id = g.id order by g.count desc, g.last_at desc, g.task",
        _filter_params(wanted),
        rows_of(DeadLetterGroup),
        repeatable=True,
    )


def payload_edits(job_id: UUID) -> Call[list[PayloadEdit]]:
    return Call(
        "select job_id, edited_at, tenant, edited_by, payload_before from onceward.payload_edits "
        "where job_id = %(job_id)s::uuid order by edited_at",
        {"job_id": job_id},
        rows_of(PayloadEdit),
        repeatable=True,
    )


def lanes_of_tenant(tenant: str) -> Call[list[LaneInfo]]:
    """Lanes with the counts of one tenant, also for a role that sees every tenant."""
    return Call(
        "select l.name, l.paused, l.paused_at, l.paused_by, l.pause_reason, "
        "count(*) filter (where j.state = 'ready'), count(*) filter (where j.state = 'running'), "
        "count(*) filter (where j.state = 'scheduled'), count(*) filter (where j.state = 'blocked'), "
        "count(*) filter (where j.state = 'dead_letter'), min(j.run_at) filter (where j.state = 'ready'), "
        "l.max_payload_bytes, l.max_result_bytes, l.created_at, l.fair, l.max_wait, l.audit, l.max_running "
        "from onceward.lanes as l left join onceward.jobs as j on j.lane = l.name and j.tenant = %(tenant)s::text "
        "and j.state in ('ready', 'running', 'scheduled', 'blocked', 'dead_letter') "
        "group by 1, 2, 3, 4, 5, 12, 13, 14, 15, 16, 17, 18 order by l.name",
        {"tenant": tenant},
        rows_of(LaneInfo),
        repeatable=True,
    )


def now() -> Call[datetime]:
    return Call("select onceward.now()", {}, scalar, repeatable=True)


def set_tenant(tenant: str) -> Call[None]:
    """For the rest of the transaction, act for this tenant ('*': all that the role may see)."""
    return Call("select set_config('onceward.tenant', %(tenant)s::text, true)", {"tenant": tenant}, nothing)


def set_timeout(timeout: timedelta) -> Call[None]:
    """For the rest of the transaction, the server ends a statement that takes longer."""
    milliseconds = max(int(timeout.total_seconds() * 1000), 1)
    return Call(
        "select set_config('statement_timeout', %(timeout)s::text, true)",
        {"timeout": str(milliseconds)},
        nothing,
    )
