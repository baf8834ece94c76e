"""Running handlers: async ones in slots, sync ones in threads, CPU-bound ones in processes."""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from onceward import calls, logs
from onceward.handling import current_job
from onceward.outcomes import Cancel, Snooze
from onceward.registry import Task
from onceward.worker.job import Job
from onceward.worker.processes import Processes
from onceward.worker.threads import Threads

if TYPE_CHECKING:
    from onceward.tracing import Tracing
    from onceward.worker.worker import Worker

log = logs.get("onceward.worker")
# How long cancelled handlers may take to clean up when the worker ends, in seconds.
CLEAN_UP = 2.0
NOT_BEGUN = object()
BEGUN_TOO_LATE = object()
TOO_LATE = "too late for its limit"


class Runner:
    """Executes jobs and tells the worker how they ended."""

    def __init__(self, worker: Worker, concurrency: int) -> None:
        self._worker = worker
        self._tasks = worker.app.tasks
        self._queue: deque[Job] = deque()
        self._idle: list[asyncio.Future[None]] = []
        self._slots: set[asyncio.Task[None]] = set()
        # Cancelled, and perhaps still cleaning up.
        self._leaving: set[asyncio.Task[None]] = set()
        self._concurrency = concurrency
        self._threads = Threads(concurrency, self._run_sync, self._thread_done)
        self._processes: Processes | None = None
        self._timed: set[Job] = set()
        # In threads that were told to stop: what they still finish is kept, an error is no failure of the job.
        self._told_to_stop: set[Job] = set()
        # In threads, failed already because they overran.
        self._overdue: set[Job] = set()
        self._interrupted = False
        # Buffered or running.
        self.active = 0

    def start(self, job: Job) -> None:
        self.active += 1
        task = self._tasks.get(job.task)
        if task is None:
            self.active -= 1
            self._worker.ends.unknown_task(job)
        elif task.is_async or task.executor == "process":
            if job.start_by is None:
                self._queue.append(job)
            else:
                self._queue.appendleft(job)
            if self._idle:
                self._idle.pop().set_result(None)
            elif len(self._slots) < self._concurrency:
                self._slots.add(self._worker.loop.create_task(self._slot()))
        else:
            self._threads.put(job)

    # ------------------------------------------------------------ async handlers

    async def _slot(self) -> None:
        me = asyncio.current_task()
        assert me is not None
        queue = self._queue
        tracing = self._worker.app.tracing
        while True:
            if not queue:
                free = self._worker.loop.create_future()
                self._idle.append(free)
                await free
            elif self._idle:
                # Pass the rest on, once: a slot whose jobs do not wait empties the queue alone.
                self._idle.pop().set_result(None)
            while queue:
                job = queue.popleft()
                if not self._worker.healthy:
                    self._not_begun(job)
                    continue
                if job.start_by is not None and time.monotonic() > job.start_by:
                    self._not_begun(job, why=TOO_LATE)
                    continue
                result, error = None, None
                job.slot = me
                began = time.monotonic()
                try:
                    result = await (
                        self._run_async(job) if tracing is None else self._run_traced(job, tracing)
                    )
                except BaseException as raised:
                    error = raised
                job.slot = None
                job.took = time.monotonic() - began
                if me not in self._slots:
                    return  # The lease is gone, and with it the job.
                if error is not None and not job.cancelled and self._interrupted:
                    # Because the worker stops: the job goes back when it retires.  The task's own count of
                    # cancellations does not tell: until Python 3.13 a TaskGroup whose child fails leaves one behind.
                    self.active -= 1
                    return
                self._ended(job, result, error)
                while me.cancelling():
                    me.uncancel()

    async def _run_traced(self, job: Job, tracing: Tracing) -> object:
        with tracing.attempt(job) as say:
            result = await self._run_async(job)
            say(_told(result))
        return result

    async def _run_async(self, job: Job) -> object:
        current_job.set(job.ref)
        task = self._tasks[job.task]
        arguments = task.arguments(job.payload_text)
        if task.context_parameter is not None:
            arguments[task.context_parameter] = job
        if job.timeout is not None:
            async with asyncio.timeout(job.timeout.total_seconds()):
                return await self._call(task, job, arguments)
        if task.is_async:
            return await task.handler(**arguments)
        return await self._call(task, job, arguments)

    async def _call(self, task: Task[Any, Any], job: Job, arguments: dict[str, Any]) -> Any:
        if task.is_async:
            return await task.handler(**arguments)
        if self._processes is None:
            self._processes = Processes(min(self._concurrency, os.cpu_count() or 1))
        return await self._processes.run(task.handler.__module__, task.name, job.payload_text, job.ref)

    # ------------------------------------------------------------ sync handlers

    def _run_sync(self, job: Job) -> object:
        if not self._worker.healthy:
            return NOT_BEGUN
        if job.start_by is not None and time.monotonic() > job.start_by:
            return BEGUN_TOO_LATE
        tracing = self._worker.app.tracing
        if tracing is None:
            return self._call_sync(job)
        with tracing.attempt(job) as say:
            result = self._call_sync(job)
            say(_told(result))
        return result

    def _call_sync(self, job: Job) -> object:
        current_job.set(job.ref)
        task = self._tasks[job.task]
        arguments = task.arguments(job.payload_text)
        if task.context_parameter is not None:
            arguments[task.context_parameter] = job
        if job.timeout is not None:
            job.deadline = time.monotonic() + job.timeout.total_seconds()
            self._timed.add(job)
        began = time.monotonic()
        try:
            return task.handler(**arguments)
        finally:
            job.took = time.monotonic() - began

    def _thread_done(self) -> None:
        try:
            self._worker.loop.call_soon_threadsafe(self.collect)
        except RuntimeError:
            return  # The loop has ended; the lease decides.

    def collect(self) -> None:
        """Take in what the threads have finished."""
        self._threads.told = False
        done = self._threads.done
        while done:
            job, result, error = done.popleft()
            if job in self._timed:
                self._timed.discard(job)
            if result is NOT_BEGUN:
                self._not_begun(job)
            elif result is BEGUN_TOO_LATE:
                self._not_begun(job, why=TOO_LATE)
            else:
                self._ended(job, result, error)

    def check_deadlines(self, now: float) -> None:
        """A thread cannot be stopped, but its job can be failed; whatever it returns later is refused."""
        for job in list(self._timed):
            if job.deadline is not None and now > job.deadline:
                self._timed.discard(job)
                self._overdue.add(job)
                job.deadline = None
                job.cancel()
                self._worker.ends.fail(
                    job, TimeoutError(f"the handler ran longer than {job.timeout}"), category="timeout"
                )

    # ------------------------------------------------------------ ends

    def _not_begun(self, job: Job, why: str = "lease in doubt") -> None:
        """The lease may be over, as after a suspension of the process: nothing is begun that others may be running.

        Or its limit was for an earlier moment.
        """
        self.active -= 1
        self._worker.hand_back([job], why=why)

    def _ended(self, job: Job, result: object, error: BaseException | None) -> None:
        self.active -= 1
        if job.took is not None:
            job.measures.seconds.add(job.took)
        if job in self._overdue:
            self._overdue.discard(job)
            return
        if error is not None and job in self._told_to_stop:
            return  # The job goes back when the worker retires.
        self._worker.ends.ended(job, result, error)

    # ------------------------------------------------------------ interruptions

    def cancel(self, job: Job) -> None:
        job.cancel()
        if job.slot is not None:
            job.slot.cancel()
            return
        for waiting in (self._queue, self._threads.waiting):
            try:
                waiting.remove(job)
            except (ValueError, IndexError):
                continue  # Not there, or a thread has just begun it.
            self.active -= 1
            self._worker.settle(job, calls.cancel(job.id, None, epoch=job.epoch), "cancelled")
            return

    def take_back(self, claimed_before: float | None = None) -> list[Job]:
        """Jobs that have not begun (all, or those that have waited too long)."""
        waiting = [*self._queue, *self._threads.waiting]
        if not waiting or (
            claimed_before is not None and min(job.claimed_at for job in waiting) >= claimed_before
        ):
            return []
        taken = [*self._queue, *self._threads.take_back()]
        self._queue.clear()
        self.active -= len(taken)
        return taken

    def interrupt_all(self, why: str) -> None:
        """Tell all handlers to stop; their jobs go back when the worker retires."""
        self._interrupted = True
        log.info("handlers_interrupted", worker=str(self._worker.id), why=why)
        self.collect()
        for job in [*self._threads.running]:
            job.cancel()
            self._told_to_stop.add(job)
        self.active -= len(self._queue)
        self._queue.clear()
        self._idle.clear()
        for slot in self._slots:
            slot.cancel()
        self._worker.wake()

    def abandon(self) -> None:
        """The lease is gone.  Stop what can be stopped; ends of the rest are not reported."""
        self._dismiss_slots()
        self._idle.clear()
        for job in [*self._threads.running, *self._threads.take_back()]:
            job.cancel()
        # New threads for new jobs: the old ones may be busy for long.
        self._threads.stop()
        self._threads = Threads(self._concurrency, self._run_sync, self._thread_done)
        self._timed.clear()
        self._told_to_stop.clear()
        self._overdue.clear()
        self._queue.clear()
        self.active = 0

    def _dismiss_slots(self) -> None:
        slots, self._slots = self._slots, set()
        for slot in slots:
            slot.cancel()
            slot.add_done_callback(self._leaving.discard)
        self._leaving |= slots

    async def stop(self) -> None:
        self._dismiss_slots()
        if self._leaving:
            # A handler may need a moment to clean up; its job must not begin elsewhere meanwhile.
            await asyncio.wait(self._leaving, timeout=CLEAN_UP)
        self._threads.stop()
        if self._processes is not None:
            self._processes.stop()


def _told(result: object) -> str:
    """How a handler has ended that raised nothing, for its trace."""
    return "snoozed" if isinstance(result, Snooze) else "cancelled" if isinstance(result, Cancel) else "done"
