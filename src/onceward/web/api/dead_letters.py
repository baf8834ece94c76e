"""Dead letters: grouped by what went wrong, and dealt with together."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request

from onceward import calls
from onceward.model import DeadLetterGroup, DeadLetterInfo, JobFilter
from onceward.web import bulk
from onceward.web.api.callers import Operator, Reader
from onceward.web.api.fields import (
    Flag,
    LaneName,
    Limit,
    Name,
    Note,
    Sent,
    Tenant,
    Text,
    When,
    Whole,
    answer_of,
)
from onceward.web.api.problems import Field as Wrong
from onceward.web.api.problems import Refused
from onceward.web.context import web_of

router = APIRouter()
Group = answer_of(
    DeadLetterGroup,
    "DeadLetterGroup",
    "Dead letters of one fingerprint; id, type and message are those of the latest.",
)
Letter = answer_of(DeadLetterInfo, "DeadLetter", "A dead letter without its payload.", without=("payload",))


class Groups(BaseModel):
    """The largest first."""

    groups: list[Group]  # type: ignore[valid-type] # made by answer_of


class Letters(BaseModel):
    """The latest first."""

    dead_letters: list[Letter]  # type: ignore[valid-type] # made by answer_of
    count: int = Field(description="How many match, of which these are some.")


class Chosen(Sent):
    """Which dead letters: those that match everything that is given.  All of them has to be said."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"task": "send_receipt", "fingerprint": "a1b2c3"}]}
    )
    lane: LaneName | None = None
    task: Name | None = None
    tenant: Tenant | None = None
    key: Text | None = None
    error: Text | None = Field(None, description="Part of the message.")
    fingerprint: Text | None = None
    since: When | None = None
    until: When | None = None
    everything: Flag = Field(default=False, description="Needed when nothing else is given.")
    most: Annotated[Whole, Field(ge=1, le=bulk.MOST)] = bulk.MOST

    def filter(self) -> JobFilter:
        """Raises Refused."""
        given = self.model_dump(exclude={"everything", "most", "per_minute", "note"}, exclude_none=True)
        if not given and not self.everything:
            raise Refused(
                422,
                "invalid-request",
                "Nothing says which dead letters are meant.",
                hint="Name a task, a fingerprint or another filter, or say everything: true.",
                errors=[
                    Wrong("everything", "body", "must be true when there is no filter", "Name a filter.")
                ],
            )
        return JobFilter(**given, limit=self.most)


class RequeueMany(Chosen):
    """Which, and how fast."""

    per_minute: Annotated[Whole, Field(ge=1, le=100_000)] | None = Field(
        None, description="Spread over time: so many a minute."
    )


class ResolveMany(Chosen):
    """Which, and how they were settled."""

    note: Note


class Together(BaseModel):
    """How many."""

    done: int
    gone: int = Field(description="Somebody else had dealt with them meanwhile.")
    failed: int
    reasons: list[str] = Field(description="Why, for the first few that failed.")


@router.get("/dead-letters/groups", summary="Dead letters by what went wrong", response_model=Groups)
async def group_dead_letters(
    request: Request,
    caller: Reader,
    lane: LaneName | None = None,
    task: Name | None = None,
    tenant: Tenant | None = None,
    limit: Limit = 50,
) -> Any:
    """The largest group first."""
    wanted = JobFilter(lane=lane, task=task, tenant=tenant, limit=limit)
    return {"groups": await web_of(request).database.run(caller.reading, calls.dead_letter_groups(wanted))}


@router.get("/dead-letters", summary="List dead letters", response_model=Letters)
async def list_dead_letters(
    request: Request,
    caller: Reader,
    lane: LaneName | None = None,
    task: Name | None = None,
    tenant: Tenant | None = None,
    key: Text | None = None,
    error: Text | None = None,
    fingerprint: Text | None = None,
    since: When | None = None,
    until: When | None = None,
    limit: Limit = 50,
) -> Any:
    """The latest first."""
    wanted = JobFilter(
        lane=lane, task=task, tenant=tenant, key=key, error=error, fingerprint=fingerprint, since=since, until=until,
        limit=limit,
    )  # fmt: skip
    async with web_of(request).database.acting(caller.reading) as db:
        return {
            "dead_letters": await db.run(calls.dead_letters(wanted)),
            "count": await db.run(calls.count_dead_letters(wanted)),
        }


async def _ids(request: Request, caller: Operator, body: Chosen) -> list[UUID]:
    """Oldest first: the order in which they would have run."""
    return await web_of(request).database.run(caller.reading, calls.dead_letter_ids(body.filter()))


def _told(outcome: bulk.Outcome) -> dict[str, Any]:
    return {
        "done": outcome.done,
        "gone": outcome.gone,
        "failed": outcome.failed,
        "reasons": list(dict.fromkeys(outcome.reasons))[:10],
    }


@router.post("/dead-letters/requeue", summary="Run dead letters again", response_model=Together)
async def requeue_dead_letters(request: Request, caller: Operator, body: RequeueMany) -> Any:
    """Oldest first. Safe to repeat: one that was requeued is no dead letter any more."""
    ids = await _ids(request, caller, body)
    now = await web_of(request).database.run(caller.reading, calls.now())

    def requeue(position: int, job: UUID) -> calls.Call[str]:
        spread = body.per_minute and position
        when = now + timedelta(minutes=position / body.per_minute) if spread and body.per_minute else None
        return calls.requeue(job, run_at=when)

    return _told(await bulk.act_on_each(web_of(request).database, caller.operating, ids, requeue))


@router.post("/dead-letters/resolve", summary="Settle dead letters", response_model=Together)
async def resolve_dead_letters(request: Request, caller: Operator, body: ResolveMany) -> Any:
    """Those whose check does not pass stay, and are counted as failed."""
    ids = await _ids(request, caller, body)
    done = await bulk.act_on_each(
        web_of(request).database, caller.operating, ids, lambda _, job: calls.resolve(job, body.note)
    )
    return _told(done)
