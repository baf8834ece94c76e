"""Calls about jobs that belong together, their steps, and the events that they wait for."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from onceward import jsonsafe
from onceward.calls.base import Call, rows_of, scalar
from onceward.model import EventInfo, PartialCompletion, StepInfo, WorkflowInfo, WorkflowJob, WorkflowRef


def enqueue_workflow(
    nodes: Sequence[dict[str, Any]],
    *,
    tenant: str | None = None,
    key: str | None = None,
    key_window: str | None = None,
) -> Call[WorkflowRef]:
    """Nodes as onceward.enqueue_workflow takes them; payloads are JSON text that jsonsafe has checked."""
    texts = []
    for node in nodes:
        rest = jsonsafe.dumps({k: v for k, v in node.items() if k != "payload"}, what="node")
        texts.append(f'{{"payload": {node["payload"]}{"" if rest == "{}" else ","}{rest[1:]}')
    return Call(
        "select node, job_id, workflow_id, created from onceward.enqueue_workflow("
        "%(nodes)s::jsonb, %(tenant)s::text, %(key)s::text, coalesce(%(key_window)s::text, 'forever'))",
        {"nodes": "[" + ",".join(texts) + "]", "tenant": tenant, "key": key, "key_window": key_window},
        _workflow_ref,
        repeatable=key is not None,
    )


def _workflow_ref(rows: Sequence[Sequence[Any]]) -> WorkflowRef:
    # A job whose partition has been dropped since has no id any more.
    jobs = {row[0]: row[1] for row in rows if row[1] is not None}
    return WorkflowRef(rows[0][2], jobs, created=rows[0][3])


def cancel_workflow(workflow_id: UUID, reason: str | None = None) -> Call[int]:
    return Call(
        "select onceward.cancel_workflow(%(workflow_id)s::uuid, %(reason)s::text)",
        {"workflow_id": workflow_id, "reason": jsonsafe.printable(reason) if reason else None},
        scalar,
        repeatable=True,
    )


def requeue_workflow(workflow_id: UUID) -> Call[int]:
    return Call(
        "select onceward.requeue_workflow(%(workflow_id)s::uuid)",
        {"workflow_id": workflow_id},
        scalar,
        repeatable=True,
    )


_WORKFLOW = "id, tenant, state, jobs, done, live, dead_letters, stopped, created_at, finished_at"
_OF_TENANT = "(%(tenant)s::text is null or tenant = %(tenant)s::text)"
_IN_STATE = "(%(state)s::text is null or state = %(state)s::text)"


def workflows(
    state: str | None = None, limit: int = 100, *, tenant: str | None = None
) -> Call[list[WorkflowInfo]]:
    return Call(
        f"select {_WORKFLOW} from onceward.workflows where {_IN_STATE} and {_OF_TENANT} "
        "order by id desc limit %(limit)s::int",
        {"state": state, "limit": limit, "tenant": tenant},
        rows_of(WorkflowInfo),
        repeatable=True,
    )


def workflow(workflow_id: UUID, *, tenant: str | None = None) -> Call[list[WorkflowInfo]]:
    """One row per tenant whose jobs name this workflow: an id says nothing about the tenant."""
    return Call(
        f"select {_WORKFLOW} from onceward.workflows where id = %(workflow_id)s::uuid and {_OF_TENANT} order by tenant",
        {"workflow_id": workflow_id, "tenant": tenant},
        rows_of(WorkflowInfo),
        repeatable=True,
    )


def count_workflows(state: str | None = None, *, tenant: str | None = None) -> Call[int]:
    return Call(
        f"select count(*) from onceward.workflows where {_IN_STATE} and {_OF_TENANT}",
        {"state": state, "tenant": tenant},
        scalar,
        repeatable=True,
    )


def workflow_jobs(
    workflow_id: UUID, limit: int = 1000, *, tenant: str | None = None
) -> Call[list[WorkflowJob]]:
    """The first jobs of the workflow; they were enqueued in this order.

    By their ids, because the view `jobs` has no index by workflow.
    """
    return Call(
        "select id, node, task, state, attempt, max_attempts, parent_id, after, after_policy, created_at, started_at, "
        "finished_at, note from onceward.jobs where id = any (array("
        f"select job_id from onceward.workflow_members where workflow_id = %(workflow_id)s::uuid and {_OF_TENANT} "
        "order by job_id limit %(limit)s::int)) order by id",
        {"workflow_id": workflow_id, "limit": limit, "tenant": tenant},
        rows_of(WorkflowJob),
        repeatable=True,
    )


def children(job_id: UUID, workflow_id: UUID) -> Call[dict[str, int]]:
    """How many jobs this one has spawned, by state."""
    return Call(
        "select state, count(*) from onceward.jobs where parent_id = %(job_id)s::uuid and id = any (array("
        "select job_id from onceward.workflow_members where workflow_id = %(workflow_id)s::uuid)) group by state",
        {"job_id": job_id, "workflow_id": workflow_id},
        lambda rows: {row[0]: row[1] for row in rows},
        repeatable=True,
    )


def steps(job_id: UUID) -> Call[list[StepInfo]]:
    return Call(
        "select job_id, name, tenant, task, kind, state, seq, attempt, tries, started_at, finished_at, took, until, "
        "result, error, version from onceward.steps where job_id = %(job_id)s::uuid order by seq, name",
        {"job_id": job_id},
        rows_of(StepInfo),
        repeatable=True,
    )


def partial_completions(
    task: str | None = None, limit: int = 100, *, tenant: str | None = None
) -> Call[list[PartialCompletion]]:
    return Call(
        "select job_id, tenant, lane, task, state, attempt, max_attempts, done, failed, last_done, last_failed, "
        "last_error, run_at from onceward.partial_completions "
        f"where (%(task)s::text is null or task = %(task)s::text) and {_OF_TENANT} "
        "order by job_id desc limit %(limit)s::int",
        {"task": task, "limit": limit, "tenant": tenant},
        rows_of(PartialCompletion),
        repeatable=True,
    )


def emit_event(
    name: str,
    payload: str | None = None,
    *,
    tenant: str | None = None,
    keep: timedelta | None = None,
    made_by: str | None = None,
) -> Call[bool]:
    """`payload` is JSON text that jsonsafe has checked.  False: there was one already, and it stays."""
    return Call(
        "select onceward.emit_event(%(name)s::text, %(payload)s::jsonb, %(tenant)s::text, "
        "coalesce(%(keep)s::interval, '30 days'), %(made_by)s::uuid)",
        {"name": name, "payload": payload, "tenant": tenant, "keep": keep, "made_by": made_by},
        scalar,
    )


def events_of(job_id: UUID, limit: int) -> Call[list[EventInfo]]:
    """Those that the handler of this job has emitted, in order."""
    return Call(
        "select tenant, name, payload, emitted_at, expires_at, made_by from onceward.events "
        "where made_by = %(job_id)s::uuid order by emitted_at, name limit %(limit)s::int",
        {"job_id": job_id, "limit": limit},
        rows_of(EventInfo),
        repeatable=True,
    )


def events(
    prefix: str | None = None, limit: int = 100, *, tenant: str | None = None
) -> Call[list[EventInfo]]:
    return Call(
        "select tenant, name, payload, emitted_at, expires_at, made_by from onceward.events "
        f"where (%(prefix)s::text is null or starts_with(name, %(prefix)s::text)) and {_OF_TENANT} "
        "order by emitted_at desc, name limit %(limit)s::int",
        {"prefix": prefix, "limit": limit, "tenant": tenant},
        rows_of(EventInfo),
        repeatable=True,
    )
