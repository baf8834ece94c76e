"""Calls by which the web pages look at many jobs within a bounded time."""

from __future__ import annotations

from dataclasses import fields
from datetime import datetime
from typing import LiteralString
from uuid import UUID

from onceward.calls.base import Call, nothing, one, rows_of, scalar
from onceward.calls.reading import JOB
from onceward.model import JobFilter, JobInfo
from onceward.model_web import Activity, Count, FoundJob

# As many jobs are looked at, whatever matches.
SCAN = 20_000
_FOUND: LiteralString = (
    "onceward.find_jobs(%(states)s::text[], %(lane)s::text, %(task)s::text, %(tenant)s::text, %(key)s::text, %(error)s::text, "
    "%(fingerprint)s::text, %(since)s::timestamptz, %(until)s::timestamptz, %(before)s::uuid, %(limit)s::int, %(scan)s::int)"
)
_END: LiteralString = "onceward.scan_end(%(states)s::text[], %(since)s::timestamptz, %(until)s::timestamptz, %(before)s::uuid, %(scan)s::int)"


def _params(wanted: JobFilter, scan: int) -> dict[str, object]:
    params: dict[str, object] = {f.name: getattr(wanted, f.name) for f in fields(wanted)}
    return {**params, "states": list(wanted.states) or None, "scan": scan}


def find_jobs(wanted: JobFilter, *, scan: int = SCAN) -> Call[list[FoundJob]]:
    return Call(
        "select id, tenant, lane, task, state, priority, attempt, max_attempts, created_at, run_at, started_at, finished_at, "
        "key, error_type, message, note from " + _FOUND + " order by id desc",
        _params(wanted, scan),
        rows_of(FoundJob),
        repeatable=True,
    )


def scan_end(wanted: JobFilter, *, scan: int = SCAN) -> Call[UUID | None]:
    """The job at which find_jobs stopped looking, or None when it has seen all of them."""
    return Call("select " + _END, _params(wanted, scan), scalar, repeatable=True)


def count_found(wanted: JobFilter, *, scan: int = SCAN) -> Call[Count]:
    """How many jobs match among those that a search looks at.  Paging does not change it."""
    return Call(
        "select found, is_all from onceward.count_found(%(states)s::text[], %(lane)s::text, %(task)s::text, %(tenant)s::text, "
        "%(key)s::text, %(error)s::text, %(fingerprint)s::text, %(since)s::timestamptz, %(until)s::timestamptz, %(scan)s::int)",
        _params(wanted, scan),
        one(lambda row: Count(row[0], "exactly" if row[1] else "more than")),
        repeatable=True,
    )


def estimate_jobs() -> Call[int | None]:
    return Call("select onceward.estimate_jobs()", {}, scalar, repeatable=True)


def activity(minutes: int = 60) -> Call[list[Activity]]:
    return Call(
        "select minute, lane, done, failed, about from onceward.activity(%(minutes)s::int)",
        {"minutes": minutes},
        rows_of(Activity),
        repeatable=True,
    )


def pulse() -> Call[str]:
    return Call("select onceward.pulse()", {}, scalar, repeatable=True)


def act_as(tenant: str, actor: str) -> Call[None]:
    """For the rest of the transaction, act for this tenant ('*': all), in the name of this person."""
    return Call(
        "select set_config('onceward.tenant', %(tenant)s::text, true), set_config('onceward.actor', %(actor)s::text, true)",
        {"tenant": tenant, "actor": actor},
        nothing,
        repeatable=True,
    )


def take_role(role: str) -> Call[None]:
    """For the rest of the transaction, have the rights of this role only."""
    return Call("select set_config('role', %(role)s::text, true)", {"role": role}, nothing, repeatable=True)


def read_only() -> Call[None]:
    """For the rest of the transaction, write nothing, and give up what takes long: a few heavy pages would hold every
    connection."""
    return Call(
        "select set_config('transaction_read_only', 'on', true), set_config('statement_timeout', '20s', true)",
        {},
        nothing,
        repeatable=True,
    )


def waiting_for_people(most: int) -> Call[tuple[datetime, int, int]]:
    """The time; dead letters and uncertain deliveries, each counted up to a bound."""
    return Call(
        "select onceward.now(), (select count(*) from (select from onceward.dead_letters limit %(most)s::int) as d), "
        "(select count(*) from (select from onceward.deliveries where state = 'uncertain' limit %(most)s::int) as u)",
        {"most": most},
        one(lambda row: (row[0], row[1], row[2])),
        repeatable=True,
    )


def running_jobs(limit: int) -> Call[list[JobInfo]]:
    """The longest first."""
    return Call(
        JOB + " where state = 'running' order by started_at, id limit %(limit)s::int",
        {"limit": limit},
        rows_of(JobInfo),
        repeatable=True,
    )


def lane_names() -> Call[list[str]]:
    """Without the counts, which look at every live job."""
    return Call(
        "select name from onceward.lanes order by name",
        {},
        lambda rows: [row[0] for row in rows],
        repeatable=True,
    )
