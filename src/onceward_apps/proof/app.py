"""The application as a worker finds it: `onceward worker onceward_apps.proof.app:app`."""

from __future__ import annotations

from onceward_apps.proof.jobs import make_app
from onceward_apps.proof.settings import Settings

app = make_app(Settings.from_environ())
