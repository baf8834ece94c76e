"""Lanes: what waits in each, their settings and their pause switches."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Body
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request

from onceward import calls
from onceward.model import LaneInfo
from onceward.web.api.callers import Operator, Reader
from onceward.web.api.fields import (
    Changed,
    Duration,
    Flag,
    LaneInPath,
    NewLaneInPath,
    Reason,
    Sent,
    Whole,
    answer_of,
)
from onceward.web.context import web_of

router = APIRouter()
Lane = answer_of(LaneInfo, "Lane", "A lane; the counts are those of jobs that the token may see.")


class Lanes(BaseModel):
    """By name."""

    lanes: list[Lane]  # type: ignore[valid-type] # made by answer_of


Size = Annotated[Whole, Field(ge=1024, le=268_435_456)]


class LaneSettings(Sent):
    """Of a lane; its name is in the address.  What is left out stays, or is that of new lanes."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"max_running": 5}]})

    max_running: Annotated[Whole, Field(ge=0, le=100_000)] | None = Field(
        None, description="How many of its jobs run at once, over all workers; 0: any number."
    )
    max_payload_bytes: Size | None = None
    max_result_bytes: Size | None = None
    fair: Flag | None = Field(None, description="Whether tenants take turns.")
    max_wait: Annotated[Duration, Field(le=31_536_000)] | None = Field(
        None, description="Seconds that a job may be passed over for higher priorities; 0: for ever."
    )


class Pausing(Sent):
    """Why, if there is something to say."""

    reason: Reason | None = None


@router.get("/lanes", summary="List lanes", response_model=Lanes)
async def list_lanes(request: Request, caller: Reader) -> Any:
    """With what waits, runs and has died in each."""
    return {"lanes": await web_of(request).database.run(caller.reading, calls.lanes())}


@router.put("/lanes/{lane}", summary="Create or change a lane", response_model=Changed)
async def put_lane(request: Request, caller: Operator, lane: NewLaneInPath, body: LaneSettings) -> Any:
    """A cap below what runs stops nothing: no job starts until fewer run. For tokens without a tenant."""
    caller.check_shared("Lanes")
    call = calls.add_lane(
        lane,
        max_payload_bytes=body.max_payload_bytes,
        max_result_bytes=body.max_result_bytes,
        fair=body.fair,
        max_wait=None if body.max_wait is None else timedelta(seconds=body.max_wait),
        max_running=body.max_running,
    )
    return {"changed": await web_of(request).database.run(caller.operating, call, writes=True)}


@router.post("/lanes/{lane}/pause", summary="Pause a lane", response_model=Changed)
async def pause_lane(
    request: Request,
    caller: Operator,
    lane: LaneInPath,
    body: Annotated[Pausing, Body(default_factory=Pausing)],
) -> Any:
    """Nothing of it is started until it is resumed; what runs goes on. For tokens without a tenant."""
    caller.check_shared("Lanes")
    call = calls.pause_lane(lane, body.reason)
    return {"changed": await web_of(request).database.run(caller.operating, call, writes=True)}


@router.post("/lanes/{lane}/resume", summary="Resume a lane", response_model=Changed)
async def resume_lane(request: Request, caller: Operator, lane: LaneInPath) -> Any:
    """For tokens without a tenant."""
    caller.check_shared("Lanes")
    return {
        "changed": await web_of(request).database.run(caller.operating, calls.resume_lane(lane), writes=True)
    }
