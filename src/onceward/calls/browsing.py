"""Calls by which the web pages look at many jobs within a bounded time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields
from datetime import datetime, timedelta
from typing import LiteralString
from uuid import UUID

from onceward.calls.auditing import ENTRY
from onceward.calls.base import Call, nothing, one, rows_of, scalar
from onceward.calls.monitoring import ALERT, alert_of
from onceward.calls.reading import JOB
from onceward.model import JobFilter, JobInfo
from onceward.model_audit import AuditEntry, AuditFilter
from onceward.model_monitors import AlertFilter, AlertInfo
from onceward.model_web import Activity, Count, FoundJob, LimitQueues

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
    connection.  Nothing here runs long enough to be worth compiling."""
    return Call(
        "select set_config('transaction_read_only', 'on', true), set_config('statement_timeout', '20s', true), "
        "set_config('jit', 'off', true)",
        {},
        nothing,
        repeatable=True,
    )


def read_as(tenant: str, actor: str, role: str) -> Call[None]:
    """act_as, read_only and take_role in one: for who does it before each of many calls."""
    return Call(
        "select set_config('onceward.tenant', %(tenant)s::text, true), set_config('onceward.actor', %(actor)s::text, true), "
        "set_config('transaction_read_only', 'on', true), set_config('role', %(role)s::text, true)",
        {"tenant": tenant, "actor": actor, "role": role},
        nothing,
        repeatable=True,
    )


def wait_for_locks(most: timedelta | None) -> Call[None]:
    """For the rest of the transaction, wait for what others have locked at most so long; None: for as long as it takes."""
    milliseconds = 0 if most is None else max(int(most.total_seconds() * 1000), 1)
    return Call(
        "select set_config('lock_timeout', %(most)s::text, true)",
        {"most": str(milliseconds)},
        nothing,
        repeatable=True,
    )


def waiting_for_people(most: int) -> Call[tuple[datetime, int, int, int]]:
    """The time; dead letters, uncertain deliveries and open alerts that are not silenced, each counted up to a bound."""
    return Call(
        "select onceward.now(), (select count(*) from (select from onceward.dead_letters limit %(most)s::int) as d), "
        "(select count(*) from (select from onceward.deliveries where state = 'uncertain' limit %(most)s::int) as u), "
        "(select count(*) from (select from onceward.alerts where closed_at is null and acked_at is null "
        "and silenced_until is null limit %(most)s::int) as a)",
        {"most": most},
        one(lambda row: (row[0], row[1], row[2], row[3])),
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


def max_payload_bytes(lane: str) -> Call[int]:
    """How large a payload may be in this lane.  Counts nothing."""
    return Call(
        "select max_payload_bytes from onceward.lanes where name = %(lane)s::text",
        {"lane": lane},
        scalar,
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


def still_in(ids: Sequence[UUID], states: Sequence[str]) -> Call[list[UUID]]:
    """Those of the jobs that are in one of these states now, in the order given."""
    return Call(
        "select j.id from unnest(%(ids)s::uuid[]) with ordinality as given (id, place) join onceward.jobs as j on j.id = given.id "
        "where j.state = any(%(states)s::text[]) order by given.place",
        {"ids": list(ids), "states": list(states)},
        lambda rows: [row[0] for row in rows],
        repeatable=True,
    )


# ---------------------------------------------------------------- limits


def limit_queues(*, scan: int = SCAN) -> Call[LimitQueues]:
    """How many jobs are ready and use each limit, by its name and key, among those that one look sees."""
    return Call(
        "with looked as (select uses from onceward.jobs where state = 'ready' limit %(scan)s::int) "
        "select null, null, count(*) from looked union all "
        "select u ->> 'limit', coalesce(u ->> 'key', ''), count(*) from looked, jsonb_array_elements(uses) as u group by 1, 2",
        {"scan": scan},
        lambda rows: LimitQueues(
            {(row[0], row[1]): row[2] for row in rows if row[0] is not None},
            any(row[0] is None and row[2] >= scan for row in rows),
        ),
        repeatable=True,
    )


# ---------------------------------------------------------------- alerts

_ALERTS: LiteralString = (
    " where state = any (%(states)s::text[])"
    " and (%(monitor)s::text is null or monitor = %(monitor)s::text)"
    " and (%(severity)s::text is null or severity = %(severity)s::text)"
    " and (%(tenant)s::text is null or tenant = %(tenant)s::text)"
)


def find_alerts(wanted: AlertFilter) -> Call[list[AlertInfo]]:
    """The newest first."""
    return Call(
        ALERT + _ALERTS + " and (%(before)s::uuid is null or id < %(before)s::uuid) "
        "order by id desc limit %(limit)s::int",
        {**asdict(wanted), "states": list(wanted.states)},
        lambda rows: [alert_of(row) for row in rows],
        repeatable=True,
    )


def count_alerts(wanted: AlertFilter, *, most: int = SCAN) -> Call[Count]:
    """Paging does not change it."""
    return Call(
        "select count(*) from (select from onceward.alerts" + _ALERTS + " limit %(most)s::int) as a",
        {**asdict(wanted), "states": list(wanted.states), "most": most},
        lambda rows: Count(rows[0][0], "exactly" if rows[0][0] < most else "more than"),
        repeatable=True,
    )


# ---------------------------------------------------------------- the audit log

# What has an index, or orders by one, narrows the look; kind, actor and tenant are compared within it.
_ENTRIES: LiteralString = (
    "(select * from onceward.audit_log "
    "where (%(entity_type)s::text is null or entity_type = %(entity_type)s::text) "
    "and (%(entity_id)s::text is null or entity_id = %(entity_id)s::text) "
    "and (%(since)s::timestamptz is null or at >= %(since)s::timestamptz) "
    "and (%(until)s::timestamptz is null or at < %(until)s::timestamptz) "
    "and (%(before)s::bigint is null or seq < %(before)s::bigint) order by seq desc limit %(scan)s::int) as looked"
)
_MATCHES: LiteralString = (
    "(%(kind)s::text is null or kind = %(kind)s::text "
    "or (right(%(kind)s::text, 1) = '.' and starts_with(kind, %(kind)s::text))) "
    "and (%(actor)s::text is null or actor = %(actor)s::text) and (%(tenant)s::text is null or tenant = %(tenant)s::text)"
)


def find_entries(wanted: AuditFilter, *, scan: int = SCAN) -> Call[list[AuditEntry]]:
    """The newest first."""
    return Call(
        "select "
        + ENTRY
        + " from "
        + _ENTRIES
        + " where "
        + _MATCHES
        + " order by seq desc limit %(limit)s::int",
        {**asdict(wanted), "scan": scan},
        rows_of(AuditEntry),
        repeatable=True,
    )


def count_entries(wanted: AuditFilter, *, scan: int = SCAN) -> Call[tuple[Count, int | None]]:
    """How many match among those that one look sees, and the entry at which it stopped: None when it saw all of them.

    The look begins where the page does, so that the answer says how to go on.
    """
    return Call(
        "select count(*) filter (where "
        + _MATCHES
        + "), case when count(*) = %(scan)s::int then min(seq) end "
        "from " + _ENTRIES,
        {**asdict(wanted), "scan": scan},
        one(lambda row: (Count(row[0], "exactly" if row[1] is None else "more than"), row[1])),
        repeatable=True,
    )
