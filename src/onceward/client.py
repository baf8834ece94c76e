"""Clients: two shells, sync and async, over one description of each call.

Given a `connection`, a call runs on the caller's own connection and transaction: psycopg, asyncpg, SQLAlchemy or
Django.  Rolling back leaves neither row nor job.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from onceward import calls, contrib, jsonsafe, recording
from onceward.answers import AnyJob, check_timeout, ended, found, gave_up, job_id_of
from onceward.calls import Call
from onceward.errors import (
    connection_lost,
    is_connection_trouble,
    is_pool_closed,
    is_pool_timeout,
    is_pooler_trouble,
)
from onceward.handling import current_job
from onceward.model import (
    AttemptInfo,
    Explanation,
    JobFilter,
    JobInfo,
    JobRef,
    Json,
    LaneExplanation,
    LaneInfo,
    PartialCompletion,
    StepInfo,
    WorkflowInfo,
    WorkflowJob,
    WorkflowRef,
)
from onceward.model_audit import AuditEntry, AuditFilter
from onceward.recording import AuditEvent
from onceward.requests import (
    CONNECT_TIMEOUT,
    TRIES,
    AnyTask,
    EnqueueOptions,
    Payload,
    Requests,
    edited,
)

if TYPE_CHECKING:
    from uuid import UUID

    from psycopg_pool import ConnectionPool

    from onceward.app import Onceward
    from onceward.deliveries import DeliveryClient
    from onceward.wire import WiredConnection
    from onceward.workflow import Workflow

T = TypeVar("T")
A_MINUTE = timedelta(minutes=1)


class Client(Requests):
    """For synchronous code.  Threads may share one."""

    def __init__(
        self,
        dsn: str | None = None,
        *,
        app: Onceward | None = None,
        tenant: str | None = None,
        pool_size: int = 4,
    ) -> None:
        super().__init__(dsn, app, tenant=tenant, pool_size=pool_size)
        self._pool: ConnectionPool[WiredConnection] | None = None
        self._opening = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close its connections.  Calls afterwards are refused, except on a connection of the caller's."""
        with self._opening:
            self._is_closed = True
        self._drop()

    def _drop(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()

    def run(self, call: Call[T], *, connection: Any = None) -> T:
        """Run any call, on the caller's connection or on one of our own."""
        if connection is not None:
            return contrib.run(connection, call)
        tries = TRIES if call.repeatable else 1
        while True:
            tries -= 1
            pool = self._connections()
            try:
                # Not pool.connection(), which also commits: nothing is open outside of our own transaction.
                conn = pool.getconn(CONNECT_TIMEOUT)
                try:
                    if self._tenant is None:
                        return contrib.run(conn, call)
                    with conn.transaction():
                        contrib.run(conn, calls.set_tenant(self._tenant))
                        return contrib.run(conn, call)
                finally:
                    pool.putconn(conn)
            except Exception as error:
                if is_pooler_trouble(error) and self._prepare_after is not None:
                    self._prepare_after = None
                    self._drop()
                    tries += 1
                elif is_pool_closed(error) and self._pool is not pool:
                    # By somebody else, before anything was sent.
                    tries += 1
                elif is_pool_timeout(error):
                    from onceward.connecting import none_free, probe

                    # The pool does not say why; connecting once more does.
                    probe(self._resolve(), self._connection_options())
                    raise none_free(CONNECT_TIMEOUT, self._pool_size) from error
                elif not tries or not is_connection_trouble(error):
                    if lost := connection_lost(error):
                        raise lost from error
                    raise

    def enqueue(
        self,
        task: AnyTask,
        payload: Payload | None = None,
        *,
        connection: Any = None,
        **options: Unpack[EnqueueOptions],
    ) -> JobRef:
        """Enqueue one job; with `connection`, in the caller's transaction."""
        if self._is_simple:
            return self.run(self._enqueue(task, payload, options), connection=connection)
        with self._traced(task, options) as given:
            call = self._enqueue(task, payload, given)
            self._declare(connection)
            return self.run(call, connection=connection)

    def enqueue_many(
        self,
        task: AnyTask,
        payloads: Iterable[Payload],
        *,
        keys: Sequence[str | None] | None = None,
        concurrency_keys: Sequence[str | None] | None = None,
        connection: Any = None,
        **options: Unpack[EnqueueOptions],
    ) -> list[JobRef]:
        """One job per payload, all with the same options, in one statement.

        `keys` and `concurrency_keys` are one per payload, None for a job without.
        """
        listed = list(payloads)
        with self._traced(task, options, count=len(listed)) as given:
            call = self._enqueue_many(task, listed, keys, given, concurrency_keys)
            self._declare(connection)
            return self.run(call, connection=connection)

    def enqueue_workflow(
        self,
        workflow: Workflow,
        *,
        key: str | None = None,
        key_window: str | timedelta | None = None,
        connection: Any = None,
    ) -> WorkflowRef:
        """All jobs of the workflow, or none; returns their ids by name, with the workflow's own as `id`.

        The same `key` within `key_window` ("forever", or a duration) gives the same workflow, and `created` is False.
        """
        with self._traced("workflow", {}, count=len(workflow.nodes)) as traced:
            call = self._enqueue_workflow(workflow, key, key_window, traced.get("headers"))
            self._declare(connection)
            return self.run(call, connection=connection)

    def cancel_workflow(self, workflow_id: UUID, reason: str | None = None) -> int:
        """Cancel every job of it that has not ended; returns how many."""
        return self.run(calls.cancel_workflow(workflow_id, reason))

    def requeue_workflow(self, workflow_id: UUID) -> int:
        """Run its dead letters and cancelled jobs again, in order; returns how many."""
        return self.run(calls.requeue_workflow(workflow_id))

    def workflows(self, state: str | None = None, limit: int = 100) -> list[WorkflowInfo]:
        return self.run(calls.workflows(state, limit))

    def workflow_jobs(self, workflow_id: UUID, limit: int = 1000) -> list[WorkflowJob]:
        return self.run(calls.workflow_jobs(workflow_id, limit))

    def steps(self, job: AnyJob) -> list[StepInfo]:
        return self.run(calls.steps(job_id_of(job)))

    def partial_completions(self, task: str | None = None, limit: int = 100) -> list[PartialCompletion]:
        """Jobs that stopped half-way: some steps are done, and the job failed or was cancelled."""
        return self.run(calls.partial_completions(task, limit))

    def emit_event(
        self, name: str, payload: Json = None, *, keep: timedelta | None = None, connection: Any = None
    ) -> bool:
        """Let jobs that wait for the event go on.  False: there was one of that name already, and it stays."""
        text = None if payload is None else jsonsafe.dumps(payload, what="payload")
        tenant = None if self._tenant == "*" else self._tenant
        call = calls.emit_event(name, text, tenant=tenant, keep=keep, made_by=current_job.get())
        return self.run(call, connection=connection)

    def record_event(self, kind: str, *, connection: Any = None, **event: Unpack[AuditEvent]) -> int:
        """Write an entry into the audit log; with `connection`, in the caller's transaction.  Returns its number."""
        return self.run(recording.record_event(kind, event, tenant=self._tenant), connection=connection)

    def audit_of(self, job: AnyJob) -> list[AuditEntry]:
        """What the audit log has about a job, in order."""
        return self.run(calls.audit_of(job_id_of(job)))

    def audit_entries(self, wanted: AuditFilter | None = None) -> list[AuditEntry]:
        return self.run(calls.audit_entries(wanted or AuditFilter()))

    def wait(self, job: AnyJob, timeout: timedelta = A_MINUTE) -> Json:
        """The job's result.  Raises JobFailed when it ended without one, WaitTimeout when it goes on."""
        job_id = job_id_of(job)
        deadline = time.monotonic() + check_timeout(timeout)
        pause = 0.005
        while True:
            over, result = ended(job_id, self.run(calls.outcome(job_id)))
            if over:
                return result
            if time.monotonic() + pause > deadline:
                raise gave_up(job_id, timeout)
            time.sleep(pause)
            pause = min(pause * 1.5, 0.25)

    def job(self, job: AnyJob) -> JobInfo:
        return found(job, self.run(calls.job(job_id_of(job))))

    def jobs(self, wanted: JobFilter | None = None) -> list[JobInfo]:
        return self.run(calls.jobs(wanted or JobFilter()))

    def attempts(self, job: AnyJob) -> list[AttemptInfo]:
        return self.run(calls.attempts(job_id_of(job)))

    def explain(self, job: AnyJob) -> list[Explanation]:
        """Why the job is not running, or what became of it.  The first is the answer, the others come next."""
        return self.run(calls.explain(job_id_of(job)))

    def lanes(self) -> list[LaneInfo]:
        return self.run(calls.lanes())

    def explain_lane(self, lane: str | None = None) -> list[LaneExplanation]:
        """One line for this lane, or for each."""
        return self.run(calls.explain_lane(lane))

    def cancel(self, job: AnyJob, reason: str | None = None) -> str:
        """`cancelled`, or `cancelling` when the job runs: its worker hears of it within two seconds."""
        return self.run(calls.cancel(job_id_of(job), reason))

    def requeue(
        self, job: AnyJob, *, payload: Mapping[str, Json] | None = None, run_at: datetime | None = None
    ) -> str:
        return self.run(calls.requeue(job_id_of(job), payload=edited(payload), run_at=run_at))

    def resolve(self, job: AnyJob, note: str, *, override: bool = False) -> None:
        self.run(calls.resolve(job_id_of(job), note, override=override))

    def run_now(self, job: AnyJob) -> str:
        return self.run(calls.run_now(job_id_of(job)))

    def add_lane(self, lane: str, *, max_running: int | None = None) -> bool:
        """Create a lane, or change how many of its jobs run at once over all workers (0: any number)."""
        return self.run(calls.add_lane(lane, max_running=max_running))

    def pause_lane(self, lane: str, reason: str | None = None) -> bool:
        return self.run(calls.pause_lane(lane, reason))

    def resume_lane(self, lane: str) -> bool:
        return self.run(calls.resume_lane(lane))

    @cached_property
    def deliveries(self) -> DeliveryClient:
        """The ledger of outside effects: email, slack, telegram, webhook."""
        from onceward.deliveries import DeliveryClient

        return DeliveryClient(self, self._app.deliveries if self._app else None)

    def _declare(self, connection: Any) -> None:
        if not self._lanes_declared and self._app is not None:
            created = self.run(calls.declare_lanes(self._app.lanes), connection=connection)
            if self._app.limits:
                call = calls.declare_limits(list(self._app.limits.values()), only_new=True)
                created += self.run(call, connection=connection)
            self._learn_of_lanes(created, in_callers_transaction=connection is not None)

    def _connections(self) -> ConnectionPool[WiredConnection]:
        pool = self._pool
        if pool is None:
            with self._opening:
                self._check_open()
                pool = self._pool = self._pool or self._open()
        return pool

    def _open(self) -> ConnectionPool[WiredConnection]:
        # The driver takes longer to load than all of ours, and a caller who brings a connection may have another one.
        from onceward.connecting import probe
        from onceward.pools import open_pool

        dsn, options = self._resolve(), self._connection_options()
        if not self._reached:
            probe(dsn, options)
            self._reached = True
        return open_pool(dsn, options, size=self._pool_size)
