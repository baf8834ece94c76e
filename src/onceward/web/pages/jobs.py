"""Jobs: a list whose filter is its address, and what can be done to all that it finds."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from onceward import calls
from onceward.calls import browsing
from onceward.errors import InvalidArgument
from onceward.model import STATES, JobFilter
from onceward.model_web import Count, FoundJob
from onceward.web import bulk, layout, tables
from onceward.web.context import identity_of, web_of
from onceward.web.database import Acting
from onceward.web.forms import read_form
from onceward.web.layout import Flash
from onceward.web.query import PAGE, Query, job_filter, query_of

# Those that have not begun, and end at once.
WAITING = ("scheduled", "ready", "blocked")
FIELDS = ("lane", "task", "tenant", "key", "error", "fingerprint", "since", "until")


async def jobs(request: Request) -> Response:
    query = query_of(request)
    if found := _as_id(query.text("q")):
        return RedirectResponse(f"/jobs/{found}", 303)
    who = identity_of(request)
    async with web_of(request).database.acting(who) as db:
        shown = await layout.frame(db)
        wanted = job_filter(query, shown.now, limit=PAGE + 1)
        rows = await db.run(browsing.find_jobs(wanted))
        # A page that is not full has been looked for to the end, or as far as one search goes.
        stopped_at = await db.run(browsing.scan_end(wanted)) if len(rows) <= PAGE else None
        count = await _count(db, query, wanted)
        lanes = await db.run(browsing.lane_names())
        tasks = await db.run(calls.task_names())
    following = rows[PAGE - 1].id if len(rows) > PAGE else stopped_at
    return layout.render(
        request, "pages/jobs.html", shown,
        query=query, rows=rows[:PAGE], count=count, states=STATES, chosen=wanted.states, lanes=lanes, tasks=tasks,
        fields={name: query.text(name) or "" for name in FIELDS}, following=following, looked_on=stopped_at is not None,
        cancellable=bool(wanted.states) and set(wanted.states) <= set(WAITING) and count.number > 0,
        tenants=who.tenant is None and any(row.tenant != "default" for row in rows),
    )  # fmt: skip


async def _count(db: Acting, query: Query, wanted: JobFilter) -> Count:
    if not query.is_filtered:
        estimate = await db.run(browsing.estimate_jobs())
        if estimate is not None and estimate > browsing.SCAN:
            return Count(estimate, "about")
    return await db.run(browsing.count_found(wanted))


def _as_id(text: str | None) -> UUID | None:
    try:
        return UUID(text) if text else None
    except ValueError:
        raise InvalidArgument(
            "the search takes the whole id of a job",
            hint="Lists show its end; the button beside it copies all of it. Use the filter for tasks, lanes, keys and errors.",
        ) from None


async def as_csv(request: Request) -> Response:
    query = query_of(request)
    async with web_of(request).database.acting(identity_of(request)) as db:
        now = await db.run(calls.now())
        wanted = job_filter(query, now, limit=tables.MOST_ROWS)
        found = await db.run(browsing.find_jobs(wanted))
    return tables.csv_of("jobs", FoundJob, found)


async def ask_cancel(request: Request) -> Response:
    """What would be cancelled, before anything is."""
    query = query_of(request, "/jobs/cancel")
    async with web_of(request).database.acting(identity_of(request)) as db:
        shown = await layout.frame(db)
        wanted = _waiting_only(job_filter(query, shown.now))
        count = await db.run(browsing.count_found(wanted))
        found = await db.run(browsing.find_jobs(replace(wanted, before=None, limit=bulk.MOST)))
    return layout.render(
        request, "pages/jobs_cancel.html", shown, query=query, count=count, sample=found[:5], most=bulk.MOST,
        ids=bulk.packed([job.id for job in found]), back=f"/jobs{query.suffix}",
    )  # fmt: skip


async def cancel(request: Request) -> Response:
    form = await read_form(request)
    query = query_of(request, "/jobs")
    web, who = web_of(request), identity_of(request)
    seen = bulk.unpacked(form.raw("ids"))
    async with web.database.acting(who) as db:
        ids = await db.run(browsing.still_in(seen, WAITING))
    reason = form.text("reason") or None
    outcome = await bulk.act_on_each(web.database, who, ids, lambda _, job: calls.cancel(job, reason))
    outcome.gone += len(seen) - len(ids)
    return layout.back(request, f"/jobs{query.suffix}", Flash(outcome.said("Cancelled")))


def _waiting_only(wanted: JobFilter) -> JobFilter:
    if not wanted.states or not set(wanted.states) <= set(WAITING):
        raise InvalidArgument(
            f"only jobs that wait are cancelled together: choose states among {', '.join(WAITING)}",
            hint="A running job is cancelled on its own page.",
        )
    return wanted


ROUTES = [
    Route("/jobs", jobs),
    Route("/jobs.csv", as_csv),
    Route("/jobs/cancel", ask_cancel),
    Route("/jobs/cancel", cancel, methods=["POST"]),
]
