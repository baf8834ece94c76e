"""The system in the web: its pages, its public routes, its sample data."""

from __future__ import annotations

from pathlib import Path

from onceward import Onceward
from onceward.web import Section
from onceward.web.sections import Link
from onceward_apps.alerts import routes, store
from onceward_apps.alerts.jobs import known

HERE = Path(__file__).parent


def make_section(app: Onceward) -> Section:
    functions = known()
    return Section(
        name="alerting",
        title="Alerts and decisions",
        public=routes.public_routes(functions),
        prepare=store.install,
    )
