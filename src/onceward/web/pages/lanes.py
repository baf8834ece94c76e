"""Lanes: what waits in each, and its pause switch."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from onceward import calls
from onceward.calls import browsing
from onceward.model import LaneInfo
from onceward.web import layout, tables
from onceward.web.context import identity_of, web_of
from onceward.web.forms import read_form
from onceward.web.layout import Flash
from onceward.web.pages.overview import lane_lines


async def lanes(request: Request) -> Response:
    async with web_of(request).database.acting(identity_of(request)) as db:
        shown = await layout.frame(db)
        found = await db.run(calls.lanes())
        activity = await db.run(browsing.activity())
        workers = [worker for worker in await db.run(calls.workers()) if worker.state == "live"]
    lines = lane_lines(found, activity, shown.now)
    return layout.render(
        request, "pages/lanes.html", shown,
        lines=lines, busiest=max((point.done for line in lines for point in line.points), default=0),
        serving={lane.name: [worker for worker in workers if lane.name in worker.lanes] for lane in found},
    )  # fmt: skip


async def as_csv(request: Request) -> Response:
    found = await web_of(request).database.run(identity_of(request), calls.lanes())
    return tables.csv_of("lanes", LaneInfo, found)


def _check_shared(request: Request) -> None:
    if not identity_of(request).acts_for_all:
        raise HTTPException(403, "lanes are shared by all tenants, and you are bound to one")


async def pause(request: Request) -> Response:
    _check_shared(request)
    form, name = await read_form(request), request.path_params["name"]
    call = calls.pause_lane(name, form.text("reason") or None)
    changed = await web_of(request).database.run(identity_of(request), call, writes=True)
    said = f"Lane {name} is paused" if changed else f"Lane {name} was paused already"
    return layout.back(request, "/lanes", Flash(said, undo=f"/lanes/{name}/resume" if changed else None))


async def resume(request: Request) -> Response:
    _check_shared(request)
    name = request.path_params["name"]
    changed = await web_of(request).database.run(identity_of(request), calls.resume_lane(name), writes=True)
    return layout.back(
        request, "/lanes", Flash(f"Lane {name} is open" if changed else f"Lane {name} was not paused")
    )


ROUTES = [
    Route("/lanes", lanes),
    Route("/lanes.csv", as_csv),
    Route("/lanes/{name}/pause", pause, methods=["POST"]),
    Route("/lanes/{name}/resume", resume, methods=["POST"]),
]
