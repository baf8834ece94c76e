"""The application as a worker finds it: `onceward worker onceward_apps.alerts.app:app`."""

from __future__ import annotations

import os

from onceward_apps.alerts.jobs import known, make_app
from onceward_apps.alerts.section import make_section
from onceward_apps.alerts.settings import Settings

app = make_app(Settings.from_environ(os.environ))
app.sections.append(make_section(known()))
