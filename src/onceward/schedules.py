"""Schedules: what an application declares in code, and the way to those in the database.

`@app.schedule` and `app.add_schedule` declare; each worker writes the declarations into the database when it starts.
What a spec means is decided there: Python checks what it can, and the database has the last word.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, get_args
from uuid import UUID

from pydantic import BaseModel

from onceward import calls
from onceward.calls import Call
from onceward.declaring import check_options
from onceward.errors import InvalidArgument, kinds_of, shown
from onceward.model import Json, Retry
from onceward.model_schedules import NextTick, ScheduleChange, ScheduleInfo, TickInfo
from onceward.registry import Task

if TYPE_CHECKING:
    from onceward.async_client import AsyncClient
    from onceward.client import Client

__all__ = ["AsyncSchedules", "Schedule", "ScheduleOptions", "Schedules"]

Missed = Literal["none", "latest", "all"]
Overlap = Literal["skip", "queue", "allow"]
Spec = str | timedelta
# Of an application that was given no name.
DEFAULT_NAME = "default"
_NAME = re.compile(r"^[A-Za-z0-9_.:/-]{1,200}$")


class ScheduleOptions(TypedDict, total=False):
    """What a schedule takes beside its task and its spec.  What is left out comes from the task's declaration."""

    name: str | None
    zone: str | None
    payload: Mapping[str, Json] | BaseModel | None
    # Slots that are over when somebody looks: dropped, the last one, or all of them up to `catch_up`.
    missed: Missed
    catch_up: int
    # How late a slot may be fired when `missed` is none.
    grace: timedelta
    # While a job of this schedule has not ended: no other, one after the other, or beside each other.
    overlap: Overlap
    jitter: timedelta
    lane: str | None
    priority: int | None
    max_attempts: int | None
    retry: Retry | None
    timeout: timedelta | None
    expires_in: timedelta | None
    tenant: str | None


_TYPES: dict[str, type | tuple[type, ...]] = {
    "name": str,
    "zone": str,
    "payload": (Mapping, BaseModel),
    "missed": str,
    "catch_up": int,
    "grace": timedelta,
    "overlap": str,
    "jitter": timedelta,
    "lane": str,
    "priority": int,
    "max_attempts": int,
    "retry": Retry,
    "timeout": timedelta,
    "expires_in": timedelta,
    "tenant": str,
}
_CHOICES = {"missed": get_args(Missed), "overlap": get_args(Overlap)}


@dataclass(frozen=True, slots=True)
class Schedule:
    """One declaration, checked as far as Python can."""

    name: str
    task: str
    spec: str
    # JSON text that fits the task.
    payload: str
    options: Mapping[str, Any]

    @property
    def lane(self) -> str:
        return str(self.options.get("lane", "default"))

    def to_json(self) -> dict[str, Json]:
        """As onceward.declare_schedules reads it."""
        plain: dict[str, Json] = {
            name: f"{value.total_seconds():f} seconds" if isinstance(value, timedelta) else value
            for name, value in self.options.items()
        }
        return {
            **plain,
            "name": self.name,
            "task": self.task,
            "spec": self.spec,
            "payload": json.loads(self.payload),
        }


def declare(task: Task[Any, Any], spec: Spec, given: ScheduleOptions) -> Schedule:
    """Raises InvalidArgument or InvalidPayload."""
    unknown = set(given) - set(_TYPES)
    if unknown:
        raise InvalidArgument(
            f"a schedule has no option {shown(', '.join(sorted(unknown)))}",
            hint=f"Options: {', '.join(_TYPES)}.",
        )
    options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    for name, value in options.items():
        kinds = _TYPES[name]
        if not isinstance(value, kinds) or isinstance(value, bool):
            raise InvalidArgument(
                f"{name} of a schedule must be {kinds_of(kinds)}, got {shown(value)}",
                hint="For durations: timedelta(seconds=5)." if kinds is timedelta else None,
            )
        if name in _CHOICES and value not in _CHOICES[name]:
            raise InvalidArgument(
                f"{name} of a schedule must be one of {', '.join(_CHOICES[name])}, got {shown(value)!r}"
            )
        if isinstance(value, timedelta) and value < timedelta(0):
            raise InvalidArgument(f"{name} of a schedule must not be negative, got {value}")
    name = options.pop("name", task.name)
    check_options(f'schedule "{shown(name)}"', options)
    if not _NAME.fullmatch(name):
        raise InvalidArgument(
            f"name of a schedule must be 1 to 200 letters, digits or . _ : / -, got {shown(name)!r}"
        )
    payload = task.dump(options.pop("payload", None))
    of_task = task.options
    defaults = {
        "lane": of_task.lane,
        "priority": of_task.priority,
        "max_attempts": of_task.max_attempts,
        "retry": of_task.retry,
        "timeout": of_task.timeout,
    }
    merged: dict[str, Any] = {
        **{key: value for key, value in defaults.items() if value is not None},
        **options,
    }
    if isinstance(merged.get("retry"), Retry):
        merged["retry"] = merged["retry"].to_json()
    if uses := task.uses(json.loads(payload)):
        merged["uses"] = uses
    return Schedule(name, task.name, _spec_text(spec), payload, merged)


def _spec_text(spec: Spec) -> str:
    if isinstance(spec, timedelta):
        seconds = spec.total_seconds()
        if seconds < 1 or seconds % 1:
            raise InvalidArgument(f"interval of a schedule must be whole seconds, at least one, got {spec}")
        return f"{seconds:.0f} seconds"
    if not isinstance(spec, str) or not spec.strip():
        raise InvalidArgument(
            f"spec of a schedule must be a text or a timedelta, got {shown(spec)!r}",
            hint='Write "0 7 * * mon-fri", "07:00 mon-fri", "30 seconds" or timedelta(seconds=30).',
        )
    return spec


def _added(task: Task[Any, Any], spec: Spec, given: ScheduleOptions) -> Call[ScheduleChange]:
    schedule = declare(task, spec, given)
    return calls.add_schedule(
        schedule.name, task=schedule.task, spec=schedule.spec, payload=schedule.payload, **schedule.options
    )


class Schedules:
    """Schedules in the database, for synchronous code: `Schedules(client).pause("report")`.

    `tenant` names whose schedule is meant; without it, the client's tenant, or `default`.
    """

    def __init__(self, client: Client, *, tenant: str | None = None) -> None:
        self._client = client
        self._tenant = tenant

    def add(self, task: Task[Any, Any], spec: Spec, **options: Unpack[ScheduleOptions]) -> ScheduleChange:
        """Create or change one.  It is a person's from then on: code that declares the same name leaves it alone."""
        return self._client.run(_added(task, spec, {"tenant": self._tenant, **options}))

    def all(self) -> list[ScheduleInfo]:
        return self._client.run(calls.schedules(tenant=self._tenant))

    def ticks(self, schedule: ScheduleInfo, *, limit: int = 10) -> list[TickInfo]:
        return self._client.run(calls.ticks(schedule.id, limit=limit))

    def next_ticks(
        self, spec: str, zone: str | None = None, *, after: datetime | None = None, count: int = 10
    ) -> list[NextTick]:
        return self._client.run(calls.next_ticks(spec, zone, after=after, count=count))

    def pause(self, name: str, reason: str | None = None) -> bool:
        return self._client.run(calls.pause_schedule(name, reason, tenant=self._tenant))

    def resume(self, name: str) -> bool:
        return self._client.run(calls.resume_schedule(name, tenant=self._tenant))

    def run_now(self, name: str) -> UUID:
        return self._client.run(calls.run_schedule_now(name, tenant=self._tenant))

    def drop(self, name: str) -> None:
        self._client.run(calls.drop_schedule(name, tenant=self._tenant))


class AsyncSchedules:
    """Like `Schedules`, for asyncio code."""

    def __init__(self, client: AsyncClient, *, tenant: str | None = None) -> None:
        self._client = client
        self._tenant = tenant

    async def add(
        self, task: Task[Any, Any], spec: Spec, **options: Unpack[ScheduleOptions]
    ) -> ScheduleChange:
        """Create or change one.  It is a person's from then on: code that declares the same name leaves it alone."""
        return await self._client.run(_added(task, spec, {"tenant": self._tenant, **options}))

    async def all(self) -> list[ScheduleInfo]:
        return await self._client.run(calls.schedules(tenant=self._tenant))

    async def ticks(self, schedule: ScheduleInfo, *, limit: int = 10) -> list[TickInfo]:
        return await self._client.run(calls.ticks(schedule.id, limit=limit))

    async def next_ticks(
        self, spec: str, zone: str | None = None, *, after: datetime | None = None, count: int = 10
    ) -> list[NextTick]:
        return await self._client.run(calls.next_ticks(spec, zone, after=after, count=count))

    async def pause(self, name: str, reason: str | None = None) -> bool:
        return await self._client.run(calls.pause_schedule(name, reason, tenant=self._tenant))

    async def resume(self, name: str) -> bool:
        return await self._client.run(calls.resume_schedule(name, tenant=self._tenant))

    async def run_now(self, name: str) -> UUID:
        return await self._client.run(calls.run_schedule_now(name, tenant=self._tenant))

    async def drop(self, name: str) -> None:
        await self._client.run(calls.drop_schedule(name, tenant=self._tenant))
