"""Steps, events and workflows, as calls return them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeAlias
from uuid import UUID

Json: TypeAlias = Any


class WorkflowRef(dict[str, UUID]):
    """The answer of enqueue_workflow: the job of each node by its name, which workflow, and whether this call created it."""

    __slots__ = ("created", "id")

    def __init__(self, workflow_id: UUID, jobs: Mapping[str, UUID], *, created: bool = True) -> None:
        super().__init__(jobs)
        self.id = workflow_id
        self.created = created


@dataclass(frozen=True, slots=True)
class StoredStep:
    """A step as an earlier attempt has left it."""

    name: str
    kind: str
    state: str
    result: Any
    # A sleep whose time has come, a wait that is given up.
    is_over: bool
    version: str | None


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """What became of a job that another one waited for."""

    job_id: UUID
    # None when there is no such job.
    state: str | None
    result: Json
    error: Json


@dataclass(frozen=True, slots=True)
class StepInfo:
    """One row of the view `steps`."""

    job_id: UUID
    name: str
    tenant: str
    task: str
    kind: str
    state: str
    seq: int
    attempt: int
    tries: int
    started_at: datetime
    finished_at: datetime | None
    took: timedelta | None
    until: datetime | None
    result: Json
    error: Json
    version: str | None


@dataclass(frozen=True, slots=True)
class PartialCompletion:
    """One row of the view `partial_completions`: a job that stopped half-way."""

    job_id: UUID
    tenant: str
    lane: str
    task: str
    state: str
    attempt: int
    max_attempts: int
    done: int
    failed: int
    last_done: str | None
    last_failed: str | None
    last_error: Json
    run_at: datetime


@dataclass(frozen=True, slots=True)
class WorkflowInfo:
    """One row of the view `workflows`."""

    id: UUID
    tenant: str
    state: str
    jobs: int
    done: int
    live: int
    dead_letters: int
    stopped: int
    created_at: datetime
    finished_at: datetime | None


@dataclass(frozen=True, slots=True)
class WorkflowJob:
    """One job of a workflow, and those that it waits, or waited, for."""

    id: UUID
    node: str | None
    task: str
    state: str
    attempt: int
    max_attempts: int
    parent_id: UUID | None
    after: list[UUID] | None
    after_policy: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    note: str | None


@dataclass(frozen=True, slots=True)
class EventInfo:
    """One row of the view `events`."""

    tenant: str
    name: str
    payload: Json
    emitted_at: datetime
    expires_at: datetime
    # The job whose handler has emitted it.
    made_by: UUID | None = None
