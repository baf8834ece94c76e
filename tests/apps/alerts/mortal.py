"""The application of workers that are killed."""

from __future__ import annotations

import os

from onceward.deliveries import Outbox
from onceward_apps.alerts.jobs import make_app
from tests.apps.alerts.place import SETTINGS

app = make_app(SETTINGS, email=Outbox(os.environ.get("ALERTS_TEST_OUTBOX"), sender="alerts@example.com"))
