"""What the calls about schedules and runs return."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from onceward.model import Json


@dataclass(frozen=True, slots=True)
class ScheduleInfo:
    """One row of the view `schedules`."""

    id: UUID
    tenant: str
    name: str
    task: str
    lane: str
    spec: str
    zone: str
    state: str
    next_slot: str | None
    next_at: datetime | None
    payload: Json
    priority: int
    max_attempts: int
    retry: Json
    timeout: timedelta | None
    expires_in: timedelta | None
    missed: str
    catch_up: int
    grace: timedelta
    overlap: str
    jitter: timedelta
    paused_at: datetime | None
    paused_by: str | None
    pause_reason: str | None
    source: str
    app: str | None
    declared: bool
    version: int
    created_at: datetime
    changed_at: datetime
    changed_by: str
    last_slot: str | None
    last_fire_at: datetime | None
    last_ticked_at: datetime | None
    last_outcome: str | None
    last_job_id: UUID | None


@dataclass(frozen=True, slots=True)
class TickInfo:
    """One row of the view `ticks`."""

    schedule_id: UUID
    tenant: str
    schedule: str
    slot: str
    fire_at: datetime
    outcome: str
    slots: int
    job_id: UUID | None
    reason: str | None
    ticked_at: datetime


@dataclass(frozen=True, slots=True)
class NextTick:
    """A moment at which a spec fires; the slot is the local time, which names it."""

    slot: str
    fire_at: datetime


@dataclass(frozen=True, slots=True)
class ScheduleChange:
    """What became of a schedule that was added: created, changed or unchanged."""

    outcome: str
    next_slot: str
    next_at: datetime


@dataclass(frozen=True, slots=True)
class Ticked:
    fired: int
    missed: int
    skipped: int
    next_at: datetime | None
    next_in: timedelta | None


@dataclass(frozen=True, slots=True)
class RunInfo:
    """One row of the view `runs`."""

    tenant: str
    key: str
    state: str
    holder: str
    epoch: int
    attempt: int
    created_at: datetime
    since: datetime
    expires_at: datetime | None
    abandoned: bool
    finished_at: datetime | None
    result: Json
    error: str | None


@dataclass(frozen=True, slots=True)
class RunAnswer:
    """The answer of begin_run: whether the caller has the key, and who has it since when."""

    acquired: bool
    state: str
    epoch: int
    attempt: int
    holder: str
    since: datetime
    expires_at: datetime | None
    finished_at: datetime | None
    result: Json
    error: str | None
