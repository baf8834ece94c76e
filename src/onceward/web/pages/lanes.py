"""Lanes: what waits in each and why, the pause switch, and making a new one."""

from __future__ import annotations

from datetime import timedelta
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from onceward import calls
from onceward.calls import browsing
from onceward.errors import InvalidArgument
from onceward.model import LaneInfo
from onceward.web import layout, reading, tables
from onceward.web.context import identity_of, web_of
from onceward.web.filling import Filling
from onceward.web.forms import read_form
from onceward.web.layout import Flash
from onceward.web.pages.overview import LaneLine, lane_lines
from onceward.web.query import query_of
from onceward.web.sorting import Columns, sorting

COLUMNS: Columns[LaneLine] = {
    "name": lambda line: line.lane.name,
    "ready": lambda line: line.lane.ready,
    "running": lambda line: line.lane.running,
    "scheduled": lambda line: line.lane.scheduled,
    "blocked": lambda line: line.lane.blocked,
    "dead": lambda line: line.lane.dead_letter,
    # The oldest is what has waited longest.
    "oldest": lambda line: line.lane.oldest_ready_at,
}


async def lanes(request: Request) -> Response:
    async with web_of(request).database.acting(identity_of(request)) as db:
        shown = await layout.frame(db)
        found = await db.run(calls.lanes())
        activity = await db.run(browsing.activity())
        workers = [worker for worker in await db.run(calls.workers()) if worker.state == "live"]
        why = {each.lane: each for each in await db.run(calls.explain_lane(None))}
        bounds = await db.run(calls.bounds())
    order = sorting(query_of(request), COLUMNS, "name")
    lines = order.sorted(lane_lines(found, activity, shown.now))
    return layout.render(
        request, "pages/lanes.html", shown,
        sorting=order, lines=lines, busiest=max((point.done for line in lines for point in line.points), default=0),
        serving={lane.name: [worker for worker in workers if lane.name in worker.lanes] for lane in found},
        why=why, address=address, above={bound.lane: bound.reason for bound in bounds if bound.reason},
    )  # fmt: skip


def address(name: str, action: str = "") -> str:
    return f"/lanes/{quote(name)}{action}"


async def as_csv(request: Request) -> Response:
    found = await web_of(request).database.run(identity_of(request), calls.lanes())
    return tables.csv_of("lanes", LaneInfo, found)


def check_shared(request: Request) -> None:
    if not identity_of(request).acts_for_all:
        raise HTTPException(403, "lanes are shared by all tenants, and you are bound to one")


async def pause(request: Request) -> Response:
    check_shared(request)
    form, name = await read_form(request), request.path_params["name"]
    call = calls.pause_lane(name, form.text("reason") or None)
    changed = await web_of(request).database.run(identity_of(request), call, writes=True)
    said = f"Lane {name} is paused" if changed else f"Lane {name} was paused already"
    return layout.back(request, "/lanes", Flash(said, undo=f"/lanes/{name}/resume" if changed else None))


async def resume(request: Request) -> Response:
    check_shared(request)
    name = request.path_params["name"]
    changed = await web_of(request).database.run(identity_of(request), calls.resume_lane(name), writes=True)
    return layout.back(
        request, "/lanes", Flash(f"Lane {name} is open" if changed else f"Lane {name} was not paused")
    )


async def new(request: Request) -> Response:
    return await layout.page(request, "pages/lane_new.html", filling=Filling())


# How messages call the fields of a lane, and which field an argument of the engine is.
WORDS = {
    "name": "the name",
    "max_payload": "the size of payloads",
    "max_result": "the size of results",
    "max_wait": "the longest wait",
    "max_running": "the number of jobs at once",
}
ENGINE = {"lane": "name", "max_payload_bytes": "max_payload", "max_result_bytes": "max_result"}


def content_size(name: str, text: str) -> int | None:
    """Of a payload or a result, within what the engine takes."""
    return reading.size_or_none(name, text, least=1024, most=256 * 1024 * 1024)


def most_at_once(name: str, text: str) -> int:
    """0, or nothing, is what the engine takes for: any number."""
    return reading.whole_or_none(name, text, least=0, most=100_000) or 0


def longest_wait(name: str, text: str) -> timedelta:
    """Nothing is what the engine takes for: leave it; 0 is: for ever."""
    return reading.duration_or_none(name, text) or timedelta(0)


async def add(request: Request) -> Response:
    """A lane that is there already is not changed by a form that meant a new one."""
    check_shared(request)
    form = await read_form(request)
    filling = Filling(form, "", WORDS, ENGINE)
    name = form.text("name")
    call = calls.add_lane(
        name,
        max_payload_bytes=filling.read("max_payload", content_size),
        max_result_bytes=filling.read("max_result", content_size),
        fair=form.checked("fair"),
        max_wait=filling.read("max_wait", longest_wait),
        max_running=filling.read("max_running", most_at_once),
    )
    if filling.is_good:
        try:
            async with web_of(request).database.acting(identity_of(request), writes=True) as db:
                if name in await db.run(browsing.lane_names()):
                    filling.blame("name", f"lane {name} is there already")
                else:
                    await db.run(call)
        except InvalidArgument as error:
            filling.blame_for(error)
    if not filling.is_good:
        return await layout.page(request, "pages/lane_new.html", 400, filling=filling)
    return layout.back(request, address(name), Flash(f"Lane {name} is made"))


ROUTES = [
    Route("/lanes", lanes),
    Route("/lanes.csv", as_csv),
    Route("/new-lane", new),
    Route("/new-lane", add, methods=["POST"]),
    Route("/lanes/{name}/pause", pause, methods=["POST"]),
    Route("/lanes/{name}/resume", resume, methods=["POST"]),
]
