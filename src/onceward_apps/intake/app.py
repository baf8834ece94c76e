"""The application as a worker finds it: `onceward worker onceward_apps.intake.app:app`."""

from __future__ import annotations

from onceward_apps.intake.jobs import make_app
from onceward_apps.intake.settings import Settings

app = make_app(Settings.from_environ())
