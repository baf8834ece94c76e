"""The application as a worker finds it: `onceward worker onceward_apps.proof.app:app`; with its pages: `onceward up …`."""

from __future__ import annotations

from onceward_apps.proof.jobs import make_app
from onceward_apps.proof.section import make_section
from onceward_apps.proof.settings import Settings

settings = Settings.from_environ()
app = make_app(settings)
app.sections.append(make_section(app, settings))
