"""Calls about monitors, alerts and channels."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import LiteralString
from uuid import UUID

from onceward import jsonsafe
from onceward.calls.base import Call, Row, nothing, one, rows_of, scalar
from onceward.model import Json
from onceward.model_monitors import (
    AlertInfo,
    BegunCheck,
    ChannelInfo,
    CheckOutcome,
    MonitorInfo,
    MonitorRunInfo,
    SilenceInfo,
    ThresholdInfo,
    UnsentKind,
    plain_number,
)

ALERT: LiteralString = (
    "select id, monitor, tenant, key, state, severity, worst, value, summary, detail, seen, first_seen_at, opened_at, "
    "last_seen_at, clear_since, notified, reminders, acked_at, acked_by, ack_note, silenced_until, closed_at, closed_by, "
    "close_note, has_channel from onceward.alerts"
)


def begin_checks(python: Sequence[str] = (), *, limit: int = 10) -> Call[list[BegunCheck]]:
    return Call(
        "select run_id, monitor, kind, thresholds, timeout from onceward.begin_checks(%(limit)s::int, %(python)s::text[])",
        {"limit": limit, "python": list(python)},
        rows_of(BegunCheck),
        repeatable=True,
    )


def run_check(run_id: UUID) -> Call[str]:
    return Call("select onceward.run_check(%(run_id)s::uuid)", {"run_id": run_id}, scalar)


def finish_check(run_id: UUID, findings: str, took: timedelta) -> Call[str]:
    """`findings` is JSON text that jsonsafe has written."""
    return Call(
        "select onceward.finish_check(%(run_id)s::uuid, %(findings)s::jsonb, %(took)s::interval)",
        {"run_id": run_id, "findings": findings, "took": took},
        scalar,
    )


def fail_check(run_id: UUID, error: str, took: timedelta) -> Call[str]:
    return Call(
        "select onceward.fail_check(%(run_id)s::uuid, %(error)s::text, %(took)s::interval)",
        {"run_id": run_id, "error": jsonsafe.printable(error, 2000), "took": took},
        scalar,
    )


def declare_monitors(app: str, monitors: str) -> Call[dict[str, str]]:
    """`monitors` is a JSON array; the answer says what became of each name."""
    return Call(
        "select name, outcome from onceward.declare_monitors(%(app)s::text, %(monitors)s::jsonb)",
        {"app": app, "monitors": monitors},
        lambda rows: {row[0]: row[1] for row in rows},
        repeatable=True,
    )


def run_monitor(name: str) -> Call[CheckOutcome]:
    return Call(
        "select run_id, status, findings, error from onceward.run_monitor(%(name)s::text)",
        {"name": name},
        one(lambda row: CheckOutcome(*row)),
    )


def set_monitor(
    name: str,
    *,
    thresholds: Mapping[str, float | str | None] | None = None,
    every: timedelta | None = None,
    severity: str | None = None,
    hold_for: timedelta | None = None,
    clear_after: timedelta | None = None,
    remind_every: timedelta | None = None,
    timeout: timedelta | None = None,
    errors_allowed: int | None = None,
    channels: Sequence[str] | None = None,
) -> Call[None]:
    """What is None stays; thresholds take a number, None (off) or "default"."""
    return Call(
        "select onceward.set_monitor(%(name)s::text, %(thresholds)s::jsonb, %(every)s::interval, %(severity)s::text, "
        "%(hold_for)s::interval, %(clear_after)s::interval, %(remind_every)s::interval, %(timeout)s::interval, "
        "%(errors_allowed)s::int, %(channels)s::text[])",
        {
            "name": name,
            "thresholds": json.dumps(dict(thresholds or {})),
            "every": every,
            "severity": severity,
            "hold_for": hold_for,
            "clear_after": clear_after,
            "remind_every": remind_every,
            "timeout": timeout,
            "errors_allowed": errors_allowed,
            "channels": None if channels is None else list(channels),
        },
        nothing,
        repeatable=True,
    )


def enable_monitor(name: str) -> Call[bool]:
    return Call("select onceward.enable_monitor(%(name)s::text)", {"name": name}, scalar, repeatable=True)


def disable_monitor(name: str) -> Call[bool]:
    return Call("select onceward.disable_monitor(%(name)s::text)", {"name": name}, scalar, repeatable=True)


def drop_monitor(name: str) -> Call[None]:
    return Call("select onceward.drop_monitor(%(name)s::text)", {"name": name}, nothing)


def monitors(names: Sequence[str] | None = None) -> Call[list[MonitorInfo]]:
    return Call(
        "select name, kind, source, app, function, description, enabled, every, severity, hold_for, clear_after, "
        "remind_every, timeout, errors_allowed, channels, thresholds, next_at, last_run_at, last_status, last_error, errors, "
        "created_at, set_at, set_by from onceward.monitors "
        "where (%(names)s::text[] is null or name = any (%(names)s::text[])) order by name",
        {"names": None if names is None else list(names)},
        rows_of(MonitorInfo),
        repeatable=True,
    )


def thresholds(monitor: str) -> Call[list[ThresholdInfo]]:
    return Call(
        "select monitor, name, unit, value, default_value, description from onceward.thresholds "
        "where monitor = %(monitor)s::text order by name",
        {"monitor": monitor},
        lambda rows: [_threshold(row) for row in rows],
        repeatable=True,
    )


def _threshold(row: Row) -> ThresholdInfo:
    info = ThresholdInfo(*row)
    return replace(info, value=plain_number(info.value), default_value=plain_number(info.default_value))


def monitor_runs(monitor: str, *, limit: int = 10, before: UUID | None = None) -> Call[list[MonitorRunInfo]]:
    """The latest first; with `before`, those that began before that run."""
    return Call(
        "select id, monitor, started_at, ended_at, status, took, findings, result, error from onceward.monitor_runs "
        "where monitor = %(monitor)s::text and (%(before)s::uuid is null or (started_at, id) < "
        "(select r.started_at, r.id from onceward.monitor_runs as r where r.id = %(before)s::uuid)) "
        "order by started_at desc, id desc limit %(limit)s::int",
        {"monitor": monitor, "limit": limit, "before": before},
        rows_of(MonitorRunInfo),
        repeatable=True,
    )


# ---------------------------------------------------------------- alerts


# Open before closed, then the worst first.
_WORST = ("critical", "warning", "info")
_RANK: LiteralString = (
    "(case when closed_at is null then 0 else 3 end "
    "+ array_position(array['critical', 'warning', 'info'], severity) - 1)"
)


def rank_of(alert: AlertInfo) -> int:
    """Where it stands among others, from 0: as the order of `alerts` has it."""
    return _WORST.index(alert.severity) + (3 if alert.closed_at else 0)


def alerts(
    *,
    states: Sequence[str] = ("open", "acknowledged"),
    monitor: str | None = None,
    tenant: str | None = None,
    limit: int = 100,
    before: tuple[int, UUID] | None = None,
) -> Call[list[AlertInfo]]:
    """The worst first, and of those the newest.  `before`: rank_of and id of the last one of the page before."""
    return Call(
        ALERT + " where state = any (%(states)s::text[])"
        " and (%(monitor)s::text is null or monitor = %(monitor)s::text)"
        " and (%(tenant)s::text is null or tenant = %(tenant)s::text)"
        " and (%(rank)s::int is null or " + _RANK + " > %(rank)s::int"
        " or (" + _RANK + " = %(rank)s::int and id < %(id)s::uuid))"
        " order by " + _RANK + ", id desc limit %(limit)s::int",
        {
            "states": list(states),
            "monitor": monitor,
            "tenant": tenant,
            "limit": limit,
            "rank": before[0] if before else None,
            "id": before[1] if before else None,
        },
        lambda rows: [alert_of(row) for row in rows],
        repeatable=True,
    )


def alert(alert_id: UUID) -> Call[AlertInfo | None]:
    return Call(
        ALERT + " where id = %(id)s::uuid",
        {"id": alert_id},
        lambda rows: alert_of(rows[0]) if rows else None,
        repeatable=True,
    )


def alert_of(row: Row) -> AlertInfo:
    info = AlertInfo(*row)
    return replace(info, value=plain_number(info.value))


def ack_alert(alert_id: UUID, note: str | None = None) -> Call[bool]:
    return Call(
        "select onceward.ack_alert(%(id)s::uuid, %(note)s::text)",
        {"id": alert_id, "note": jsonsafe.printable(note) if note else None},
        scalar,
        repeatable=True,
    )


def close_alert(alert_id: UUID, note: str) -> Call[bool]:
    return Call(
        "select onceward.close_alert(%(id)s::uuid, %(note)s::text)",
        {"id": alert_id, "note": jsonsafe.printable(note)},
        scalar,
        repeatable=True,
    )


def silence_alerts(
    until: datetime,
    reason: str,
    *,
    alert_id: UUID | None = None,
    monitor: str | None = None,
    tenant: str | None = None,
    key: str | None = None,
) -> Call[UUID]:
    return Call(
        "select onceward.silence_alerts(%(until)s::timestamptz, %(reason)s::text, %(alert_id)s::uuid, %(monitor)s::text, "
        "%(tenant)s::text, %(key)s::text)",
        {
            "until": until,
            "reason": jsonsafe.printable(reason),
            "alert_id": alert_id,
            "monitor": monitor,
            "tenant": tenant,
            "key": key,
        },
        scalar,
    )


def end_silence(silence_id: UUID) -> Call[bool]:
    return Call("select onceward.end_silence(%(id)s::uuid)", {"id": silence_id}, scalar, repeatable=True)


def silences(*, all_of_them: bool = False) -> Call[list[SilenceInfo]]:
    return Call(
        "select id, alert_id, monitor, tenant, key, until, active, reason, created_at, created_by from onceward.silences "
        "where active or %(all)s::boolean order by until desc limit 1000",
        {"all": all_of_them},
        rows_of(SilenceInfo),
        repeatable=True,
    )


# ---------------------------------------------------------------- channels


def add_channel(
    name: str, kind: str, target: Json, *, severity: str = "warning", tenant: str | None = None
) -> Call[bool]:
    return Call(
        "select onceward.add_channel(%(name)s::text, %(kind)s::text, %(target)s::jsonb, %(severity)s::text, %(tenant)s::text)",
        {
            "name": name,
            "kind": kind,
            "target": jsonsafe.dumps(target, what="target"),
            "severity": severity,
            "tenant": tenant,
        },
        scalar,
        repeatable=True,
    )


def unsent_kinds() -> Call[list[UnsentKind]]:
    return Call(
        "select kind, why, waiting, delivery_id from onceward.unsent_kinds()",
        {},
        rows_of(UnsentKind),
        repeatable=True,
    )


def drop_channel(name: str) -> Call[None]:
    return Call("select onceward.drop_channel(%(name)s::text)", {"name": name}, nothing)


def test_channel(name: str) -> Call[UUID]:
    return Call("select onceward.test_channel(%(name)s::text)", {"name": name}, scalar)


def channels() -> Call[list[ChannelInfo]]:
    return Call(
        "select name, kind, tenant, severity, created_at, created_by from onceward.channels order by name",
        {},
        rows_of(ChannelInfo),
        repeatable=True,
    )
