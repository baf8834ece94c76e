"""What the calls take and return: plain values without behaviour."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple, TypeAlias
from uuid import UUID

from onceward.model_deliveries import BegunDelivery, Delivery, DeliveryFilter, DeliveryInfo
from onceward.model_workflows import (
    EventInfo,
    JobOutcome,
    PartialCompletion,
    StepInfo,
    StoredStep,
    WorkflowInfo,
    WorkflowJob,
    WorkflowRef,
)

__all__ = [
    "FINISHED", "STATES", "Answer", "AttemptInfo", "BegunDelivery", "DeadLetterGroup", "DeadLetterInfo", "Delivery",
    "DeliveryFilter", "DeliveryInfo", "EventInfo", "Explanation", "Heartbeat", "JobFilter", "JobInfo", "JobOutcome",
    "JobRef", "Json", "LaneExplanation", "LaneInfo", "Options", "PartialCompletion", "PayloadEdit", "Promoted",
    "Retry", "Sample", "State", "StepInfo", "StoredStep", "WorkerInfo", "WorkflowInfo", "WorkflowJob",
    "WorkflowRef",
]  # fmt: skip

Json: TypeAlias = Any
State: TypeAlias = Literal[
    "scheduled", "ready", "running", "blocked", "done", "cancelled", "dead_letter", "resolved"
]
FINISHED: frozenset[str] = frozenset({"done", "cancelled", "resolved"})
STATES: tuple[str, ...] = (
    "scheduled",
    "ready",
    "running",
    "blocked",
    "done",
    "cancelled",
    "dead_letter",
    "resolved",
)


Answer: TypeAlias = Literal["accepted", "existing", "deferred"]


class JobRef(NamedTuple):
    """The answer of enqueue: which job, and whether this call created it."""

    id: UUID
    created: bool = True
    # `deferred`: more waits than may, and the job was scheduled for `until`.  A rejected one raises EnqueueRejected.
    answer: Answer = "accepted"
    until: datetime | None = None
    # What is above its bound, also when the job was accepted.
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Retry:
    """How failed attempts are repeated.  Stored with the job, so that every worker applies the same.

    Either `waits` (the last one repeats) or exponential: base × factor ^ (attempt - 1), at most cap, drawn from
    zero to that when jitter is on.
    """

    waits: Sequence[timedelta] | None = None
    base: timedelta = timedelta(seconds=5)
    factor: float = 3.0
    cap: timedelta = timedelta(hours=1)
    jitter: bool | None = None
    max_snoozes: int | None = None

    def to_json(self) -> dict[str, Json]:
        policy: dict[str, Json] = {}
        if self.waits is not None:
            policy["waits"] = [wait.total_seconds() for wait in self.waits]
        else:
            policy |= {
                "base": self.base.total_seconds(),
                "factor": self.factor,
                "cap": self.cap.total_seconds(),
            }
        if self.jitter is not None:
            policy["jitter"] = self.jitter
        if self.max_snoozes is not None:
            policy["max_snoozes"] = self.max_snoozes
        return policy


@dataclass(frozen=True, slots=True)
class Options:
    """Everything about a job but its task and payload."""

    lane: str = "default"
    priority: int = 0
    run_at: datetime | None = None
    # Counted by the database's clock, from now and from the start.
    delay: timedelta | None = None
    expires_at: datetime | None = None
    expires_in: timedelta | None = None
    timeout: timedelta | None = None
    key: str | None = None
    key_window: str = "live"
    concurrency_key: str | None = None
    concurrency_limit: int = 1
    max_attempts: int = 8
    retry: Retry | None = None
    tenant: str | None = None
    headers: Mapping[str, str] | None = None
    # Jobs that it waits for, and what happens when one of them fails: fail, ignore or compensate.
    after: Sequence[UUID] | None = None
    after_policy: str = "fail"
    workflow_id: UUID | None = None


def with_options(base: Options, **given: Any) -> Options:
    """The options with those that were given; None means not given."""
    return replace(base, **{name: value for name, value in given.items() if value is not None})


@dataclass(frozen=True, slots=True)
class JobInfo:
    """One row of the view `jobs`."""

    id: UUID
    tenant: str
    lane: str
    task: str
    state: str
    priority: int
    attempt: int
    max_attempts: int
    snoozes: int
    epoch: int
    created_at: datetime
    run_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    expires_at: datetime | None
    timeout: timedelta | None
    worker_id: UUID | None
    payload: Json
    result: Json
    progress: Json
    key: str | None
    concurrency_key: str | None
    concurrency_limit: int | None
    retry: Json
    headers: Json
    last_error: Json
    cancel_at: datetime | None
    note: str | None
    # The id of its first job, unless somebody gave another.
    workflow_id: UUID
    parent_id: UUID | None
    node: str | None
    after: list[UUID] | None
    after_policy: str | None
    # What it waits for beside its time and its key: `jobs`, or `event:<name>`.
    awaits: str | None
    # The limits that it uses: [{"limit": …, "key": …, "weight": …}].
    uses: Json = None


@dataclass(frozen=True, slots=True)
class AttemptInfo:
    """One row of the view `attempts`."""

    job_id: UUID
    epoch: int
    tenant: str
    task: str
    attempt: int
    worker_id: UUID | None
    started_at: datetime
    ended_at: datetime | None
    outcome: str
    error_type: str | None
    category: str | None
    message: str | None
    fingerprint: str | None
    traceback: str | None
    retry_at: datetime | None


@dataclass(frozen=True, slots=True)
class Explanation:
    """One reason why a job does not run, or what became of it.  The first of a list is the answer."""

    reason: str
    sentence: str
    detail: Json
    until: datetime | None
    next_step: str | None


@dataclass(frozen=True, slots=True)
class LaneExplanation:
    """A lane in one line."""

    lane: str
    reason: str
    sentence: str
    detail: Json
    until: datetime | None
    next_step: str | None


class Sample(NamedTuple):
    """One value of a metric of the database."""

    name: str
    labels: dict[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class LaneInfo:
    """One row of the view `lanes`."""

    name: str
    paused: bool
    paused_at: datetime | None
    paused_by: str | None
    pause_reason: str | None
    ready: int
    running: int
    scheduled: int
    blocked: int
    dead_letter: int
    oldest_ready_at: datetime | None
    max_payload_bytes: int
    max_result_bytes: int
    created_at: datetime
    # Whether tenants take turns, and how long a job may be passed over for higher priorities.
    fair: bool
    max_wait: timedelta | None
    # What of the lane goes into the audit log: "ends" of jobs, or "all" transitions.
    audit: str = "ends"
    # How many of its jobs run at once, over all workers; None: as many as workers take.
    max_running: int | None = None


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """One row of the view `workers`."""

    id: UUID
    name: str
    host: str
    pid: int | None
    lanes: list[str]
    tasks: list[str]
    version: str | None
    concurrency: int
    lease: timedelta
    started_at: datetime
    heartbeat_at: datetime
    expires_at: datetime
    retired_at: datetime | None
    retired_why: str | None
    state: str
    running: int


@dataclass(frozen=True, slots=True)
class DeadLetterInfo:
    """One row of the view `dead_letters`."""

    id: UUID
    tenant: str
    lane: str
    task: str
    priority: int
    attempt: int
    max_attempts: int
    created_at: datetime
    dead_at: datetime
    payload: Json
    key: str | None
    error_type: str | None
    category: str | None
    message: str | None
    fingerprint: str | None


@dataclass(frozen=True, slots=True)
class DeadLetterGroup:
    """Dead letters of one fingerprint; id, error_type and message are those of the latest."""

    fingerprint: str | None
    task: str
    count: int
    first_dead_at: datetime
    last_dead_at: datetime
    id: UUID
    error_type: str | None
    message: str | None


@dataclass(frozen=True, slots=True)
class PayloadEdit:
    """One row of the view `payload_edits`."""

    job_id: UUID
    edited_at: datetime
    tenant: str
    edited_by: str
    payload_before: Json


@dataclass(frozen=True, slots=True)
class Promoted:
    promoted: int
    expired: int
    next_run_at: datetime | None
    next_in: timedelta | None
    # There is more to do at once.
    more: bool


@dataclass(frozen=True, slots=True)
class Heartbeat:
    expires_at: datetime
    cancel_job_ids: list[UUID]


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Which jobs a list or a bulk action means.  Empty means all."""

    states: Sequence[str] = ()
    lane: str | None = None
    task: str | None = None
    tenant: str | None = None
    key: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    error: str | None = None
    fingerprint: str | None = None
    limit: int = 50
    before: UUID | None = field(default=None, kw_only=True)


DELIVERY_KINDS: tuple[str, ...] = ("email", "slack", "telegram", "webhook")
DELIVERY_STATES: tuple[str, ...] = ("pending", "sending", "sent", "uncertain", "abandoned", "cancelled")
# Why nobody sends one that waits, in the words of explain: more than its turn or its next try.
DELIVERY_WAITS = frozenset({"snoozed", "lane_paused", "no_worker", "no_worker_for_task", "waits_for_limit"})
