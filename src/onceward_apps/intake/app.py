"""The application as a worker and the pages find it: `onceward worker onceward_apps.intake.app:app`."""

from __future__ import annotations

from onceward_apps.intake.jobs import LazyDatabase, make_app
from onceward_apps.intake.pages import section
from onceward_apps.intake.settings import Settings

settings = Settings.from_environ()
app = make_app(settings)
app.sections.append(section(settings, LazyDatabase(app)))
