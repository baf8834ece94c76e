"""The system in the web: its pages, its public routes, its sample data."""

from __future__ import annotations

import asyncio

from onceward.web import Section, Web
from onceward.web.sections import Link
from onceward_apps.alerts import routes, sample, store
from onceward_apps.alerts.functions import Functions
from onceward_apps.alerts.pages import STATIC, TEMPLATES
from onceward_apps.alerts.pages.alerts import ROUTES as ALERTS
from onceward_apps.alerts.pages.decisions import ROUTES as DECISIONS
from onceward_apps.alerts.pages.jobs import Pages
from onceward_apps.alerts.pages.rules import ROUTES as RULES
from onceward_apps.alerts.sync.pages import ROUTES as SOURCES


def make_section(functions: Functions) -> Section:
    async def fill(web: Web) -> None:
        """Two companies, once; and the schedules of every tenant."""
        await asyncio.to_thread(sample.fill, web.database.dsn, functions)
        async with web.database.serving() as db:
            await store.plan(db.connection, functions)

    return Section(
        # `alerts` are those of the engine's monitors.
        name="alerting",
        title="Alerts and decisions",
        pages=[*ALERTS, *RULES, *DECISIONS, *SOURCES, *Pages(functions).routes],
        public=routes.public_routes(functions),
        links=[
            Link("/alerting/", "Metric alerts"),
            Link("/alerting/rules", "Rules"),
            Link("/alerting/decisions", "Decisions"),
            Link("/alerting/outcomes", "Outcomes"),
            Link("/alerting/sources", "Data sources"),
            Link("/alerting/runs", "Runs"),
            Link("/alerting/health", "Job health"),
            Link("/alerting/errors", "Runs that gave up"),
            Link("/alerting/scheduling", "Scheduling"),
        ],
        templates=TEMPLATES,
        static=STATIC,
        samples=fill,
        prepare=store.install,
    )
