"""Acting on a job: cancel, requeue, resolve, run now."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Body
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from onceward import calls, jsonsafe
from onceward.web.api.callers import Operator
from onceward.web.api.fields import Flag, Note, Payload, Reason, Sent, When
from onceward.web.api.once import REPLAYED, Done, IdempotencyKey, perform
from onceward.web.context import web_of
from onceward.web.database import Acting
from onceward.web.payloads import check_payload

router = APIRouter()


class Cancelling(Sent):
    """Why, if there is something to say."""

    reason: Reason | None = None


class Requeueing(Sent):
    """Run it again, perhaps with another payload, perhaps later."""

    model_config = ConfigDict(json_schema_extra={"examples": [{}, {"payload": {"order": 2}}]})
    payload: Payload | None = None
    run_at: When | None = None


class Resolving(Sent):
    """Settled by hand."""

    note: Note
    override: Flag = Field(default=False, description="Also when the check of the task does not pass.")


class NewState(BaseModel):
    """The state that the job is in now."""

    id: UUID
    state: str


class Cancelled(BaseModel):
    """`cancelled`, or `cancelling` when a worker has been asked to stop."""

    id: UUID
    outcome: str


@router.post(
    "/jobs/{id}/cancel",
    summary="Cancel a job",
    response_model=Cancelled,
    responses={200: {"headers": REPLAYED}},
)
async def cancel_job(
    request: Request,
    caller: Operator,
    id: UUID,
    body: Annotated[Cancelling, Body(default_factory=Cancelling)],
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """A job that waits is cancelled; the worker of one that runs is asked to stop."""

    async def act(db: Acting) -> Done:
        return Done({"id": id, "outcome": await db.run(calls.cancel(id, body.reason))})

    return await perform(request, caller.operating, act, answers=Cancelled, key=idempotency_key)


@router.post(
    "/jobs/{id}/requeue",
    summary="Run a job again",
    response_model=NewState,
    responses={200: {"headers": REPLAYED}},
)
async def requeue_job(
    request: Request,
    caller: Operator,
    id: UUID,
    body: Annotated[Requeueing, Body(default_factory=Requeueing)],
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """A dead letter, or a job that was cancelled or resolved. The payload before an edit is kept."""
    payload = None if body.payload is None else jsonsafe.dumps(body.payload)

    async def act(db: Acting) -> Done:
        if body.payload is not None and (job := await db.run(calls.job(id))):
            check_payload(web_of(request).settings.apps, job.task, body.payload)
        return Done({"id": id, "state": await db.run(calls.requeue(id, payload=payload, run_at=body.run_at))})

    return await perform(request, caller.operating, act, answers=NewState, key=idempotency_key)


@router.post(
    "/jobs/{id}/resolve",
    summary="Settle a dead letter",
    response_model=NewState,
    responses={200: {"headers": REPLAYED}},
)
async def resolve_job(
    request: Request,
    caller: Operator,
    id: UUID,
    body: Resolving,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Somebody has dealt with it otherwise. The check of its task has to pass, unless it is overridden."""

    async def act(db: Acting) -> Done:
        await db.run(calls.resolve(id, body.note, override=body.override))
        return Done({"id": id, "state": "resolved"})

    return await perform(request, caller.operating, act, answers=NewState, key=idempotency_key)


@router.post(
    "/jobs/{id}/run-now",
    summary="Do not wait for its time",
    response_model=NewState,
    responses={200: {"headers": REPLAYED}},
)
async def run_job_now(
    request: Request,
    caller: Operator,
    id: UUID,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """A scheduled job, a retry among them, becomes ready."""

    async def act(db: Acting) -> Done:
        return Done({"id": id, "state": await db.run(calls.run_now(id))})

    return await perform(request, caller.operating, act, answers=NewState, key=idempotency_key)
