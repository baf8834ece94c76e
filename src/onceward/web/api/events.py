"""Events: what jobs wait for."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from onceward import calls, jsonsafe
from onceward.web.api.callers import Producer
from onceward.web.api.fields import Duration, Sent, Tenant
from onceward.web.api.once import REPLAYED, Done, IdempotencyKey, perform
from onceward.web.database import Acting

router = APIRouter()


class NewEvent(Sent):
    """An event, which has a name once per tenant."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"name": "payment:17", "payload": {"paid": True}}]}
    )
    name: Annotated[
        str, Field(strict=True, min_length=1, max_length=194, pattern=r"^[^\x00-\x1f\x7f-\x9f]+$")
    ]
    payload: Any = None
    keep: Annotated[Duration, Field(ge=1)] | None = Field(
        None, description="How many seconds it is kept for jobs that wait later; 30 days unless given."
    )
    tenant: Tenant | None = None


class Emitted(BaseModel):
    """Whether this request emitted it."""

    created: bool = Field(description="False: there was one of that name already, and it stays.")


@router.post(
    "/events", summary="Emit an event", response_model=Emitted, responses={200: {"headers": REPLAYED}}
)
async def emit_event(
    request: Request, caller: Producer, body: NewEvent, idempotency_key: IdempotencyKey = None
) -> Response:
    """Wakes every job that waits for it, and those that wait for it later."""
    rights = caller.producing(body.tenant)
    payload = None if body.payload is None else jsonsafe.dumps(body.payload)
    keep = None if body.keep is None else timedelta(seconds=body.keep)

    async def act(db: Acting) -> Done:
        call = calls.emit_event(body.name, payload, tenant=rights.scope, keep=keep)
        return Done({"created": await db.run(call)})

    return await perform(request, rights, act, answers=Emitted, key=idempotency_key)
