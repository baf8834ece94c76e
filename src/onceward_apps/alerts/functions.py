"""Scheduled functions, each idempotent: the registry that routes, schedules, pages and the checklist's test read.

    @function("detect-alerts", every="5m", window="5m")
    async def detect_alerts(context: Context, tenant: Tenant, window: Window) -> Result:
        ...

A run is a job of the engine, and its lock key is the job's idempotency key: whoever begins first runs, the others hear who has
it.  What a handler writes, it writes in `context.transaction(name, work)`: the rows and the checkpoint are committed
together, so a run that was cut off goes on where it stopped, and nothing is done twice.  What it sends, it sends through
`context.client.deliveries` on the connection of such a transaction.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Self
from uuid import UUID

import psycopg

from onceward import AsyncClient, Job
from onceward.errors import InvalidArgument
from onceward.registry import nearest_hint
from onceward_apps.alerts.settings import Settings

Connection = psycopg.AsyncConnection[Any]
Result = dict[str, Any]

_NAME = re.compile(r"^[a-z][a-z0-9-]{0,99}$")
_WINDOW = re.compile(r"^(day|hour|(1|2|3|4|5|6|10|12|15|20|30)m)$")
# What each frequency is as the spec of a schedule, in the tenant's zone.
_SPECS = {"hour": "7 * * * *", "day": "10 4 * * *"}


@dataclass(frozen=True, slots=True)
class Tenant:
    """A row of alerts.tenants."""

    id: UUID
    slug: str
    name: str
    time_zone: str
    notify: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Window:
    """What one run is about.  `starts_at` is included, `ends_at` is not; `grain_date` is the tenant's day."""

    lock_key: str
    starts_at: datetime
    ends_at: datetime
    grain_date: date


@dataclass(frozen=True, slots=True)
class Context:
    """What a handler works with."""

    job: Job
    client: AsyncClient
    settings: Settings
    # What the caller asked for beside the window; part of the lock key.
    entity: Mapping[str, Any]

    async def transaction(self, name: str, work: Callable[[Connection], Awaitable[Any]]) -> Any:
        """Run `work(connection)` as one transaction of the tenant, once per run; its answer is kept as JSON."""
        return await self.job.transaction(name, work)


Handler = Callable[[Context, Tenant, Window], Awaitable[Result]]


@dataclass(frozen=True, slots=True)
class Function:
    name: str
    # How often it is called for every tenant; None: when something has happened.
    every: str | None
    # Within which it runs once.
    window: str
    # The function that runs after it, when it has completed.
    then: str | None
    # What a caller may name in the body to run it for that alone.
    entity: tuple[str, ...]
    handler: Handler

    @property
    def spec(self) -> str | None:
        """When it is called, as a schedule of the tenant's zone."""
        if self.every is None:
            return None
        return _SPECS.get(self.every) or f"*/{self.every.removesuffix('m')} * * * *"

    @property
    def summary(self) -> str:
        return (self.handler.__doc__ or self.name).strip().splitlines()[0]


class Functions(dict[str, Function]):
    """Functions by name."""

    @classmethod
    def of(cls, *functions: Function) -> Self:
        return cls((found.name, found) for found in functions)

    def add(self, added: Function) -> None:
        if added.name in self:
            raise InvalidArgument(f'function "{added.name}" is registered twice')
        self[added.name] = added

    def chain(self, first: Function) -> list[str]:
        """The names of those that run after it, one after the other."""
        names: list[str] = []
        then = first.then
        while then is not None and then not in names:
            names.append(then)
            then = self[then].then
        return names

    def hint(self, name: str) -> str:
        return nearest_hint(name, self) or f"Known functions: {', '.join(sorted(self))}."


FUNCTIONS = Functions()


def function(
    name: str,
    *,
    every: str | None,
    window: str | None = None,
    then: str | None = None,
    entity: tuple[str, ...] = (),
) -> Callable[[Handler], Handler]:
    """Register a handler.  Without `window`, it runs once within each `every`."""
    span = window or every
    if not _NAME.match(name):
        raise InvalidArgument(f"name of a function must be small letters, digits and -, got {name!r}")
    if span is None or not _WINDOW.match(span):
        raise InvalidArgument(
            f'window of function "{name}" must be day, hour, or minutes that divide an hour, got {span!r}',
            hint='Write window="5m".',
        )
    if every is not None and not _WINDOW.match(every):
        raise InvalidArgument(
            f'frequency of function "{name}" must be day, hour, or minutes that divide an hour, got {every!r}'
        )

    def register(handler: Handler) -> Handler:
        FUNCTIONS.add(Function(name, every, span, then, entity, handler))
        return handler

    return register
