"""Deliveries: the ledger of outside effects."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from onceward import calls
from onceward.model import DELIVERY_KINDS, DELIVERY_STATES, DeliveryFilter, DeliveryInfo
from onceward.web.api.callers import Operator, Reader
from onceward.web.api.fields import Limit, Note, Sent, Tenant, Text, answer_of
from onceward.web.api.once import REPLAYED, Done, IdempotencyKey, perform
from onceward.web.context import web_of
from onceward.web.database import Acting

router = APIRouter()
Delivery = answer_of(DeliveryInfo, "Delivery", "An outside effect, without its content.")
Kind = Literal[DELIVERY_KINDS]  # type: ignore[valid-type] # the engine's own list
DeliveryState = Literal[DELIVERY_STATES]  # type: ignore[valid-type]


class DeliveryPage(BaseModel):
    """Newest first."""

    deliveries: list[Delivery]  # type: ignore[valid-type] # made by answer_of
    next: UUID | None = Field(description="Pass it as `before` for what follows; null at the end.")


class Deciding(Sent):
    """What became of it, as somebody has found out."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"decision": "sent", "note": "The customer has it."}]}
    )
    decision: Literal["sent", "send_again", "abandon"] = Field(
        description="sent: it arrived (of an uncertain one); send_again: it did not; abandon: leave it."
    )
    note: Note


class Decided(BaseModel):
    """The state that the delivery is in now."""

    id: UUID
    state: str


@router.get("/deliveries", summary="List deliveries", response_model=DeliveryPage)
async def list_deliveries(
    request: Request,
    caller: Reader,
    state: Annotated[list[DeliveryState] | None, Query(description="Repeat it for several.")] = None,
    kind: Kind | None = None,
    key: Text | None = None,
    tenant: Tenant | None = None,
    before: Annotated[UUID | None, Query(description="`next` of the page before.")] = None,
    limit: Limit = 50,
) -> Any:
    """Newest first; `state=uncertain` for those that somebody has to decide about."""
    wanted = DeliveryFilter(states=state or (), kind=kind, key=key, tenant=tenant, limit=limit, before=before)
    found = await web_of(request).database.run(caller.reading, calls.deliveries(wanted))
    return {"deliveries": found, "next": found[-1].id if len(found) == limit else None}


@router.post(
    "/deliveries/{id}/decide",
    summary="Decide about a delivery",
    response_model=Decided,
    responses={200: {"headers": REPLAYED}},
)
async def decide_delivery(
    request: Request,
    caller: Operator,
    id: UUID,
    body: Deciding,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """One that is uncertain, or abandoned and not decided yet. The note and the name of the token are kept with it."""

    async def act(db: Acting) -> Done:
        return Done({"id": id, "state": await db.run(calls.decide_delivery(id, body.decision, body.note))})

    return await perform(request, caller.operating, act, answers=Decided, key=idempotency_key)
