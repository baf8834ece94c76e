"""One lane: what waits in it and why, who serves it, and the forms that change its rules."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from typing import Any, get_args

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from onceward import calls
from onceward.calls import Call, browsing
from onceward.errors import InvalidArgument
from onceward.model_audit import AuditFilter
from onceward.model_limits import BoundInfo, BoundOver, ShareInfo
from onceward.web import layout, reading, tables
from onceward.web.context import identity_of, web_of
from onceward.web.filling import Filling
from onceward.web.forms import read_form
from onceward.web.layout import Flash
from onceward.web.pages import lanes
from onceward.web.pages.lanes import address, check_shared
from onceward.web.pages.overview import lane_lines

OVER: tuple[str, ...] = get_args(BoundOver)
# What of the lane goes into the audit log.
MODES = {"ends": "how jobs end", "all": "every transition of every job"}
CHANGES = 20


async def show(request: Request, filling: Filling | None = None) -> Response:
    """With a form that came back, its problems stand at its fields."""
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
        request, "pages/lane.html", shown, 400 if filling else 200,
        lane=line.lane, line=line, why=why, shares=shares, bounds=bounds, changes=changes, address=address, over=OVER, modes=MODES,
        serving=[worker for worker in workers if name in worker.lanes], filling=filling or Filling(),
    )  # fmt: skip


async def bounds_csv(request: Request) -> Response:
    call = calls.bounds(request.path_params["name"])
    found = await web_of(request).database.run(identity_of(request), call)
    return tables.csv_of("bounds", BoundInfo, found)


async def shares_csv(request: Request) -> Response:
    call = calls.shares(request.path_params["name"])
    found = await web_of(request).database.run(identity_of(request), call)
    return tables.csv_of("shares", ShareInfo, found)


# ---------------------------------------------------------------- changing


_ENGINE = {**lanes.ENGINE, "share": "turns"}


async def _filled(request: Request, form: str, words: Mapping[str, str]) -> Filling:
    check_shared(request)
    return Filling(await read_form(request), form, words, _ENGINE)


async def set_caps(request: Request) -> Response:
    """How large payloads and results may be."""
    filling = await _filled(
        request, "caps", {name: lanes.WORDS[name] for name in ("max_payload", "max_result")}
    )
    call = calls.add_lane(
        request.path_params["name"],
        max_payload_bytes=filling.read("max_payload", lanes.content_size),
        max_result_bytes=filling.read("max_result", lanes.content_size),
    )
    return await _changed(request, filling, call)


async def set_running(request: Request) -> Response:
    """How many of its jobs run at once, over all workers."""
    filling = await _filled(request, "running", {"max_running": lanes.WORDS["max_running"]})
    most = filling.read("max_running", lanes.most_at_once)
    return await _changed(request, filling, calls.add_lane(request.path_params["name"], max_running=most))


async def set_turns(request: Request) -> Response:
    """Whether tenants take turns, and how long a job may be passed over."""
    filling = await _filled(request, "turns", {"max_wait": lanes.WORDS["max_wait"]})
    fair = (await read_form(request)).checked("fair")
    wait = filling.read("max_wait", lanes.longest_wait)
    return await _changed(
        request, filling, calls.add_lane(request.path_params["name"], fair=fair, max_wait=wait)
    )


async def set_share(request: Request) -> Response:
    filling = await _filled(request, "share", {"tenant": "the tenant", "turns": "the number of turns"})
    turns = filling.read("turns", partial(reading.whole, least=1, most=1000))
    tenant = filling.typed("tenant", form="share")
    return await _changed(request, filling, calls.set_share(request.path_params["name"], tenant, turns or 1))


_BOUND = {
    "max_depth": "the number of ready jobs",
    "tenant": "the tenant",
    "max_age": "the age of the oldest",
    "max_bytes": "the size of their payloads",
    "over": "what enqueue does above it",
    "defer_by": "the time to put off by",
}


async def set_bound(request: Request) -> Response:
    filling = await _filled(request, "bound", _BOUND)
    depth = filling.read("max_depth", partial(reading.whole_or_none, least=1, most=10_000_000))
    age = filling.read("max_age", partial(reading.duration_or_none, zero=False))
    size = filling.read("max_bytes", reading.size_or_none)
    put_off = filling.read(
        "defer_by", lambda name, text: reading.duration(name, text or "1m", zero=False)
    ) or timedelta(minutes=1)
    if filling.is_good and depth is None and age is None and size is None:
        filling.blame("max_depth", "a bound needs a number of jobs, an age or a size")
    over, tenant = filling.typed("over", form="bound"), filling.typed("tenant", form="bound")
    call = calls.set_bound(
        request.path_params["name"], max_depth=depth, max_age=age, max_bytes=size,
        over=over, tenant=tenant, defer_by=put_off,
    )  # fmt: skip
    return await _changed(request, filling, call)


async def drop_bound(request: Request) -> Response:
    filling = await _filled(request, "no-bound", {"tenant": "the tenant"})
    tenant = filling.typed("tenant", form="no-bound")
    return await _changed(request, filling, calls.drop_bound(request.path_params["name"], tenant))


async def set_audit(request: Request) -> Response:
    filling = await _filled(request, "audit", {"mode": "the mode"})
    mode = filling.typed("mode", form="audit")
    if mode not in MODES:
        raise InvalidArgument(f"mode must be one of {', '.join(MODES)}")
    return await _changed(request, filling, calls.audit_lane(request.path_params["name"], mode))


async def _changed(request: Request, filling: Filling, call: Call[Any]) -> Response:
    """Do it, to a lane that exists: a slip must not make one."""
    name = request.path_params["name"]
    if filling.is_good:
        try:
            async with web_of(request).database.acting(identity_of(request), writes=True) as db:
                await db.run(calls.explain_lane(name))
                await db.run(call)
        except InvalidArgument as error:
            filling.blame_for(error)
    if not filling.is_good:
        return await show(request, filling)
    return layout.back(request, address(name), Flash(f"Lane {name} is set"))


_ONE = "/lanes/{name}"
_FORMS = {
    "caps": set_caps,
    "running": set_running,
    "turns": set_turns,
    "share": set_share,
    "bound": set_bound,
    "no-bound": drop_bound,
    "audit": set_audit,
}
ROUTES = [
    Route(_ONE, show),
    Route(f"{_ONE}/bounds.csv", bounds_csv),
    Route(f"{_ONE}/shares.csv", shares_csv),
    *(Route(f"{_ONE}/{form}", change, methods=["POST"]) for form, change in _FORMS.items()),
    # Where a form came back, the page is read again: by its live parts, or by whoever reloads it.
    *(Route(f"{_ONE}/{form}", show) for form in _FORMS),
]
