"""Payloads that people and programs send, checked by the applications that are served."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from onceward.app import Onceward
from onceward.model import Json


def check_payload(apps: Sequence[Onceward], task: str, payload: Mapping[str, Json]) -> None:
    """As enqueue does, where the task is known here.  Raises InvalidPayload naming each field."""
    app = next((app for app in apps if task in app.tasks), None)
    if app is not None:
        app.tasks[task].dump(payload)
