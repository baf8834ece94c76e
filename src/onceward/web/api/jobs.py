"""Jobs: enqueue, find, look, wait."""

from __future__ import annotations

import asyncio
import time
from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from onceward import calls
from onceward.async_client import AsyncClient
from onceward.calls import browsing
from onceward.errors import UnknownJob
from onceward.model import FINISHED, AttemptInfo, Explanation, JobFilter, JobInfo, JobRef, StepInfo
from onceward.model_web import FoundJob
from onceward.web.api import problems
from onceward.web.api.callers import Caller, Producer, Reader
from onceward.web.api.fields import (
    LaneName,
    Limit,
    Name,
    State,
    Tenant,
    Text,
    When,
    answer_of,
)
from onceward.web.api.new_jobs import ManyJobs, NewJob
from onceward.web.api.once import REPLAYED, Done, IdempotencyKey, perform
from onceward.web.context import web_of
from onceward.web.database import Acting

router = APIRouter()
# Of a wait, and of those who wait at the same time in this process.
MOST_SECONDS = 60
MOST_WAITING = 500
# How soon a wait looks again: at first, and after a while.
FIRST_LOOK, LATER_LOOK = 0.05, 1.0
_ENDED = FINISHED | {"dead_letter"}


# ---------------------------------------------------------------- what is answered


class Enqueued(BaseModel):
    """The job, and what became of the request."""

    model_config = ConfigDict(
        from_attributes=True,
        json_schema_extra={
            "examples": [
                {
                    "id": "01936f00-0000-7000-8000-000000000000",
                    "created": True,
                    "answer": "accepted",
                    "until": None,
                    "reason": None,
                }
            ]
        },
    )
    id: UUID
    created: bool = Field(description="False: the key was taken, and this is its job.")
    answer: Literal["accepted", "existing", "deferred"] = Field(
        description="deferred: more waits than may, and the job waits until `until`."
    )
    until: datetime | None
    reason: str | None = Field(description="What is above its bound.")


class EnqueuedMany(BaseModel):
    """In the order of the payloads."""

    jobs: list[Enqueued]


FoundJobs = answer_of(FoundJob, "FoundJob", "A job without its payload and result.")
Job = answer_of(JobInfo, "Job", "A job.")
Attempt = answer_of(AttemptInfo, "Attempt", "One execution.", without=("job_id", "tenant", "task"))
Step = answer_of(StepInfo, "Step", "A checkpoint inside a job.", without=("job_id", "tenant", "task"))
Why = answer_of(Explanation, "Why", "A reason why the job does not run, or what became of it.")


class JobPage(BaseModel):
    """Newest first."""

    jobs: list[FoundJobs]  # type: ignore[valid-type] # made by answer_of
    next: UUID | None = Field(
        description="Pass it as `before` for what follows; null at the end. A page may be short, or empty, and have one: a search looks at a bounded number of jobs at a time."
    )


class WholeJob(BaseModel):
    """A job and its story."""

    job: Job  # type: ignore[valid-type]
    attempts: list[Attempt]  # type: ignore[valid-type]
    steps: list[Step]  # type: ignore[valid-type]
    explain: list[Why] = Field(description="The first is the answer.")  # type: ignore[valid-type]


class Waited(BaseModel):
    """Where the job stands; `ended` is false when the time was over first."""

    id: UUID
    ended: bool
    state: str
    result: Any
    error: Any = Field(description="The last error, if there was one.")
    note: str | None


# ---------------------------------------------------------------- enqueueing


def _client(request: Request, caller: Caller, task: str, tenant: str | None) -> AsyncClient:
    """Tasks of the applications that are served have their own defaults and schema; those of others have neither here."""
    app = next((app for app in web_of(request).settings.apps if task in app.tasks), None)
    return AsyncClient(app=app, tenant=tenant)


@router.post(
    "/jobs",
    status_code=201,
    summary="Enqueue a job",
    response_model=Enqueued,
    responses={
        200: {
            "model": Enqueued,
            "description": "The key was taken: this is its job.",
            "headers": REPLAYED,
        },
        201: {
            "description": "The job was created.",
            "headers": {
                **REPLAYED,
                "Location": {"description": "The address of the job.", "schema": {"type": "string"}},
            },
        },
    },
)
async def enqueue_job(
    request: Request, caller: Producer, body: NewJob, idempotency_key: IdempotencyKey = None
) -> Response:
    """Written when the answer comes: a committed job is never lost."""
    rights = caller.producing(body.tenant)

    async def act(db: Acting) -> Done:
        client = _client(request, caller, body.task, rights.scope)
        job = await client.enqueue(body.task, body.payload, connection=db.connection, **body.options())
        return _created(request, job)

    return await perform(request, rights, act, answers=Enqueued, key=idempotency_key)


def _created(request: Request, job: JobRef) -> Done:
    if not job.created:
        return Done(job, 200)
    return Done(job, 201, {"location": f"{request.scope['root_path']}/jobs/{job.id}"})


@router.post(
    "/jobs/many",
    status_code=201,
    summary="Enqueue many jobs of one task",
    response_model=EnqueuedMany,
    responses={201: {"headers": REPLAYED}},
)
async def enqueue_many(
    request: Request, caller: Producer, body: ManyJobs, idempotency_key: IdempotencyKey = None
) -> Response:
    """All or none of them are written."""
    rights = caller.producing(body.tenant)

    async def act(db: Acting) -> Done:
        client = _client(request, caller, body.task, rights.scope)
        made = await client.enqueue_many(
            body.task,
            body.payloads,
            keys=body.keys,
            concurrency_keys=body.concurrency_keys,
            connection=db.connection,
            **body.options(),
        )
        return Done({"jobs": made}, 201)

    return await perform(request, rights, act, answers=EnqueuedMany, key=idempotency_key)


# ---------------------------------------------------------------- reading


@router.get("/jobs", summary="Find jobs", response_model=JobPage)
async def find_jobs(
    request: Request,
    caller: Reader,
    state: Annotated[list[State] | None, Query(description="Repeat it for several.")] = None,
    lane: LaneName | None = None,
    task: Name | None = None,
    tenant: Tenant | None = None,
    key: Text | None = None,
    error: Annotated[Text | None, Query(description="Part of the last error's message.")] = None,
    fingerprint: Text | None = None,
    since: When | None = None,
    until: When | None = None,
    before: Annotated[UUID | None, Query(description="`next` of the page before.")] = None,
    limit: Limit = 50,
) -> Any:
    """Newest first, without payloads and results."""
    wanted = JobFilter(
        states=state or (), lane=lane, task=task, tenant=tenant, key=key, error=error, fingerprint=fingerprint,
        since=since, until=until, limit=limit, before=before,
    )  # fmt: skip
    async with web_of(request).database.acting(caller.reading) as db:
        found = await db.run(browsing.find_jobs(wanted))
        following = found[-1].id if len(found) == limit else await db.run(browsing.scan_end(wanted))
    return {"jobs": found, "next": following}


@router.get("/jobs/{id}", summary="One job with its story", response_model=WholeJob)
async def show_job(request: Request, caller: Reader, id: UUID) -> Any:
    """Attempts, steps, and why it does not run, or what became of it."""
    async with web_of(request).database.acting(caller.reading) as db:
        job = await db.run(calls.job(id))
        if job is None:
            raise _no_such_job(id)
        return {
            "job": job,
            "attempts": await db.run(calls.attempts(id)),
            "steps": await db.run(calls.steps(id)),
            "explain": await db.run(calls.explain(id)),
        }


def _no_such_job(job_id: UUID) -> UnknownJob:
    return UnknownJob(f"job {job_id} does not exist, or the token may not see it")


_waiting = 0


@router.get("/jobs/{id}/wait", summary="Wait for a job", response_model=Waited)
async def wait_for_job(
    request: Request,
    caller: Reader,
    id: UUID,
    timeout: Annotated[
        float, Query(ge=0, le=MOST_SECONDS, allow_inf_nan=False, description="Seconds to wait at most.")
    ] = 30.0,
) -> Any:
    """Answers when the job has ended or the time is over, whichever is first; a dead letter has ended.

    The job goes on, whatever becomes of the waiting.
    """
    global _waiting  # noqa: PLW0603 # a count of this process
    if _waiting >= MOST_WAITING:
        raise problems.Refused(
            429,
            "too-many-waiting",
            "Too many requests wait for jobs.",
            hint="Ask again later, or use a shorter timeout.",
            headers={"retry-after": "5"},
        )
    _waiting += 1
    try:
        return await _wait(request, caller, id, timeout)
    finally:
        _waiting -= 1


async def _wait(request: Request, caller: Caller, job_id: UUID, timeout: float) -> dict[str, Any]:
    web = web_of(request)
    deadline, pause = time.monotonic() + timeout, FIRST_LOOK
    while True:
        found = await web.database.run(caller.reading, calls.outcome(job_id))
        if found is None:
            raise _no_such_job(job_id)
        state, result, error, note = found
        left = deadline - time.monotonic()
        # A server that is told to stop does not make everybody wait for the slowest job.
        if state in _ENDED or left <= 0 or web.live.ending or await request.is_disconnected():
            ended = state in _ENDED
            return {
                "id": job_id,
                "ended": ended,
                "state": state,
                "result": result,
                "error": error,
                "note": note,
            }
        await asyncio.sleep(min(pause, left))
        pause = min(pause * 1.5, LATER_LOOK)
