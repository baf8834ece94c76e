"""Monitors: what is checked again and again, by which bounds, and how the last runs went."""

from __future__ import annotations

from collections import Counter
from typing import Any
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from onceward import calls
from onceward.errors import InvalidArgument, UnknownMonitor, shown
from onceward.model_monitors import SEVERITIES, MonitorInfo, MonitorRunInfo
from onceward.web import layout, reading, tables
from onceward.web.context import identity_of, web_of
from onceward.web.database import Acting
from onceward.web.forms import Form, read_form
from onceward.web.layout import Flash
from onceward.web.query import query_of
from onceward.web.sorting import Columns, sorting

STATES = ("firing", "error", "ok", "unknown", "disabled")
PLACES = (("/monitors", "Monitors"), ("/channels", "Channels"))
RUNS = 25
# Runs in the strip above the table.
DRAWN = 60
SPANS = ("every", "hold_for", "clear_after", "timeout")


def state_of(monitor: MonitorInfo) -> str:
    return (monitor.last_status or "unknown") if monitor.enabled else "disabled"


COLUMNS: Columns[MonitorInfo] = {
    "name": lambda monitor: monitor.name,
    "state": lambda monitor: STATES.index(state_of(monitor)),
    "every": lambda monitor: monitor.every,
    "ran": lambda monitor: monitor.last_run_at,
}


def address(name: str, action: str = "of") -> str:
    """The action comes first: a name may contain a slash."""
    return f"/monitors/{action}/{quote(name)}"


async def monitors(request: Request) -> Response:
    query = query_of(request)
    wanted, part = query.many("state", STATES), query.text("name")
    async with web_of(request).database.acting(identity_of(request)) as db:
        shown_ = await layout.frame(db)
        found = await db.run(calls.monitors())
        alerts = Counter(alert.monitor for alert in await db.run(calls.alerts(limit=1000)))
        channels = await db.run(calls.channels())
    found = [
        monitor
        for monitor in found
        if (not wanted or state_of(monitor) in wanted) and (not part or part.lower() in monitor.name.lower())
    ]
    order = sorting(query, COLUMNS, "name")
    return layout.render(
        request, "pages/monitors.html", shown_,
        sorting=order, query=query, monitors=order.sorted(found), states=STATES, chosen=wanted, part=part or "", alerts=alerts, address=address,
        state_of=state_of, places=PLACES, nobody_is_told=not channels,
    )  # fmt: skip


async def as_csv(request: Request) -> Response:
    found = await web_of(request).database.run(identity_of(request), calls.monitors())
    return tables.csv_of("monitors", MonitorInfo, found, without=("thresholds",))


async def _found(db: Acting, request: Request) -> MonitorInfo:
    name = request.path_params["name"]
    found = await db.run(calls.monitors([name]))
    if not found:
        raise UnknownMonitor(
            f'monitor "{shown(name)}" does not exist', hint="Look for it in the list of monitors."
        )
    return found[0]


async def show(request: Request) -> Response:
    query = query_of(request)
    async with web_of(request).database.acting(identity_of(request)) as db:
        shown_ = await layout.frame(db)
        monitor = await _found(db, request)
        bounds = await db.run(calls.thresholds(monitor.name))
        alerts = await db.run(calls.alerts(monitor=monitor.name, limit=20))
        runs = await db.run(calls.monitor_runs(monitor.name, limit=RUNS + 1, before=query.uuid("before")))
        drawn = await db.run(calls.monitor_runs(monitor.name, limit=DRAWN))
        channels = await db.run(calls.channels())
    return layout.render(
        request, "pages/monitor.html", shown_,
        query=query, monitor=monitor, state=state_of(monitor), bounds=bounds, alerts=alerts, runs=runs[:RUNS],
        following=runs[RUNS - 1].id if len(runs) > RUNS else None, channels=channels, severities=SEVERITIES, address=address,
        found=[float(run.findings) for run in reversed(drawn) if run.ended_at],
        took=[run.took.total_seconds() * 1000 for run in reversed(drawn) if run.took], said=said_by,
    )  # fmt: skip


def said_by(run: MonitorRunInfo) -> str:
    """What a run found, in one line."""
    if run.error:
        return run.error
    found = run.result if isinstance(run.result, list) else []
    return "; ".join(
        str(item.get("summary")) for item in found if isinstance(item, dict) and item.get("severity")
    )


async def runs_csv(request: Request) -> Response:
    async with web_of(request).database.acting(identity_of(request)) as db:
        monitor = await _found(db, request)
        found = await db.run(calls.monitor_runs(monitor.name, limit=tables.MOST_ROWS))
    return tables.csv_of("monitor-runs", MonitorRunInfo, found, without=("result",))


# ---------------------------------------------------------------- acting


def _check_shared(request: Request) -> None:
    if not identity_of(request).acts_for_all:
        raise HTTPException(403, "monitors watch all tenants, and you are bound to one")


async def save(request: Request) -> Response:
    """Thresholds and rules; what is as it was is not set."""
    _check_shared(request)
    form = await read_form(request)
    async with web_of(request).database.acting(identity_of(request), writes=True) as db:
        monitor = await _found(db, request)
        bounds = await db.run(calls.thresholds(monitor.name))
        thresholds = {
            bound.name: reading.threshold(bound.name, form.text(f"t-{bound.name}"), bound.unit)
            for bound in bounds
            if form.text(f"t-{bound.name}")
        }
        await db.run(
            calls.set_monitor(
                monitor.name,
                thresholds={
                    bound.name: thresholds[bound.name]
                    for bound in bounds
                    if bound.name in thresholds and thresholds[bound.name] != bound.value
                },
                **_rules(form, monitor),
            )
        )
    return layout.back(request, address(monitor.name), Flash(f"Monitor {monitor.name} is set"))


def _rules(form: Form, monitor: MonitorInfo) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for name in SPANS:
        if text := form.text(name):
            span = reading.duration(name, text, zero=name in {"hold_for", "clear_after"})
            given |= {name: span} if span != getattr(monitor, name) else {}
    if text := form.text("remind_every"):
        span = reading.duration("remind_every", text, zero=False)
        given |= {"remind_every": span} if span != monitor.remind_every else {}
    if text := form.text("errors_allowed"):
        given |= {"errors_allowed": reading.whole("errors_allowed", text, most=1000)}
    if severity := form.text("severity"):
        if severity not in SEVERITIES:
            raise InvalidArgument(f"severity must be one of {', '.join(SEVERITIES)}")
        given |= {"severity": severity} if severity != monitor.severity else {}
    return given


async def enable(request: Request) -> Response:
    _check_shared(request)
    name = request.path_params["name"]
    await web_of(request).database.run(identity_of(request), calls.enable_monitor(name), writes=True)
    return layout.back(request, address(name), Flash(f"Monitor {name} is on"))


async def disable(request: Request) -> Response:
    _check_shared(request)
    name = request.path_params["name"]
    await web_of(request).database.run(identity_of(request), calls.disable_monitor(name), writes=True)
    flash = Flash(f"Monitor {name} is off, and its alerts are closed", undo=address(name, "enable"))
    return layout.back(request, address(name), flash)


async def run_now(request: Request) -> Response:
    _check_shared(request)
    name = request.path_params["name"]
    outcome = await web_of(request).database.run(identity_of(request), calls.run_monitor(name), writes=True)
    said = {
        "ok": "All well",
        "firing": f"Found {outcome.findings}",
        "error": f"The check itself failed: {outcome.error}",
        "asked": "A worker that knows it runs it soon",
        "running": "It is running already",
    }.get(outcome.status, outcome.status)
    tone = "trouble" if outcome.status == "error" else "done"
    return layout.back(request, address(name), Flash(said, tone=tone))


async def drop(request: Request) -> Response:
    _check_shared(request)
    name = request.path_params["name"]
    await web_of(request).database.run(identity_of(request), calls.drop_monitor(name), writes=True)
    return layout.back(request, "/monitors", Flash(f"Monitor {name} is gone"))


ROUTES = [
    Route("/monitors", monitors),
    Route("/monitors.csv", as_csv),
    Route("/monitors/of/{name:path}", show),
    Route("/monitors/runs/{name:path}", runs_csv),
    Route("/monitors/set/{name:path}", save, methods=["POST"]),
    Route("/monitors/enable/{name:path}", enable, methods=["POST"]),
    Route("/monitors/disable/{name:path}", disable, methods=["POST"]),
    Route("/monitors/run/{name:path}", run_now, methods=["POST"]),
    Route("/monitors/drop/{name:path}", drop, methods=["POST"]),
]
