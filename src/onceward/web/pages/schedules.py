"""Schedules: when next, what became of the last ones, and changing them with a preview."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from onceward import calls, jsonsafe
from onceward.calls import browsing
from onceward.errors import InvalidArgument, OncewardError, UnknownSchedule
from onceward.model_schedules import NextTick, ScheduleInfo, TickInfo
from onceward.web import jsonview, layout, tables
from onceward.web.context import identity_of, web_of
from onceward.web.database import Acting
from onceward.web.filling import Filling, changed_since, mark_of
from onceward.web.forms import Form, read_form
from onceward.web.layout import Flash
from onceward.web.pages.job import read_payload
from onceward.web.payloads import check_payload
from onceward.web.query import query_of
from onceward.web.sorting import Columns, sorting

MISSED, OVERLAP = ("latest", "none", "all"), ("skip", "queue", "allow")
TICKS = 10


COLUMNS: Columns[ScheduleInfo] = {
    "name": lambda schedule: (schedule.name, schedule.tenant),
    "task": lambda schedule: schedule.task,
    "next": lambda schedule: schedule.next_at,
}


async def schedules(request: Request) -> Response:
    async with web_of(request).database.acting(identity_of(request)) as db:
        shown = await layout.frame(db)
        found = await db.run(calls.schedules())
    order = sorting(query_of(request), COLUMNS, "name")
    return layout.render(
        request, "pages/schedules.html", shown,
        sorting=order, schedules=order.sorted(found), address=address, tenants=any(schedule.tenant != "default" for schedule in found),
    )  # fmt: skip


async def as_csv(request: Request) -> Response:
    found = await web_of(request).database.run(identity_of(request), calls.schedules())
    return tables.csv_of("schedules", ScheduleInfo, found, without=("payload", "retry"))


async def ticks_csv(request: Request) -> Response:
    async with web_of(request).database.acting(identity_of(request)) as db:
        schedule = await _found(db, request)
        found = await db.run(calls.ticks(schedule.id, limit=tables.MOST_ROWS))
    return tables.csv_of("ticks", TickInfo, found)


def address(schedule: ScheduleInfo, action: str = "") -> str:
    """By its id: a name may contain a slash, and belongs to a tenant."""
    return f"/schedules/{schedule.id}{action}"


async def _found(db: Acting, request: Request) -> ScheduleInfo:
    wanted = request.path_params["id"]
    for schedule in await db.run(calls.schedules()):
        if str(schedule.id) == wanted:
            return schedule
    raise UnknownSchedule(
        "no such schedule, or none that you may see", hint="Look for it in the list of schedules."
    )


async def show(request: Request) -> Response:
    async with web_of(request).database.acting(identity_of(request)) as db:
        shown = await layout.frame(db)
        schedule = await _found(db, request)
        ticks = await db.run(calls.ticks(schedule.id, limit=20))
        coming = await db.run(calls.next_ticks(schedule.spec, schedule.zone, count=TICKS))
    return layout.render(
        request, "pages/schedule.html", shown, schedule=schedule, ticks=ticks, coming=coming, address=address
    )


# ---------------------------------------------------------------- changing


@dataclass(frozen=True, slots=True)
class Draft:
    """The form as it was filled in."""

    name: str = ""
    task: str = ""
    spec: str = "0 7 * * mon-fri"
    zone: str = "UTC"
    lane: str = "default"
    payload: str = "{}"
    missed: str = "latest"
    overlap: str = "skip"

    @staticmethod
    def of(form: Form) -> Draft:
        given = {
            name: form.text(name) for name in ("name", "task", "spec", "zone", "lane", "missed", "overlap")
        }
        return Draft(**given, payload=form.raw("payload"))

    @staticmethod
    def from_schedule(schedule: ScheduleInfo) -> Draft:
        return Draft(
            schedule.name, schedule.task, schedule.spec, schedule.zone, schedule.lane, jsonview.pretty(schedule.payload),
            schedule.missed, schedule.overlap,
        )  # fmt: skip


async def edit(request: Request) -> Response:
    """A new one, or one that exists."""
    async with web_of(request).database.acting(identity_of(request)) as db:
        schedule = await _found(db, request) if "id" in request.path_params else None
    return await _editor(request, Draft.from_schedule(schedule) if schedule else Draft(), schedule)


async def _editor(
    request: Request, draft: Draft, schedule: ScheduleInfo | None, problems: Mapping[str, str] | None = None
) -> Response:
    found = dict(problems or {})
    async with web_of(request).database.acting(identity_of(request)) as db:
        shown = await layout.frame(db)
        lanes = await db.run(browsing.lane_names())
        tasks = await db.run(calls.task_names())
        coming: list[NextTick] = []
        try:
            coming = await db.attempt(calls.next_ticks(draft.spec, draft.zone or None, count=TICKS))
        except OncewardError as error:
            found.setdefault("zone" if "zone" in error.message else "spec", error.message)
    return layout.render(
        request, "pages/schedule_edit.html", shown, 409 if "" in found else 400 if problems else 200,
        draft=draft, schedule=schedule, problems=found, coming=coming, lanes=lanes, tasks=tasks,
        missed=MISSED, overlap=OVERLAP, address=address, seen=mark_of(Draft.from_schedule(schedule)) if schedule else "",
    )  # fmt: skip


# What messages call each field.  First where an error stands that names none of them.
_WORDS = {
    "spec": "the time",
    "name": "the name",
    "task": "the task",
    "zone": "the time zone",
    "lane": "the lane",
    "payload": "the payload",
    "missed": "what happens to missed moments",
    "overlap": "what happens while the last one runs",
}


async def save(request: Request) -> Response:
    form = await read_form(request)
    draft, filling = Draft.of(form), Filling(form, words=_WORDS)
    web, who = web_of(request), identity_of(request)
    schedule = None
    if "id" in request.path_params:
        async with web.database.acting(who) as db:
            schedule = await _found(db, request)
    if form.checked("preview"):
        return await _editor(request, draft, schedule)
    filling.need("name", "task", "spec")
    payload = _read_payload(request, filling, draft)
    if filling.is_good:
        try:
            async with web.database.acting(who, writes=True) as db:
                tenant = schedule.tenant if schedule else who.tenant or "default"
                await _check_way(db, filling, draft, schedule, tenant, form.text("seen"))
                if filling.is_good:
                    change = await db.run(calls.add_schedule(**_arguments(draft, schedule, payload)))
                    (saved,) = await db.run(calls.schedules([draft.name], tenant=tenant))
                    is_known = saved.task in await db.run(calls.task_names())
                    return layout.back(
                        request, address(saved), _saved(saved, change.outcome, is_known=is_known)
                    )
        except OncewardError as error:
            filling.blame_for(error)
    return await _editor(request, draft, schedule, filling.problems)


def _read_payload(request: Request, filling: Filling, draft: Draft) -> str:
    try:
        given = read_payload(draft.payload or "{}")
        check_payload(web_of(request).settings.apps, draft.task, given)
        return jsonsafe.dumps(given)
    except InvalidArgument as error:
        filling.blame("payload", error.message, error.hint)
        return "{}"


def _saved(schedule: ScheduleInfo, outcome: str, *, is_known: bool) -> Flash:
    said = f"Schedule {schedule.name} {outcome}"
    if is_known:
        return Flash(said)
    return Flash(f"{said}. No worker has announced task {schedule.task} yet.", tone="trouble")


async def _check_way(
    db: Acting, filling: Filling, draft: Draft, schedule: ScheduleInfo | None, tenant: str, seen: str
) -> None:
    """A form for a new schedule changes none that is there; one that edits it, only what it was filled in from."""
    if schedule is not None:
        kept = Draft.from_schedule(schedule)
        if seen and seen != mark_of(kept):
            filling.blame("", changed_since(kept, draft))
    elif await db.run(calls.schedules([draft.name], tenant=tenant)):
        filling.blame("name", f"Schedule {draft.name} is there already")


def _arguments(draft: Draft, schedule: ScheduleInfo | None, payload: str) -> dict[str, Any]:
    """What the form does not show stays as it is."""
    given: dict[str, Any] = {
        "name": schedule.name if schedule else draft.name,
        "task": draft.task, "spec": draft.spec, "zone": draft.zone or None, "lane": draft.lane or "default",
        "payload": payload, "missed": draft.missed, "overlap": draft.overlap,
    }  # fmt: skip
    if schedule is not None:
        kept = (
            "priority",
            "max_attempts",
            "retry",
            "timeout",
            "expires_in",
            "catch_up",
            "grace",
            "jitter",
            "tenant",
        )
        given |= {name: getattr(schedule, name) for name in kept}
    return given


async def pause(request: Request) -> Response:
    form = await read_form(request)
    async with web_of(request).database.acting(identity_of(request), writes=True) as db:
        schedule = await _found(db, request)
        await db.run(calls.pause_schedule(schedule.name, form.text("reason") or None, tenant=schedule.tenant))
    undo = address(schedule, "/resume")
    return layout.back(request, address(schedule), Flash(f"Schedule {schedule.name} is paused", undo=undo))


async def resume(request: Request) -> Response:
    async with web_of(request).database.acting(identity_of(request), writes=True) as db:
        schedule = await _found(db, request)
        await db.run(calls.resume_schedule(schedule.name, tenant=schedule.tenant))
    return layout.back(request, address(schedule), Flash(f"Schedule {schedule.name} goes on"))


async def run_now(request: Request) -> Response:
    async with web_of(request).database.acting(identity_of(request), writes=True) as db:
        schedule = await _found(db, request)
        job = await db.run(calls.run_schedule_now(schedule.name, tenant=schedule.tenant))
    return layout.back(request, f"/jobs/{job}", Flash(f"Schedule {schedule.name} was run by hand"))


async def drop(request: Request) -> Response:
    async with web_of(request).database.acting(identity_of(request), writes=True) as db:
        schedule = await _found(db, request)
        await db.run(calls.drop_schedule(schedule.name, tenant=schedule.tenant))
    return layout.back(request, "/schedules", Flash(f"Schedule {schedule.name} is gone"))


_ONE = "/schedules/{id}"
ROUTES = [
    Route("/schedules", schedules),
    Route("/schedules.csv", as_csv),
    Route("/schedules/new", edit),
    Route("/schedules/new", save, methods=["POST"]),
    Route(_ONE, show),
    Route(f"{_ONE}/ticks.csv", ticks_csv),
    Route(f"{_ONE}/edit", edit),
    Route(f"{_ONE}/edit", save, methods=["POST"]),
    Route(f"{_ONE}/pause", pause, methods=["POST"]),
    Route(f"{_ONE}/resume", resume, methods=["POST"]),
    Route(f"{_ONE}/run-now", run_now, methods=["POST"]),
    Route(f"{_ONE}/drop", drop, methods=["POST"]),
]
