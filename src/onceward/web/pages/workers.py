"""Workers: who they are, whether their lease holds, and what each is doing."""

from __future__ import annotations

from collections import defaultdict
from uuid import UUID

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from onceward import calls
from onceward.calls import browsing
from onceward.model import JobInfo, WorkerInfo
from onceward.web import layout, tables
from onceward.web.context import identity_of, web_of

# Running jobs that are shown by name, over all workers.
MOST_JOBS = 200


async def workers(request: Request) -> Response:
    everyone = bool(request.query_params.get("all"))
    async with web_of(request).database.acting(identity_of(request)) as db:
        shown = await layout.frame(db)
        known = await db.run(calls.workers())
        running = await db.run(browsing.running_jobs(MOST_JOBS))
    of_worker: dict[UUID | None, list[JobInfo]] = defaultdict(list)
    for job in running:
        of_worker[job.worker_id].append(job)
    stopped = [worker for worker in known if worker.state == "retired"]
    return layout.render(
        request, "pages/workers.html", shown,
        workers=[worker for worker in known if worker.state != "retired"], stopped=stopped if everyone else stopped[:0],
        stopped_count=len(stopped), running=of_worker, everyone=everyone,
    )  # fmt: skip


async def as_csv(request: Request) -> Response:
    found = await web_of(request).database.run(identity_of(request), calls.workers())
    return tables.csv_of("workers", WorkerInfo, found)


ROUTES = [Route("/workers", workers), Route("/workers.csv", as_csv)]
