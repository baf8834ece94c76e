"""The application: a task for each function, the calls of the clock, and the plan of every tenant's schedules."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Awaitable, Callable
from datetime import date, datetime, timedelta
from typing import Any

from onceward import Job, Onceward
from onceward.deliveries import Deliveries, Provider
from onceward.errors import PermanentFailure
from onceward_apps.alerts import store
from onceward_apps.alerts.functions import (
    FUNCTIONS,
    Connection,
    Context,
    Function,
    Functions,
    Result,
    Tenant,
    Window,
)
from onceward_apps.alerts.settings import Settings

LANE, TICKS, DELIVERIES = "alerts", "alerts-ticks", "alerts-deliveries"
# Modules that register functions when they are imported.
_MODULES = ("onceward_apps.alerts.domain", "onceward_apps.alerts.sync")


def known() -> Functions:
    """Every function of the system."""
    for module in _MODULES:
        if importlib.util.find_spec(module) is not None:
            importlib.import_module(module)
    return FUNCTIONS


def make_app(
    settings: Settings,
    dsn: str | None = None,
    *,
    email: Provider | None = None,
    functions: Functions | None = None,
) -> Onceward:
    """The application.  Emails go the way that ONCEWARD_EMAIL names, unless a provider is given."""
    chosen = known() if functions is None else functions
    app = Onceward(dsn, name="alerts")
    Deliveries(app, email=email, lane=DELIVERIES)
    # Never connects by itself: what it sends is entered on the connection of a run's transaction.
    client = app.async_client()
    for function in chosen.values():
        app.task(name=function.name, lane=LANE, timeout=timedelta(hours=1))(
            _runner(function, lambda job, entity: Context(job, client, settings, entity))
        )

    @app.task(name="alerts.call", lane=TICKS)
    async def call(function: str, job: Job) -> Result:
        """What a schedule does: the same as a caller over HTTP.  Whoever comes second hears who has it."""
        if function not in chosen:
            raise PermanentFailure(f'function "{function}" does not exist. {chosen.hint(function)}')

        async def begin(connection: Connection) -> Result:
            begun = await store.begin(connection, chosen[function], chosen, caller="schedule")
            return {"skipped": not begun.is_ours, **begun.to_json()}

        answer: Result = await job.transaction("begun", begin)
        return answer

    @app.schedule("1 minute", name="alerts-plan", missed="none", overlap="skip")
    @app.task(name="alerts.plan", lane=TICKS, max_attempts=1)
    async def plan(job: Job) -> int:
        """New tenants and new functions get their schedules."""

        async def work(connection: Connection) -> int:
            return await store.plan(connection, chosen)

        changed: int = await job.transaction("planned", work)
        return changed

    return app


def _runner(
    function: Function, context_of: Callable[[Job, dict[str, Any]], Context]
) -> Callable[..., Awaitable[Result]]:
    async def run(
        job: Job,
        lock_key: str,
        entity: dict[str, Any],
        grain_date: date,
        starts_at: datetime,
        ends_at: datetime,
    ) -> Result:
        tenant: Tenant = await job.transaction("tenant", store.acting_tenant)
        window = Window(lock_key, starts_at, ends_at, grain_date)
        return await function.handler(context_of(job, entity), tenant, window)

    run.__doc__ = function.summary
    return run
