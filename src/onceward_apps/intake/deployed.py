"""The application with the log level of the documented LOG_LEVEL, which a worker sets before it imports this."""

from __future__ import annotations

from onceward import logs
from onceward_apps.intake.app import app
from onceward_apps.intake.settings import WorkerEnvironment

__all__ = ["app"]

logs.configure("json", level=WorkerEnvironment.from_environ().log_level)
