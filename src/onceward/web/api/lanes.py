"""Lanes: what waits in each, and their pause switches."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body
from pydantic import BaseModel
from starlette.requests import Request

from onceward import calls
from onceward.model import LaneInfo
from onceward.web.api.callers import Operator, Reader
from onceward.web.api.fields import Changed, LaneInPath, Reason, Sent, answer_of
from onceward.web.context import web_of

router = APIRouter()
Lane = answer_of(LaneInfo, "Lane", "A lane; the counts are those of jobs that the token may see.")


class Lanes(BaseModel):
    """By name."""

    lanes: list[Lane]  # type: ignore[valid-type] # made by answer_of


class Pausing(Sent):
    """Why, if there is something to say."""

    reason: Reason | None = None


@router.get("/lanes", summary="List lanes", response_model=Lanes)
async def list_lanes(request: Request, caller: Reader) -> Any:
    """With what waits, runs and has died in each."""
    return {"lanes": await web_of(request).database.run(caller.reading, calls.lanes())}


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
