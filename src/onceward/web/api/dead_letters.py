"""Dead letters: grouped by what went wrong, and dealt with together."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request

from onceward import calls
from onceward.model import DeadLetterGroup, DeadLetterInfo, JobFilter
from onceward.model_care import AssignmentInfo, CommentInfo
from onceward.web import bulk
from onceward.web.api.callers import Operator, Reader
from onceward.web.api.fields import (
    Changed,
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
    next: str | None = Field(description="Pass it as `before` for what follows; null at the end.")


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
    before: Annotated[
        str | None, Query(pattern=r"^[0-9]{16}-[0-9a-f]{32}$", description="`next` of the page before.")
    ] = None,
    limit: Limit = 50,
) -> Any:
    """The latest first."""
    wanted = JobFilter(
        lane=lane, task=task, tenant=tenant, key=key, error=error, fingerprint=fingerprint, since=since, until=until,
        limit=limit,
    )  # fmt: skip
    async with web_of(request).database.acting(caller.reading) as db:
        found = await db.run(calls.dead_letters(wanted, before=_place(before)))
        count = await db.run(calls.count_dead_letters(wanted))
    following = _cursor(found[-1]) if len(found) == limit else None
    return {"dead_letters": found, "count": count, "next": following}


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _cursor(letter: DeadLetterInfo) -> str:
    """Its place in the list, which it keeps when it is gone from there: microseconds and id."""
    return f"{(letter.dead_at - _EPOCH) // timedelta(microseconds=1):016}-{letter.id.hex}"


def _place(cursor: str | None) -> tuple[datetime, UUID] | None:
    if cursor is None:
        return None
    at, _, last = cursor.partition("-")
    return _EPOCH + timedelta(microseconds=int(at)), UUID(last)


# ---------------------------------------------------------------- looking after them


class Failure(Sent):
    """A kind of failure: a task, and the fingerprint of its dead letters."""

    task: Name
    fingerprint: Text | None = None


class Assigning(Failure):
    """Who looks after them from now on; null for nobody."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"task": "send_receipt", "fingerprint": "a1b2c3", "to": "ana"}]}
    )
    to: (
        Annotated[
            str,
            Field(
                strict=True,
                min_length=1,
                max_length=200,
                pattern=r"^[^\x00-\x1f\x7f]*[^\s\x00-\x1f\x7f][^\x00-\x1f\x7f]*$",
            ),
        ]
        | None
    )


class Commenting(Failure):
    """What there is to say, about all of them or one."""

    comment: Annotated[
        str, Field(strict=True, min_length=1, max_length=10_000, pattern=r"^[^\x00]*[^\x00\s][^\x00]*$")
    ]
    job: UUID | None = None


class Said(BaseModel):
    """The comment."""

    id: UUID


Assignment = answer_of(
    AssignmentInfo, "Assignment", "Who looks after a kind of failure; without a tenant, of all of them."
)
Comment = answer_of(CommentInfo, "Comment", "What somebody has said about a kind of failure.")


class Care(BaseModel):
    """Who looks after it, and what was said, in order."""

    assignments: list[Assignment]  # type: ignore[valid-type] # made by answer_of
    comments: list[Comment]  # type: ignore[valid-type] # made by answer_of


@router.get("/dead-letters/care", summary="Who looks after dead letters", response_model=Care)
async def get_care(request: Request, caller: Reader, task: Name, fingerprint: Text | None = None) -> Any:
    """Those of one task with one fingerprint; without one, of failures that have none."""
    async with web_of(request).database.acting(caller.reading) as db:
        return {
            "assignments": await db.run(calls.assignment_of(task, fingerprint)),
            "comments": await db.run(calls.comments_of(task, fingerprint)),
        }


@router.post("/dead-letters/assign", summary="Say who looks after dead letters", response_model=Changed)
async def assign_dead_letters(request: Request, caller: Operator, body: Assigning) -> Any:
    """Those of a task with this fingerprint, also those that come later."""
    call = calls.assign_dead_letters(body.task, body.fingerprint, body.to)
    return {"changed": await web_of(request).database.run(caller.operating, call, writes=True)}


@router.post("/dead-letters/comment", summary="Comment on dead letters", response_model=Said)
async def comment_dead_letters(request: Request, caller: Operator, body: Commenting) -> Any:
    """Kept with the kind of failure, and in the audit log."""
    call = calls.comment_dead_letters(body.task, body.fingerprint, body.comment, body.job)
    return {"id": await web_of(request).database.run(caller.operating, call, writes=True)}


# ---------------------------------------------------------------- dealing with them


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
