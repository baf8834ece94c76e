"""One job: its story, and what a person can do about it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from onceward import calls, jsonsafe
from onceward.attempts import runs as runs_of
from onceward.calls import browsing
from onceward.errors import InvalidArgument, PayloadTooLarge, UnknownJob, WrongState
from onceward.model import DeliveryInfo, EventInfo, JobInfo, Json, StepInfo
from onceward.web import graph, jsonview, layout, tables, timeline
from onceward.web.care import Care, assigning, care_of, people_for
from onceward.web.context import identity_of, web_of
from onceward.web.database import Acting
from onceward.web.filling import told
from onceward.web.forms import MOST_BYTES, read_form
from onceward.web.layout import Flash
from onceward.web.payloads import check_payload

# Of a workflow; more are not drawn.
MOST_JOBS = 300
# Of the audit log; the rest is a link away.
MOST_ENTRIES = 30
# Deliveries it has asked for and events it has emitted, each.
MOST_MADE = 50
REQUEUED_FROM = frozenset({"dead_letter", "cancelled", "resolved"})


def job_id_of(request: Request) -> UUID:
    try:
        return UUID(request.path_params["id"])
    except ValueError:
        raise UnknownJob("no such job", hint="Look for it in the list of jobs.") from None


async def _found(db: Acting, job_id: UUID) -> JobInfo:
    found = await db.run(calls.job(job_id))
    if found is None:
        raise UnknownJob(
            f"job {job_id} does not exist",
            detail="It never did, is no longer kept, or belongs to another tenant.",
        )
    return found


@dataclass(frozen=True, slots=True)
class Action:
    """A button.  `asks` leads to a page that asks first."""

    title: str
    path: str
    key: str | None = None
    asks: bool = False
    strong: bool = False


def actions(job: JobInfo) -> list[Action]:
    base = f"/jobs/{job.id}"
    found = []
    if job.state in REQUEUED_FROM:
        # What a delivery sends cannot be changed.
        title = "Requeue" if job.task == "onceward.deliver" else "Edit and requeue"
        found.append(Action(title, f"{base}/requeue", "r", asks=True, strong=job.state == "dead_letter"))
    if job.state == "dead_letter":
        found.append(Action("Resolve", f"{base}/resolve", "e", asks=True))
    if job.state == "scheduled" and job.awaits is None:
        found.append(Action("Run now", f"{base}/run-now", strong=True))
    if job.state in {"scheduled", "ready", "blocked", "running"} and job.cancel_at is None:
        found.append(Action("Cancel", f"{base}/cancel", asks=True))
    return found


async def show(request: Request) -> Response:
    job_id, who = job_id_of(request), identity_of(request)
    people = await people_for(request)
    async with web_of(request).database.acting(who) as db:
        shown = await layout.frame(db)
        job = await _found(db, job_id)
        care = await _care(db, job, people)
        made = await db.run(calls.deliveries_of(job_id, MOST_MADE + 1))
        emitted = await db.run(calls.events_of(job_id, MOST_MADE + 1))
        attempts = await db.run(calls.attempts(job_id))
        steps = await db.run(calls.steps(job_id))
        edits = await db.run(calls.payload_edits(job_id))
        delivery = await db.run(calls.delivery(job_id)) if job.task == "onceward.deliver" else None
        together = await db.run(calls.workflow_jobs(job.workflow_id, MOST_JOBS + 1, tenant=job.tenant))
        why = await db.run(calls.explain(job_id))
        workers = await db.run(calls.workers())
        audited = await db.run(calls.audit_of(job_id))
    drawn = graph.layout(together[:MOST_JOBS], job.id) if len(together) > 1 else None
    runs = runs_of(attempts, audited)
    return layout.render(
        request, "pages/job.html", shown,
        job=job, attempts=attempts, steps=steps, edits=edits, delivery=delivery, drawn=drawn, why=why,
        too_many=len(together) > MOST_JOBS, audited=audited[-MOST_ENTRIES:], audited_count=len(audited),
        bars=timeline.bars(job, runs, steps, shown.now), runs=runs, ended=timeline.end_of(job, attempts, shown.now), actions=actions(job),
        care=care, made=made[:MOST_MADE], emitted=emitted[:MOST_MADE], awaited=awaited(steps),
        more_made=len(made) > MOST_MADE, more_emitted=len(emitted) > MOST_MADE,
        worker=next((worker for worker in workers if worker.id == job.worker_id), None),
        workers={worker.id: worker for worker in workers},
    )  # fmt: skip


async def steps_csv(request: Request) -> Response:
    found = await web_of(request).database.run(identity_of(request), calls.steps(job_id_of(request)))
    return tables.csv_of("steps", StepInfo, found, without=("result", "error"))


async def deliveries_csv(request: Request) -> Response:
    call = calls.deliveries_of(job_id_of(request), tables.MOST_ROWS)
    found = await web_of(request).database.run(identity_of(request), call)
    return tables.csv_of("deliveries", DeliveryInfo, found)


async def events_csv(request: Request) -> Response:
    call = calls.events_of(job_id_of(request), tables.MOST_ROWS)
    found = await web_of(request).database.run(identity_of(request), call)
    return tables.csv_of("events", EventInfo, found, without=("payload",))


def fingerprint_of(job: JobInfo) -> str | None:
    found = job.last_error.get("fingerprint") if isinstance(job.last_error, dict) else None
    return found if isinstance(found, str) else None


async def _care(db: Acting, job: JobInfo, people: Sequence[str]) -> Care | None:
    """Of what it died of; when it lives again, as long as there is something to read."""
    if job.last_error is None:
        return None
    care = await care_of(db, job.task, fingerprint_of(job), people)
    return care if job.state == "dead_letter" or care.comments else None


def awaited(steps: Sequence[StepInfo]) -> list[StepInfo]:
    """The events that it waits for, or has waited for."""
    return [step for step in steps if step.kind == "event"]


# ---------------------------------------------------------------- acting


async def _dead(request: Request) -> JobInfo:
    async with web_of(request).database.acting(identity_of(request)) as db:
        job = await _found(db, job_id_of(request))
    if job.state != "dead_letter":
        raise WrongState(f"job {job.id} is no dead letter any more", detail=f"It is {job.state}.")
    return job


async def assign(request: Request) -> Response:
    """Who looks after it and all that fail alike."""
    form, job = await read_form(request), await _dead(request)
    call, said = assigning(form, job.task, fingerprint_of(job), me=identity_of(request).name)
    await web_of(request).database.run(identity_of(request), call, writes=True)
    return layout.back(request, f"/jobs/{job.id}", Flash(said))


async def comment(request: Request) -> Response:
    form, job = await read_form(request), await _dead(request)
    call = calls.comment_dead_letters(job.task, fingerprint_of(job), form.raw("comment"), job.id)
    await web_of(request).database.run(identity_of(request), call, writes=True)
    return layout.back(request, f"/jobs/{job.id}", Flash("Said"))


async def ask_requeue(request: Request) -> Response:
    """Run again, with the payload to edit; what was typed is compared before it counts."""
    async with web_of(request).database.acting(identity_of(request)) as db:
        shown = await layout.frame(db)
        job = await _found(db, job_id_of(request))
        most = await db.run(browsing.max_payload_bytes(job.lane))
    return _requeue_page(request, shown, Edit(job, jsonview.pretty(job.payload), most))


@dataclass(frozen=True, slots=True)
class Edit:
    """The payload of a job as it was typed."""

    job: JobInfo
    text: str
    # What the lane takes, and how large a form can be sent, in bytes.
    most: int
    most_sent: int = MOST_BYTES
    problem: str | None = None
    # When it is to be compared with what the job has.
    payload: Json = None


def _requeue_page(request: Request, shown: layout.Frame, edit: Edit, status: int = 200) -> Response:
    return layout.render(request, "pages/job_requeue.html", shown, status, job=edit.job, edit=edit)


async def requeue(request: Request) -> Response:
    form = await read_form(request)
    web, who, job_id = web_of(request), identity_of(request), job_id_of(request)
    async with web.database.acting(who) as db:
        shown = await layout.frame(db)
        job = await _found(db, job_id)
        most = await db.run(browsing.max_payload_bytes(job.lane))
    text = form.raw("payload")
    edit = Edit(job, text, most)
    try:
        # Without the field, as the button of a delivery sends it, nothing was edited; an emptied one is no object.
        payload = read_payload(text) if "payload" in form.names() else job.payload
        dumped = jsonsafe.dumps(payload)
        changed = payload != job.payload
        if changed:
            check_payload(web.settings.apps, job.task, payload)
    except InvalidArgument as error:
        return _requeue_page(request, shown, replace(edit, problem=told(error.message, error.hint)), 400)
    if form.checked("compare"):
        return _requeue_page(request, shown, replace(edit, payload=payload))
    try:
        async with web.database.acting(who, writes=True) as db:
            state = await db.run(calls.requeue(job_id, payload=dumped if changed else None))
    except PayloadTooLarge as error:
        return _requeue_page(request, shown, replace(edit, problem=told(error.message, error.hint)), 413)
    said = "Requeued with the edited payload" if changed else "Requeued"
    return layout.back(request, f"/jobs/{job_id}", Flash(f"{said}; the job is {state}"))


def read_payload(text: str) -> dict[str, Json]:
    """An object, or InvalidArgument that names line and column."""
    try:
        read = json.loads(text)
    except json.JSONDecodeError as error:
        raise InvalidArgument(
            f"this is not JSON: {error.msg.lower()}, line {error.lineno}, column {error.colno}"
        ) from None
    except (RecursionError, ValueError) as error:
        raise InvalidArgument(f"this is not JSON that can be used: {str(error)[:100]}") from None
    if not isinstance(read, dict):
        raise InvalidArgument('a payload is an object of named values, as in {"order": 1}')
    return read


async def ask(request: Request) -> Response:
    """The page that asks before a job is cancelled or resolved."""
    verb = request.url.path.rpartition("/")[2]
    async with web_of(request).database.acting(identity_of(request)) as db:
        shown = await layout.frame(db)
        job = await _found(db, job_id_of(request))
    return layout.render(request, "pages/job_ask.html", shown, job=job, verb=verb, problem=None, text="")


async def cancel(request: Request) -> Response:
    form = await read_form(request)
    job_id = job_id_of(request)
    call = calls.cancel(job_id, form.text("note") or None)
    answer = await web_of(request).database.run(identity_of(request), call, writes=True)
    said = "Cancelled" if answer == "cancelled" else "Its worker has been asked to stop"
    return layout.back(request, f"/jobs/{job_id}", Flash(said))


async def resolve(request: Request) -> Response:
    form = await read_form(request)
    job_id, web, who = job_id_of(request), web_of(request), identity_of(request)
    note = form.text("note")
    if not note:
        async with web.database.acting(who) as db:
            shown = await layout.frame(db)
            job = await _found(db, job_id)
        problem = "Say how it was settled: the note is kept with the job."
        return layout.render(
            request, "pages/job_ask.html", shown, 400, job=job, verb="resolve", problem=problem, text=""
        )
    call = calls.resolve(job_id, note, override=form.checked("override"))
    await web.database.run(who, call, writes=True)
    return layout.back(request, f"/jobs/{job_id}", Flash("Resolved"))


async def run_now(request: Request) -> Response:
    job_id = job_id_of(request)
    state = await web_of(request).database.run(identity_of(request), calls.run_now(job_id), writes=True)
    return layout.back(request, f"/jobs/{job_id}", Flash(f"Does not wait any longer; the job is {state}"))


ROUTES = [
    Route("/jobs/{id}", show),
    Route("/jobs/{id}/steps.csv", steps_csv),
    Route("/jobs/{id}/deliveries.csv", deliveries_csv),
    Route("/jobs/{id}/events.csv", events_csv),
    Route("/jobs/{id}/requeue", ask_requeue),
    Route("/jobs/{id}/requeue", requeue, methods=["POST"]),
    Route("/jobs/{id}/cancel", ask),
    Route("/jobs/{id}/cancel", cancel, methods=["POST"]),
    Route("/jobs/{id}/resolve", ask),
    Route("/jobs/{id}/resolve", resolve, methods=["POST"]),
    Route("/jobs/{id}/run-now", run_now, methods=["POST"]),
    Route("/jobs/{id}/assign", assign, methods=["POST"]),
    Route("/jobs/{id}/comment", comment, methods=["POST"]),
]
