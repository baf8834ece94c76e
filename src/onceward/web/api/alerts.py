"""Alerts: what monitors have raised."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Body, Query
from pydantic import BaseModel, Field
from starlette.requests import Request

from onceward import calls
from onceward.calls.monitoring import rank_of
from onceward.model_monitors import ALERT_STATES, AlertInfo
from onceward.web.api.callers import Operator, Reader
from onceward.web.api.fields import Changed, Limit, Name, Note, Reason, Sent, Tenant, answer_of
from onceward.web.context import web_of

router = APIRouter()
Alert = answer_of(AlertInfo, "Alert", "An alert; without a tenant, of the whole installation.")
AlertState = Literal[ALERT_STATES]  # type: ignore[valid-type] # the engine's own list


class Alerts(BaseModel):
    """The worst first, and of those the newest."""

    alerts: list[Alert]  # type: ignore[valid-type] # made by answer_of
    next: str | None = Field(description="Pass it as `before` for what follows; null at the end.")


class Acknowledging(Sent):
    """What there is to say, if anything."""

    note: Reason | None = None


class Closing(Sent):
    """Why it is over."""

    note: Note


@router.get("/alerts", summary="List alerts", response_model=Alerts)
async def list_alerts(
    request: Request,
    caller: Reader,
    state: Annotated[
        list[AlertState] | None,
        Query(description="Repeat it for several; those that are not closed unless given."),
    ] = None,
    monitor: Name | None = None,
    tenant: Tenant | None = None,
    before: Annotated[
        str | None, Query(pattern=r"^[0-5]-[0-9a-f]{32}$", description="`next` of the page before.")
    ] = None,
    limit: Limit = 100,
) -> Any:
    """The worst first."""
    rank, _, last = (before or "").partition("-")
    call = calls.alerts(
        states=state or ("open", "acknowledged"), monitor=monitor, tenant=tenant, limit=limit,
        before=(int(rank), UUID(last)) if before else None,
    )  # fmt: skip
    found = await web_of(request).database.run(caller.reading, call)
    last_one = found[-1] if len(found) == limit else None
    return {"alerts": found, "next": f"{rank_of(last_one)}-{last_one.id.hex}" if last_one else None}


@router.post("/alerts/{id}/ack", summary="Acknowledge an alert", response_model=Changed)
async def ack_alert(
    request: Request,
    caller: Operator,
    id: UUID,
    body: Annotated[Acknowledging, Body(default_factory=Acknowledging)],
) -> Any:
    """Somebody looks after it: no more reminders."""
    call = calls.ack_alert(id, body.note)
    return {"changed": await web_of(request).database.run(caller.operating, call, writes=True)}


@router.post("/alerts/{id}/close", summary="Close an alert", response_model=Changed)
async def close_alert(request: Request, caller: Operator, id: UUID, body: Closing) -> Any:
    """It opens again when the monitor finds the same."""
    call = calls.close_alert(id, body.note)
    return {"changed": await web_of(request).database.run(caller.operating, call, writes=True)}
