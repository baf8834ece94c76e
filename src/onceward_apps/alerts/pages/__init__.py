"""The pages: alerts, rules, decisions and their outcomes, runs, health, dead letters, scheduling."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Any, LiteralString
from uuid import UUID

import psycopg
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from onceward.calls import Call
from onceward.web import layout
from onceward.web.database import Acting
from onceward_apps.alerts import drawing

STATIC = Path(__file__).parents[1] / "static"
TEMPLATES = Path(__file__).parents[1] / "templates"
_STATUS = {"AL001": 404, "AL002": 404, "AL003": 409}
# How each word of the system is drawn.
CHIPS = {
    "active": "alert_open", "open": "alert_open", "triggered": "alert_open", "acknowledged": "alert_acknowledged",
    "resolved": "alert_closed", "OPEN": "ready", "IN_PROGRESS": "running", "DECIDED": "scheduled", "MEASURED": "done",
    "running": "running", "completed": "done", "failed": "dead_letter", "cancelled": "cancelled",
    "improved": "ok", "unchanged": "unknown", "worsened": "fail", "no_data": "unknown",
}  # fmt: skip
WORDS = {"IN_PROGRESS": "in progress", "no_data": "no data"}


def render(request: Request, template: str, shown: layout.Frame, **context: Any) -> Response:
    return layout.render(
        request, f"alerting/{template}", shown,
        style=_address("alerting.css"), drawing=drawing, chips=CHIPS, words=WORDS, amount=drawing.shown, **context,
    )  # fmt: skip


@cache
def _address(name: str) -> str:
    digest = hashlib.sha256((STATIC / name).read_bytes()).hexdigest()[:12]
    return f"/static/alerting/{name}?v={digest}"


def id_of(request: Request) -> UUID:
    try:
        return UUID(request.path_params["id"])
    except ValueError:
        raise HTTPException(404) from None


async def change(db: Acting, statement: LiteralString, **params: object) -> Any:
    """Call a function that changes something; what it refuses is an answer.  Returns its value."""
    try:
        return await db.run(Call(statement, params, lambda rows: rows[0][0] if rows else None))
    except psycopg.DatabaseError as error:
        status = _STATUS.get(error.sqlstate or "")
        if status is None:
            raise
        said = error.diag.message_primary or "this is not possible"
        raise HTTPException(status, f"{said}. {error.diag.message_hint or ''}".strip()) from None
