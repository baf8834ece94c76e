"""Schedules: work that is enqueued again and again."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Body, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from onceward import calls, jsonsafe
from onceward.model_schedules import NextTick, ScheduleInfo
from onceward.web.api.callers import Operator, Reader
from onceward.web.api.fields import (
    Changed,
    Duration,
    LaneName,
    Name,
    NameInPath,
    Payload,
    Reason,
    Sent,
    Tenant,
    When,
    Whole,
    answer_of,
)
from onceward.web.api.once import REPLAYED, Done, IdempotencyKey, perform
from onceward.web.context import web_of
from onceward.web.database import Acting
from onceward.web.payloads import check_payload

router = APIRouter()
Schedule = answer_of(ScheduleInfo, "Schedule", "A schedule.")
Tick = answer_of(
    NextTick, "NextTick", "A moment at which a spec fires; the slot is the local time, which names it."
)
Zone = Annotated[str, Field(strict=True, pattern=r"^[A-Za-z0-9_+/-]{1,64}$", examples=["Europe/Berlin"])]
Spec = Annotated[
    str,
    Field(
        strict=True,
        min_length=1,
        max_length=200,
        pattern=r"^[^\x00]+$",
        description='A cron expression, a time with days, or an interval: "0 7 * * mon-fri", "07:00 mon-fri", "30 seconds".',
        examples=["0 7 * * mon-fri"],
    ),
]


class Schedules(BaseModel):
    """By name."""

    schedules: list[Schedule]  # type: ignore[valid-type] # made by answer_of


class NewSchedule(Sent):
    """A schedule; its name is in the address."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"task": "send_report", "spec": "0 7 * * mon-fri", "zone": "Europe/Berlin", "payload": {}}
            ]
        }
    )
    task: Name
    spec: Spec
    zone: Zone | None = None
    payload: Payload = Field(default_factory=dict)
    lane: LaneName = "default"
    priority: Annotated[Whole, Field(ge=-1000, le=1000)] = 0
    max_attempts: Annotated[Whole, Field(ge=1, le=1000)] = 8
    timeout: Annotated[Duration, Field(gt=0, le=2_592_000)] | None = None
    expires_in: Annotated[Duration, Field(ge=1)] | None = None
    missed: Literal["none", "latest", "all"] = Field(
        "latest", description="Slots that are over when somebody looks: dropped, the last one, or all."
    )
    catch_up: Annotated[Whole, Field(ge=1, le=10_000)] = 1000
    grace: Annotated[Duration, Field(ge=1, le=86_400)] = 60
    overlap: Literal["skip", "queue", "allow"] = Field(
        "skip",
        description="While a job of it has not ended: no other, one after the other, or beside each other.",
    )
    jitter: Annotated[Duration, Field(le=86_400)] = 0
    tenant: Tenant | None = None


class Scheduled(BaseModel):
    """What became of it: created, changed or unchanged."""

    model_config = ConfigDict(from_attributes=True)
    outcome: str
    next_slot: str | None
    next_at: datetime | None


class Ticks(BaseModel):
    """In order."""

    ticks: list[Tick]  # type: ignore[valid-type] # made by answer_of


class Fired(BaseModel):
    """The job that was enqueued."""

    job_id: UUID


class _Named(Sent):
    tenant: Tenant | None = None


class SchedulePause(_Named):
    """Why, if there is something to say; whose, for a token without a tenant."""

    reason: Reason | None = None


class OfTenant(_Named):
    """Whose, for a token without a tenant; `default` unless given."""


@router.get("/schedules", summary="List schedules", response_model=Schedules)
async def list_schedules(
    request: Request,
    caller: Reader,
    name: Annotated[list[Name] | None, Query(description="Repeat it for several.")] = None,
    tenant: Tenant | None = None,
) -> Any:
    """With their next ticks and their last runs."""
    call = calls.schedules(name, tenant=tenant)
    return {"schedules": await web_of(request).database.run(caller.reading, call)}


@router.get("/next-ticks", summary="When would it fire?", response_model=Ticks)
async def next_ticks(
    request: Request,
    caller: Reader,
    spec: Annotated[Spec, Query()],
    zone: Zone | None = None,
    after: When | None = None,
    count: Annotated[int, Query(ge=1, le=100)] = 10,
) -> Any:
    """The next moments of a spec, before anything is scheduled."""
    call = calls.next_ticks(spec, zone, after=after, count=count)
    return {"ticks": await web_of(request).database.run(caller.reading, call)}


@router.put("/schedules/{name:path}", summary="Add or change a schedule", response_model=Scheduled)
async def put_schedule(request: Request, caller: Operator, name: NameInPath, body: NewSchedule) -> Any:
    """It is a person's from then on: code that declares the same name leaves it alone.

    A name may have slashes, but not end in /pause, /resume or /run, which are addresses of their own.
    """
    check_payload(web_of(request).settings.apps, body.task, body.payload)
    given = body.model_dump(exclude={"payload", "tenant"})
    for duration in ("timeout", "expires_in", "grace", "jitter"):
        given[duration] = None if given[duration] is None else timedelta(seconds=given[duration])
    call = calls.add_schedule(
        name, payload=jsonsafe.dumps(body.payload), tenant=caller.tenant_for(body.tenant), **given
    )
    return await web_of(request).database.run(caller.operating, call, writes=True)


@router.delete("/schedules/{name:path}", status_code=204, summary="Drop a schedule", response_model=None)
async def drop_schedule(
    request: Request, caller: Operator, name: NameInPath, tenant: Tenant | None = None
) -> Response:
    """Jobs that it has enqueued stay."""
    call = calls.drop_schedule(name, tenant=caller.tenant_for(tenant))
    await web_of(request).database.run(caller.operating, call, writes=True)
    return Response(status_code=204)


@router.post("/schedules/{name:path}/pause", summary="Pause a schedule", response_model=Changed)
async def pause_schedule(
    request: Request,
    caller: Operator,
    name: NameInPath,
    body: Annotated[SchedulePause, Body(default_factory=SchedulePause)],
) -> Any:
    """It does not fire until it is resumed."""
    call = calls.pause_schedule(name, body.reason, tenant=caller.tenant_for(body.tenant))
    return {"changed": await web_of(request).database.run(caller.operating, call, writes=True)}


@router.post("/schedules/{name:path}/resume", summary="Resume a schedule", response_model=Changed)
async def resume_schedule(
    request: Request,
    caller: Operator,
    name: NameInPath,
    body: Annotated[OfTenant, Body(default_factory=OfTenant)],
) -> Any:
    """Slots that it has missed are treated as its policy says."""
    call = calls.resume_schedule(name, tenant=caller.tenant_for(body.tenant))
    return {"changed": await web_of(request).database.run(caller.operating, call, writes=True)}


@router.post(
    "/schedules/{name:path}/run",
    summary="Run a schedule now",
    response_model=Fired,
    responses={200: {"headers": REPLAYED}},
)
async def run_schedule(
    request: Request,
    caller: Operator,
    name: NameInPath,
    body: Annotated[OfTenant, Body(default_factory=OfTenant)],
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Beside its ticks, which stay as they are."""
    tenant = caller.tenant_for(body.tenant)

    async def act(db: Acting) -> Done:
        return Done({"job_id": await db.run(calls.run_schedule_now(name, tenant=tenant))})

    return await perform(request, caller.operating, act, answers=Fired, key=idempotency_key, tenant=tenant)
