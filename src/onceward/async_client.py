"""The client for asyncio code: the same methods as `Client`, over the same description of each call."""

from __future__ import annotations

import asyncio
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

    from onceward.app import Onceward
    from onceward.deliveries import AsyncDeliveryClient
    from onceward.pools import Lender
    from onceward.workflow import Workflow

T = TypeVar("T")
A_MINUTE = timedelta(minutes=1)


class AsyncClient(Requests):
    """For asyncio code."""

    def __init__(
        self,
        dsn: str | None = None,
        *,
        app: Onceward | None = None,
        tenant: str | None = None,
        pool_size: int = 4,
    ) -> None:
        super().__init__(dsn, app, tenant=tenant, pool_size=pool_size)
        self._lender: Lender | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close its connections.  Calls afterwards are refused, except on a connection of the caller's."""
        self._is_closed = True
        await self._drop()

    async def _drop(self) -> None:
        if self._lender is not None:
            lender, self._lender = self._lender, None
            await lender.close()

    async def run(self, call: Call[T], *, connection: Any = None) -> T:
        """Run any call, on the caller's connection or on one of our own."""
        if connection is not None:
            return await contrib.run_async(connection, call)
        tries = TRIES if call.repeatable else 1
        while True:
            tries -= 1
            lender = self._lender or await self._connections()
            try:
                conn = await lender.take(CONNECT_TIMEOUT)
                try:
                    if self._tenant is None:
                        return await contrib.run_async(conn, call)
                    async with conn.transaction():
                        await contrib.run_async(conn, calls.set_tenant(self._tenant))
                        return await contrib.run_async(conn, call)
                finally:
                    await lender.give_back(conn)
            except Exception as error:
                if is_pooler_trouble(error) and self._prepare_after is not None:
                    self._prepare_after = None
                    await self._drop()
                    tries += 1
                elif is_pool_closed(error) and self._lender is not lender:
                    # By somebody else, before anything was sent.
                    tries += 1
                elif is_pool_timeout(error):
                    from onceward.connecting import none_free, probe_async

                    # The pool does not say why; connecting once more does.
                    await probe_async(self._resolve(), self._connection_options())
                    raise none_free(CONNECT_TIMEOUT, self._pool_size) from error
                elif not tries or not is_connection_trouble(error):
                    if lost := connection_lost(error):
                        raise lost from error
                    raise

    async def enqueue(
        self,
        task: AnyTask,
        payload: Payload | None = None,
        *,
        connection: Any = None,
        **options: Unpack[EnqueueOptions],
    ) -> JobRef:
        """Enqueue one job; with `connection`, in the caller's transaction."""
        if self._is_simple:
            return await self.run(self._enqueue(task, payload, options), connection=connection)
        with self._traced(task, options) as given:
            call = self._enqueue(task, payload, given)
            await self._declare(connection)
            return await self.run(call, connection=connection)

    async def enqueue_many(
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
            await self._declare(connection)
            return await self.run(call, connection=connection)

    async def enqueue_workflow(
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
            await self._declare(connection)
            return await self.run(call, connection=connection)

    async def cancel_workflow(self, workflow_id: UUID, reason: str | None = None) -> int:
        """Cancel every job of it that has not ended; returns how many."""
        return await self.run(calls.cancel_workflow(workflow_id, reason))

    async def requeue_workflow(self, workflow_id: UUID) -> int:
        """Run its dead letters and cancelled jobs again, in order; returns how many."""
        return await self.run(calls.requeue_workflow(workflow_id))

    async def workflows(self, state: str | None = None, limit: int = 100) -> list[WorkflowInfo]:
        return await self.run(calls.workflows(state, limit))

    async def workflow_jobs(self, workflow_id: UUID, limit: int = 1000) -> list[WorkflowJob]:
        return await self.run(calls.workflow_jobs(workflow_id, limit))

    async def steps(self, job: AnyJob) -> list[StepInfo]:
        return await self.run(calls.steps(job_id_of(job)))

    async def partial_completions(self, task: str | None = None, limit: int = 100) -> list[PartialCompletion]:
        """Jobs that stopped half-way: some steps are done, and the job failed or was cancelled."""
        return await self.run(calls.partial_completions(task, limit))

    async def emit_event(
        self, name: str, payload: Json = None, *, keep: timedelta | None = None, connection: Any = None
    ) -> bool:
        """Let jobs that wait for the event go on.  False: there was one of that name already, and it stays."""
        text = None if payload is None else jsonsafe.dumps(payload, what="payload")
        tenant = None if self._tenant == "*" else self._tenant
        call = calls.emit_event(name, text, tenant=tenant, keep=keep, made_by=current_job.get())
        return await self.run(call, connection=connection)

    async def record_event(self, kind: str, *, connection: Any = None, **event: Unpack[AuditEvent]) -> int:
        """Write an entry into the audit log; with `connection`, in the caller's transaction.  Returns its number."""
        return await self.run(recording.record_event(kind, event, tenant=self._tenant), connection=connection)

    async def audit_of(self, job: AnyJob) -> list[AuditEntry]:
        """What the audit log has about a job, in order."""
        return await self.run(calls.audit_of(job_id_of(job)))

    async def audit_entries(self, wanted: AuditFilter | None = None) -> list[AuditEntry]:
        return await self.run(calls.audit_entries(wanted or AuditFilter()))

    async def wait(self, job: AnyJob, timeout: timedelta = A_MINUTE) -> Json:
        """The job's result.  Raises JobFailed when it ended without one, WaitTimeout when it goes on."""
        job_id = job_id_of(job)
        deadline = time.monotonic() + check_timeout(timeout)
        pause = 0.005
        while True:
            over, result = ended(job_id, await self.run(calls.outcome(job_id)))
            if over:
                return result
            if time.monotonic() + pause > deadline:
                raise gave_up(job_id, timeout)
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, 0.25)

    async def job(self, job: AnyJob) -> JobInfo:
        return found(job, await self.run(calls.job(job_id_of(job))))

    async def jobs(self, wanted: JobFilter | None = None) -> list[JobInfo]:
        return await self.run(calls.jobs(wanted or JobFilter()))

    async def attempts(self, job: AnyJob) -> list[AttemptInfo]:
        return await self.run(calls.attempts(job_id_of(job)))

    async def explain(self, job: AnyJob) -> list[Explanation]:
        """Why the job is not running, or what became of it.  The first is the answer, the others come next."""
        return await self.run(calls.explain(job_id_of(job)))

    async def lanes(self) -> list[LaneInfo]:
        return await self.run(calls.lanes())

    async def explain_lane(self, lane: str | None = None) -> list[LaneExplanation]:
        """One line for this lane, or for each."""
        return await self.run(calls.explain_lane(lane))

    async def cancel(self, job: AnyJob, reason: str | None = None) -> str:
        """`cancelled`, or `cancelling` when the job runs: its worker hears of it within two seconds."""
        return await self.run(calls.cancel(job_id_of(job), reason))

    async def requeue(
        self, job: AnyJob, *, payload: Mapping[str, Json] | None = None, run_at: datetime | None = None
    ) -> str:
        return await self.run(calls.requeue(job_id_of(job), payload=edited(payload), run_at=run_at))

    async def resolve(self, job: AnyJob, note: str, *, override: bool = False) -> None:
        await self.run(calls.resolve(job_id_of(job), note, override=override))

    async def run_now(self, job: AnyJob) -> str:
        return await self.run(calls.run_now(job_id_of(job)))

    async def add_lane(self, lane: str, *, max_running: int | None = None) -> bool:
        """Create a lane, or change how many of its jobs run at once over all workers (0: any number)."""
        return await self.run(calls.add_lane(lane, max_running=max_running))

    async def pause_lane(self, lane: str, reason: str | None = None) -> bool:
        return await self.run(calls.pause_lane(lane, reason))

    async def resume_lane(self, lane: str) -> bool:
        return await self.run(calls.resume_lane(lane))

    @cached_property
    def deliveries(self) -> AsyncDeliveryClient:
        """The ledger of outside effects: email, slack, telegram, webhook."""
        from onceward.deliveries import AsyncDeliveryClient

        return AsyncDeliveryClient(self, self._app.deliveries if self._app else None)

    async def _declare(self, connection: Any) -> None:
        if not self._lanes_declared and self._app is not None:
            created = await self.run(calls.declare_lanes(self._app.lanes), connection=connection)
            if self._app.limits:
                call = calls.declare_limits(list(self._app.limits.values()), only_new=True)
                created += await self.run(call, connection=connection)
            self._learn_of_lanes(created, in_callers_transaction=connection is not None)

    async def _connections(self) -> Lender:
        # The driver is loaded here, as in Client.
        from onceward.connecting import probe_async
        from onceward.pools import Lender, async_pool

        self._check_open()
        dsn, options = self._resolve(), self._connection_options()
        if not self._reached:
            await probe_async(dsn, options)
            self._reached = True
            self._check_open()
        # Another task may have been faster.
        if (lender := self._lender) is None:
            pool = async_pool(dsn, options, size=self._pool_size)
            lender = self._lender = Lender(pool)
            await pool.open()
        return lender
