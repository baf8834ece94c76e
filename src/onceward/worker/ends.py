"""How an attempt ended, in the words of the engine: done, failed, snoozed, cancelled, suspended."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from onceward import calls, jsonsafe, logs
from onceward.calls import Call
from onceward.errors import InvalidArgument
from onceward.limits import DEFAULT_WAIT
from onceward.outcomes import Cancel, Settle, Snooze
from onceward.registry import nearest_hint
from onceward.worker.failures import Failure, failure_of
from onceward.worker.job import Job
from onceward.worker.steps import Suspended, find_suspended, steps_changed

if TYPE_CHECKING:
    from onceward.worker.worker import Worker

log = logs.get("onceward.worker")
# How long a job waits whose task this worker does not know.
UNKNOWN_TASK_PAUSE = timedelta(seconds=30)


class Ends:
    """Turns what a handler returned or raised into what the worker tells the database."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def ended(self, job: Job, result: object, error: BaseException | None) -> None:
        if isinstance(error, (Suspended, BaseExceptionGroup)) and (suspended := find_suspended(error)):
            self._worker.settle(job, suspended.call, "suspended")
            return
        if error is None and job.log is not None and (unasked := job.log.unasked):
            error = steps_changed(job.task, unasked)
        if error is not None:
            self._ended_badly(job, error)
            return
        if result is None:
            self._worker.finish(job, None)
        elif isinstance(result, (Snooze, Cancel)):
            self._decided(job, result)
        elif isinstance(result, Settle):
            self._worker.settle(job, result.call, "retried")
        else:
            try:
                value = result.model_dump(mode="json") if isinstance(result, BaseModel) else result
                text = jsonsafe.dumps(value, what="result")
            except Exception as trouble:
                # The work is done and must not be repeated, but its result cannot be kept: a person decides.
                self.fail(job, trouble, category="result", permanent=True)
            else:
                self._worker.finish(job, text)

    def _decided(self, job: Job, outcome: Snooze | Cancel) -> None:
        try:
            outcome.check()
        except InvalidArgument as trouble:
            self.fail(job, trouble, category="result", permanent=True)
        else:
            if isinstance(outcome, Snooze):
                call: Call[Any] = calls.snooze(job.id, job.epoch, outcome.delay, outcome.reason)
                self._worker.settle(job, call, "snoozed")
            else:
                call = calls.cancel(job.id, outcome.reason, epoch=job.epoch)
                self._worker.settle(job, call, "cancelled")

    def _ended_badly(self, job: Job, error: BaseException) -> None:
        if job.cancelled and isinstance(error, asyncio.CancelledError):
            self._worker.settle(job, calls.cancel(job.id, None, epoch=job.epoch), "cancelled")
            return
        failure = failure_of(error)
        if failure.is_pause:
            self._limited(job, failure)
        elif isinstance(error, TimeoutError) and job.timeout is not None:
            self.fail(job, TimeoutError(f"the handler ran longer than {job.timeout}"), category="timeout")
        elif job.cancelled and not failure.permanent:
            self._worker.settle(job, calls.cancel(job.id, None, epoch=job.epoch), "cancelled")
        else:
            self._record(job, failure)

    def _limited(self, job: Job, failure: Failure) -> None:
        """The provider asks to wait: so does everybody who uses the limit, and no attempt is used up."""
        wait = failure.retry_after or DEFAULT_WAIT
        log.warning(
            "rate_limited",
            job_id=job.ref,
            task=job.task,
            limit=failure.limit,
            retry_after=wait.total_seconds(),
            worker=str(self._worker.id),
        )
        call = calls.limited(job.id, job.epoch, failure.limit, wait, failure.message)
        self._worker.settle(job, call, "snoozed")

    def fail(self, job: Job, error: BaseException, *, category: str, permanent: bool = False) -> None:
        """A failure that is not for the handler's exception to judge."""
        self._record(job, replace(failure_of(error), category=category, permanent=permanent))

    def _record(self, job: Job, failure: Failure) -> None:
        log.warning(
            "job_failed",
            job_id=job.ref,
            task=job.task,
            attempt=job.attempt,
            worker=str(self._worker.id),
            error_type=failure.kind,
            category=failure.category,
        )
        call = calls.fail(
            job.id,
            job.epoch,
            error_type=failure.kind,
            message=failure.message,
            category=failure.category,
            traceback=failure.trace,
            permanent=failure.permanent,
            retry_after=failure.retry_after,
        )
        self._worker.settle(job, call, "retried")

    def unknown_task(self, job: Job) -> None:
        """It waits for a worker that knows its task: a newer version, most likely."""
        hint = nearest_hint(job.task, self._worker.app.tasks)
        log.warning("task_unknown", job_id=job.ref, task=job.task, worker=str(self._worker.id), hint=hint)
        self._worker.settle(
            job,
            calls.snooze(
                job.id, job.epoch, UNKNOWN_TASK_PAUSE, f'this worker has no task "{job.task}"', counted=False
            ),
            "snoozed",
        )
        self._worker.executed -= 1
