"""What the calls about monitors, alerts, channels and retention return."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Literal, TypeAlias
from uuid import UUID

from onceward.model import Json

Severity: TypeAlias = Literal["info", "warning", "critical"]
SEVERITIES: tuple[Severity, ...] = ("info", "warning", "critical")
ALERT_STATES = ("open", "acknowledged", "closed")


@dataclass(frozen=True, slots=True)
class MonitorInfo:
    """One row of the view `monitors`."""

    name: str
    kind: str
    source: str
    app: str | None
    function: str | None
    description: str
    enabled: bool
    every: timedelta
    severity: str
    hold_for: timedelta
    clear_after: timedelta
    remind_every: timedelta | None
    timeout: timedelta
    errors_allowed: int
    channels: list[str] | None
    thresholds: Json
    next_at: datetime | None
    last_run_at: datetime | None
    last_status: str | None
    last_error: str | None
    errors: int
    created_at: datetime
    set_at: datetime | None
    set_by: str | None


@dataclass(frozen=True, slots=True)
class ThresholdInfo:
    """One row of the view `thresholds`.  A value that is None is switched off."""

    monitor: str
    name: str
    unit: str
    value: float | None
    default_value: float | None
    description: str


@dataclass(frozen=True, slots=True)
class MonitorRunInfo:
    """One row of the view `monitor_runs`."""

    id: UUID
    monitor: str
    started_at: datetime
    ended_at: datetime | None
    status: str
    took: timedelta | None
    findings: int
    result: Json
    error: str | None


@dataclass(frozen=True, slots=True)
class CheckOutcome:
    """The answer of run_monitor: ok, firing, error; asked, when a worker has to run it; running, when one does."""

    run_id: UUID | None
    status: str
    findings: int
    error: str | None


@dataclass(frozen=True, slots=True)
class BegunCheck:
    """A run that is ours to execute."""

    run_id: UUID
    monitor: str
    kind: str
    thresholds: Json
    timeout: timedelta


@dataclass(frozen=True, slots=True)
class AlertInfo:
    """One row of the view `alerts`.  A tenant of None: of the whole installation.

    `notified`: somebody was told.  `has_channel`: there is somebody to tell; None when it is closed.
    """

    id: UUID
    monitor: str
    tenant: str | None
    key: str
    state: str
    severity: str
    worst: str
    value: float | None
    summary: str
    detail: Json
    seen: int
    first_seen_at: datetime
    opened_at: datetime
    last_seen_at: datetime
    clear_since: datetime | None
    notified: bool
    reminders: int
    acked_at: datetime | None
    acked_by: str | None
    ack_note: str | None
    silenced_until: datetime | None
    closed_at: datetime | None
    closed_by: str | None
    close_note: str | None
    has_channel: bool | None


def told_words(alert: AlertInfo) -> str:
    """Whether anybody was told of it, and if not, why."""
    if alert.notified:
        reminders = f"{alert.reminders} reminder{'' if alert.reminders == 1 else 's'}"
        return f"yes, {reminders}" if alert.reminders else "yes"
    if alert.closed_at is not None:
        return "no"
    if not alert.has_channel:
        return "no, there is no channel for it"
    if alert.silenced_until is not None:
        return "no, it is silenced"
    if alert.acked_at is not None:
        return "no, it was acknowledged before"
    return "not yet, at the next run of its monitor"


@dataclass(frozen=True, slots=True)
class AlertFilter:
    """Which alerts to list, newest first.  `before` continues after the last alert of the previous page."""

    states: Sequence[str] = ("open", "acknowledged")
    monitor: str | None = None
    severity: str | None = None
    tenant: str | None = None
    before: UUID | None = None
    limit: int = 100


@dataclass(frozen=True, slots=True)
class SilenceInfo:
    """One row of the view `silences`.  What is None fits everything."""

    id: UUID
    alert_id: UUID | None
    monitor: str | None
    tenant: str | None
    key: str | None
    until: datetime
    active: bool
    reason: str
    created_at: datetime
    created_by: str


@dataclass(frozen=True, slots=True)
class ChannelInfo:
    """One row of the view `channels`; addresses are not shown."""

    name: str
    kind: str
    tenant: str | None
    severity: str
    created_at: datetime
    created_by: str


# Which field of its target the one address is that a form or a command asks for.
CHANNEL_ADDRESS = {"email": "to", "slack": "to", "telegram": "chat_id", "webhook": "url"}


def address_rule(kind: str, message: str) -> str | None:
    """`must be one address …`, when an error of the engine is about that field; it knows no address, but contents."""
    about = f"{CHANNEL_ADDRESS.get(kind)} of the content "
    return message.removeprefix(about) if message.startswith(about) else None


@dataclass(frozen=True, slots=True)
class UnsentKind:
    """A kind of delivery that the worker which took some has no provider for.  `delivery_id` is the last of them."""

    kind: str
    why: str
    waiting: int
    delivery_id: UUID


@dataclass(frozen=True, slots=True)
class RetentionInfo:
    """One row of the view `retention`.  A keep of None: for ever."""

    kind: str
    description: str
    keep: timedelta | None
    default_keep: timedelta | None
    least_keep: timedelta
    next_at: datetime
    last_run_at: datetime | None
    last_removed: int | None
    last_note: str | None
    set_at: datetime | None
    set_by: str | None


@dataclass(frozen=True, slots=True)
class Removed:
    """What a retention has removed of one kind, or would."""

    kind: str
    before: datetime | None
    row_count: int
    partitions: list[str]
    more: bool
    note: str | None


@dataclass(frozen=True, slots=True)
class LegalHoldInfo:
    """One row of the view `legal_holds`."""

    tenant: str
    active: bool
    held_at: datetime
    held_by: str
    reason: str
    released_at: datetime | None
    released_by: str | None
    release_reason: str | None


def plain_number(value: Decimal | float | None) -> float | None:
    """PostgreSQL's numeric as a number that JSON has."""
    if value is None:
        return None
    return int(value) if value == int(value) else float(value)
