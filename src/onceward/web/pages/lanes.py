"""Lanes: what waits in each and why, whose turn it is, how much runs at once and may wait, and the pause switch."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, get_args
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from onceward import calls
from onceward.calls import Call, browsing
from onceward.errors import InvalidArgument
from onceward.model import LaneInfo
from onceward.model_audit import AuditFilter
from onceward.model_limits import BoundInfo, BoundOver, ShareInfo
from onceward.web import layout, reading, tables
from onceward.web.context import identity_of, web_of
from onceward.web.forms import Form, read_form
from onceward.web.layout import Flash
from onceward.web.pages.overview import LaneLine, lane_lines
from onceward.web.query import query_of
from onceward.web.sorting import Columns, sorting

OVER: tuple[str, ...] = get_args(BoundOver)
# What of the lane goes into the audit log.
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
MODES = {"ends": "how jobs end", "all": "every transition of every job"}
CHANGES = 20


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


async def show(request: Request) -> Response:
    name, who = request.path_params["name"], identity_of(request)
    async with web_of(request).database.acting(who) as db:
        shown = await layout.frame(db)
        found = [lane for lane in await db.run(calls.lanes()) if lane.name == name]
        # Raises UnknownLane.
        (why,) = await db.run(calls.explain_lane(name))
        activity = await db.run(browsing.activity())
        shares = await db.run(calls.shares(name))
        bounds = await db.run(calls.bounds(name))
        workers = [worker for worker in await db.run(calls.workers()) if worker.state == "live"]
        changes = []
        if who.tenant is None:
            wanted = AuditFilter(entity_type="lane", entity_id=name, limit=CHANGES)
            changes = await db.run(browsing.find_entries(wanted))
    (line,) = lane_lines(found, activity, shown.now)
    return layout.render(
        request, "pages/lane.html", shown,
        lane=line.lane, line=line, why=why, shares=shares, bounds=bounds, changes=changes, address=address, over=OVER, modes=MODES,
        serving=[worker for worker in workers if name in worker.lanes],
    )  # fmt: skip


async def as_csv(request: Request) -> Response:
    found = await web_of(request).database.run(identity_of(request), calls.lanes())
    return tables.csv_of("lanes", LaneInfo, found)


async def bounds_csv(request: Request) -> Response:
    call = calls.bounds(request.path_params["name"])
    found = await web_of(request).database.run(identity_of(request), call)
    return tables.csv_of("bounds", BoundInfo, found)


async def shares_csv(request: Request) -> Response:
    call = calls.shares(request.path_params["name"])
    found = await web_of(request).database.run(identity_of(request), call)
    return tables.csv_of("shares", ShareInfo, found)


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


@dataclass(frozen=True, slots=True)
class Draft:
    """The form of a new lane as it was filled in."""

    name: str = ""
    max_payload: str = "256KiB"
    max_result: str = "256KiB"
    max_wait: str = "5m"
    max_running: str = ""
    fair: str = "1"

    @staticmethod
    def of(form: Form) -> Draft:
        return Draft(**{name: form.text(name) for name in Draft.__slots__})


async def new(request: Request) -> Response:
    return await layout.page(request, "pages/lane_new.html", draft=Draft(), problem=None)


async def add(request: Request) -> Response:
    """A lane that is there already is not changed by a form that meant a new one."""
    _check_shared(request)
    draft = Draft.of(await read_form(request))
    problem = None
    try:
        wait = reading.duration_or_none("the longest wait", draft.max_wait)
        call = calls.add_lane(
            draft.name,
            max_payload_bytes=reading.size_or_none("the size of payloads", draft.max_payload),
            max_result_bytes=reading.size_or_none("the size of results", draft.max_result),
            fair=bool(draft.fair),
            max_wait=wait or timedelta(0),
            max_running=_most_at_once(draft.max_running),
        )
        async with web_of(request).database.acting(identity_of(request), writes=True) as db:
            if draft.name in await db.run(browsing.lane_names()):
                problem = f"lane {draft.name} is there already"
            else:
                await db.run(call)
    except InvalidArgument as error:
        problem = error.message
    if problem is not None:
        return await layout.page(request, "pages/lane_new.html", 400, draft=draft, problem=problem)
    return layout.back(request, address(draft.name), Flash(f"Lane {draft.name} is made"))


async def set_caps(request: Request) -> Response:
    """How large payloads and results may be."""
    _check_shared(request)
    form, name = await read_form(request), request.path_params["name"]
    call = calls.add_lane(
        name,
        max_payload_bytes=reading.size_or_none("the size of payloads", form.text("max_payload")),
        max_result_bytes=reading.size_or_none("the size of results", form.text("max_result")),
    )
    return await _changed(request, call)


def _most_at_once(text: str) -> int:
    """0, or nothing, is what the engine takes for: any number."""
    return reading.whole_or_none("jobs at once", text, least=0, most=100_000) or 0


async def set_running(request: Request) -> Response:
    """How many of its jobs run at once, over all workers."""
    _check_shared(request)
    form, name = await read_form(request), request.path_params["name"]
    return await _changed(request, calls.add_lane(name, max_running=_most_at_once(form.text("max_running"))))


async def set_turns(request: Request) -> Response:
    """Whether tenants take turns, and how long a job may be passed over."""
    _check_shared(request)
    form, name = await read_form(request), request.path_params["name"]
    wait = reading.duration_or_none("max_wait", form.text("max_wait"))
    # Nothing is what the engine takes for: leave it; 0 is: for ever.
    call = calls.add_lane(name, fair=form.checked("fair"), max_wait=wait or timedelta(0))
    return await _changed(request, call)


async def set_share(request: Request) -> Response:
    _check_shared(request)
    form, name = await read_form(request), request.path_params["name"]
    turns = reading.whole("turns", form.text("turns"), least=1, most=1000)
    return await _changed(request, calls.set_share(name, form.text("tenant"), turns))


async def set_bound(request: Request) -> Response:
    _check_shared(request)
    form, name = await read_form(request), request.path_params["name"]
    over = form.text("over")
    if over not in OVER:
        raise InvalidArgument(f"over must be one of {', '.join(OVER)}")
    call = calls.set_bound(
        name,
        max_depth=reading.whole_or_none("max_depth", form.text("max_depth"), least=1, most=2**53),
        max_age=reading.duration_or_none("max_age", form.text("max_age"), zero=False),
        max_bytes=reading.size_or_none("max_bytes", form.text("max_bytes")),
        over=over,
        tenant=form.text("tenant"),
        defer_by=reading.duration("defer_by", form.text("defer_by") or "1m", zero=False),
    )
    return await _changed(request, call)


async def drop_bound(request: Request) -> Response:
    _check_shared(request)
    form, name = await read_form(request), request.path_params["name"]
    return await _changed(request, calls.drop_bound(name, form.text("tenant")))


async def set_audit(request: Request) -> Response:
    _check_shared(request)
    form, name = await read_form(request), request.path_params["name"]
    mode = form.text("mode")
    if mode not in MODES:
        raise InvalidArgument(f"mode must be one of {', '.join(MODES)}")
    return await _changed(request, calls.audit_lane(name, mode))


async def _changed(request: Request, call: Call[Any]) -> Response:
    """Do it, to a lane that exists: a slip must not make one."""
    name = request.path_params["name"]
    async with web_of(request).database.acting(identity_of(request), writes=True) as db:
        await db.run(calls.explain_lane(name))
        await db.run(call)
    return layout.back(request, address(name), Flash(f"Lane {name} is set"))


ROUTES = [
    Route("/lanes", lanes),
    Route("/lanes.csv", as_csv),
    Route("/new-lane", new),
    Route("/new-lane", add, methods=["POST"]),
    Route("/lanes/{name}", show),
    Route("/lanes/{name}/bounds.csv", bounds_csv),
    Route("/lanes/{name}/shares.csv", shares_csv),
    Route("/lanes/{name}/pause", pause, methods=["POST"]),
    Route("/lanes/{name}/resume", resume, methods=["POST"]),
    Route("/lanes/{name}/caps", set_caps, methods=["POST"]),
    Route("/lanes/{name}/running", set_running, methods=["POST"]),
    Route("/lanes/{name}/turns", set_turns, methods=["POST"]),
    Route("/lanes/{name}/share", set_share, methods=["POST"]),
    Route("/lanes/{name}/bound", set_bound, methods=["POST"]),
    Route("/lanes/{name}/no-bound", drop_bound, methods=["POST"]),
    Route("/lanes/{name}/audit", set_audit, methods=["POST"]),
]
