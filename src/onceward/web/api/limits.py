"""Limits: shared capacity, and taking of it directly."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Body, Path
from pydantic import BaseModel, ConfigDict, Field, model_validator
from starlette.requests import Request
from starlette.responses import Response

from onceward import calls
from onceward import model_limits as model
from onceward.web.api.callers import Operator, Producer, Reader
from onceward.web.api.fields import (
    Changed,
    Duration,
    Flag,
    Name,
    NameInPath,
    Reason,
    Seconds,
    Sent,
    Whole,
    answer_of,
)
from onceward.web.api.once import REPLAYED, Done, IdempotencyKey, perform
from onceward.web.context import web_of
from onceward.web.database import Acting

router = APIRouter()
LimitRow = answer_of(model.LimitInfo, "Limit", "A limit and what is left of it, for one key.")
Key = Annotated[
    str,
    Field(
        strict=True,
        max_length=200,
        pattern=r"^[^\x00-\x1f\x7f-\x9f]*$",
        description="Of a limit per key; else empty.",
    ),
]
Count = Annotated[Whole, Field(ge=1, le=1_000_000_000)]
Weight = Annotated[Whole, Field(ge=0, le=10**12)]
Period = Annotated[Duration, Field(ge=0.1, le=2_678_400)]
HoldInPath = Annotated[UUID, Path(alias="hold_id", description="Of the answer of acquire.")]


class Limits(BaseModel):
    """By name and key."""

    limits: list[LimitRow]  # type: ignore[valid-type] # made by answer_of


class NewLimit(Sent):
    """A limit; its name is in the address.  At least one of requests, tokens and slots."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"requests": 60, "per": 60, "tokens": 90000}, {"slots": 4, "per_key": True}],
            "anyOf": [{"required": [name]} for name in ("requests", "tokens", "slots")],
        }
    )
    requests: Count | None = None
    per: Period = 60
    tokens: Annotated[Whole, Field(ge=1, le=10**12)] | None = None
    tokens_per: Period | None = Field(None, description="The same as `per`, unless given.")
    slots: Annotated[Whole, Field(ge=1, le=10_000)] | None = None
    burst: Count | None = None
    tokens_burst: Annotated[Whole, Field(ge=1, le=10**12)] | None = None
    allowance: Annotated[Duration, Field(le=3600)] | None = None
    per_key: Flag = False
    threshold: float = Field(0.8, strict=True, gt=0, le=1, allow_inf_nan=False)
    over: Literal["accept", "defer"] = "accept"

    @model_validator(mode="after")
    def _limits_something(self) -> NewLimit:
        if self.requests is None and self.tokens is None and self.slots is None:
            raise ValueError("a limit needs requests, tokens or slots")
        return self


class LimitPause(Sent):
    """For how long, and why."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"seconds": 30, "reason": "the provider asks to wait"}]}
    )
    seconds: Annotated[Duration, Field(gt=0, le=86_400)]
    key: Key = ""
    reason: Reason | None = None


class OfKey(Sent):
    """Which key, for a limit per key."""

    key: Key = ""


class Paused(BaseModel):
    """Until when."""

    until: datetime


class Acquiring(Sent):
    """How much of the limit, and for how long at most."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"tokens": 1200, "lease": 60}]})
    key: Key = ""
    requests: Annotated[Whole, Field(ge=0, le=1_000_000)] = 1
    tokens: Weight = 0
    lease: Annotated[Duration, Field(ge=1, le=86_400)] = Field(
        60, description="Seconds after which a slot is free again, whatever has become of its holder."
    )


class Acquired(BaseModel):
    """A hold; or none, how long to wait, and why."""

    model_config = ConfigDict(from_attributes=True)
    hold_id: UUID | None
    wait: Seconds | None
    reason: str | None


class Settling(Sent):
    """What was really used."""

    tokens: Weight


class Settled(BaseModel):
    """It was."""

    hold_id: UUID


@router.get("/limits", summary="List limits", response_model=Limits)
async def list_limits(request: Request, caller: Reader, name: Name | None = None) -> Any:
    """What is left of each, and when there is room again."""
    return {"limits": await web_of(request).database.run(caller.reading, calls.limits(name))}


@router.put("/limits/{name:path}", summary="Set a limit", response_model=Changed)
async def put_limit(request: Request, caller: Operator, name: NameInPath, body: NewLimit) -> Any:
    """Code that declares the same name leaves it alone from then on. For tokens without a tenant.

    A name may have slashes, but not end in /pause, /resume or /acquire, which are addresses of their own.
    """
    caller.check_shared("Limits")
    given = body.model_dump()
    for duration in ("per", "tokens_per", "allowance"):
        given[duration] = None if given[duration] is None else timedelta(seconds=given[duration])
    call = calls.set_limit(model.Limit(name, **given))
    return {"changed": await web_of(request).database.run(caller.operating, call, writes=True)}


@router.delete("/limits/{name:path}", status_code=204, summary="Drop a limit", response_model=None)
async def drop_limit(request: Request, caller: Operator, name: NameInPath) -> Response:
    """For tokens without a tenant."""
    caller.check_shared("Limits")
    await web_of(request).database.run(caller.operating, calls.drop_limit(name), writes=True)
    return Response(status_code=204)


@router.post("/limits/{name:path}/pause", summary="Pause a limit", response_model=Paused)
async def pause_limit(request: Request, caller: Operator, name: NameInPath, body: LimitPause) -> Any:
    """It gives nothing until then. For tokens without a tenant."""
    caller.check_shared("Limits")
    call = calls.pause_limit(name, timedelta(seconds=body.seconds), body.key, body.reason)
    return {"until": await web_of(request).database.run(caller.operating, call, writes=True)}


@router.post("/limits/{name:path}/resume", summary="Resume a limit", response_model=Changed)
async def resume_limit(
    request: Request, caller: Operator, name: NameInPath, body: Annotated[OfKey, Body(default_factory=OfKey)]
) -> Any:
    """For tokens without a tenant."""
    caller.check_shared("Limits")
    call = calls.resume_limit(name, body.key)
    return {"changed": await web_of(request).database.run(caller.operating, call, writes=True)}


@router.post(
    "/limits/{name:path}/acquire",
    summary="Take of a limit",
    response_model=Acquired,
    responses={200: {"headers": REPLAYED}},
)
async def acquire(
    request: Request,
    caller: Producer,
    name: NameInPath,
    body: Acquiring,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """For programs that are no job. Without room: no hold, and how long to wait."""

    async def act(db: Acting) -> Done:
        lease = timedelta(seconds=body.lease)
        call = calls.acquire(name, key=body.key, requests=body.requests, weight=body.tokens, lease=lease)
        return Done(await db.run(call))

    return await perform(request, caller.producing(), act, answers=Acquired, key=idempotency_key)


@router.post("/holds/{hold_id}/settle", summary="Say what was really used", response_model=Settled)
async def settle(request: Request, caller: Producer, hold_id: HoldInPath, body: Settling) -> Any:
    """What was taken too much is given back; what was used beyond is taken from what comes."""
    call = calls.settle_hold(hold_id, body.tokens)
    await web_of(request).database.run(caller.producing(), call, writes=True)
    return {"hold_id": hold_id}


@router.post("/holds/{hold_id}/release", summary="Give a slot back", response_model=Changed)
async def release(request: Request, caller: Producer, hold_id: HoldInPath) -> Any:
    """Sent twice, the second has nothing to do."""
    call = calls.release_hold(hold_id)
    return {"changed": await web_of(request).database.run(caller.producing(), call, writes=True)}
