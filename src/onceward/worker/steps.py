"""Steps, as a handler uses them: what is done is not run again, whatever happens to the worker.

A handler runs from its beginning after every interruption.  A step that an earlier attempt has done returns its stored
result.  Sleeping and waiting end the attempt (`Suspended`) and give the slot back.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar
from uuid import UUID

from onceward import calls, jsonsafe
from onceward.calls import Call
from onceward.calls.stepping import Place
from onceward.errors import (
    EventTimeout,
    InvalidArgument,
    JobsFailed,
    StepsChanged,
)
from onceward.model import JobOutcome, JobRef, Json, StoredStep
from onceward.registry import JobContext
from onceward.tracing import UNTRACED, Outcome
from onceward.worker.results import dump_result, load_result
from onceward.worker.tries import Tries

if TYPE_CHECKING:
    from onceward.app import Onceward
    from onceward.registry import Task
    from onceward.worker.connections import Connections
    from onceward.worker.transaction import Transaction

T = TypeVar("T")
ENDED = {"done", "cancelled", "resolved", "dead_letter"}


class Operations(Protocol):
    """What a job needs of its worker."""

    loop: asyncio.AbstractEventLoop
    app: Onceward
    connections: Connections

    def submit(self, call: Call[Any]) -> asyncio.Future[Any]: ...

    def version_of(self, task: str) -> str | None: ...


class Suspended(BaseException):
    """Ends the attempt of a job that sleeps or waits; the call says so to the database.  Not to be caught."""

    # What a trace calls it.
    outcome = "suspended"

    def __init__(self, call: Call[Any]) -> None:
        super().__init__("the job is suspended")
        self.call = call


@dataclass(slots=True)
class StepLog:
    """The steps of one attempt: what earlier attempts have done, and what this one has asked for."""

    version: str | None
    known: dict[str, StoredStep] | None = None
    used: set[str] = field(default_factory=set)
    seq: int = 0
    sleeps: int = 0

    def take(self, name: str) -> int:
        if name in self.used:
            raise InvalidArgument(
                f"step {name!r} is used twice in one job",
                hint="Give every step a name of its own; in a loop, put the item's id into it.",
            )
        self.used.add(name)
        self.seq += 1
        return self.seq

    @property
    def unasked(self) -> list[str]:
        """Steps of earlier attempts that this one has not asked for: the handler has changed meanwhile."""
        known = self.known or {}
        return [name for name, step in known.items() if step.state != "failed" and name not in self.used]


class Steps(JobContext):
    """What a job can do in steps.  In an async handler, await every one; in a sync handler, they block."""

    __slots__ = ()
    ref: str
    epoch: int
    task: str
    tenant: str
    log: StepLog | None
    _operations: Operations

    def step(
        self,
        name: str,
        function: Callable[..., Any],
        *args: Any,
        tries: int = 1,
        waits: Sequence[float] = (),
        timeout: float | None = None,
        on: tuple[type[Exception], ...] = (Exception,),
    ) -> Any:
        """Run `function(*args)` once and keep its result; when it is done already, return what was kept.

        `tries`, `waits` (seconds), `timeout` of one try (async functions) and `on` (which errors) retry it within this
        attempt.  An error with a `retry_after` (seconds) is waited for at least as long, up to a minute.
        """
        limits = Tries(tries, waits, timeout, on)
        limits.check()
        if self._is_async():
            return self._step_async(name, function, args, limits)
        return self._step_sync(name, function, args, limits)

    def transaction(self, name: str, function: Callable[..., Any] | None = None, *args: Any) -> Any:
        """Your rows and the checkpoint, committed together.

        `async with job.transaction("name") as connection:` gives a psycopg connection in a transaction; a body that was
        committed before is left at its first use of the connection.  To get a value out of it, pass a function:
        `await job.transaction("name", function, *args)` calls `function(connection, *args)` and keeps its result.
        """
        from onceward.worker.transaction import Transaction

        transaction: Transaction = Transaction(self, name)
        if function is None:
            return transaction
        if self._is_async():
            return transaction.run_async(function, args)
        return transaction.run_sync(function, args)

    def sleep(self, duration: timedelta, name: str | None = None) -> Any:
        """Give the slot back and go on after this time."""
        if name is None:
            log = self._log()
            log.sleeps += 1
            name = f"sleep {log.sleeps}"
        return self.finish_call(self._sleep(name, duration))

    def wait_event(self, name: str, timeout: timedelta | None = None) -> Any:
        """Give the slot back until the event is emitted; returns its payload.  Raises EventTimeout."""
        return self.finish_call(self._wait_event(name, timeout))

    def spawn(self, name: str, task: Task[Any, Any] | str, payloads: Iterable[Any]) -> Any:
        """Enqueue children, once; returns their ids.  Their options come from the task's declaration."""
        return self.finish_call(self._spawn(name, task, list(payloads)))

    def join(
        self,
        name: str,
        jobs: Iterable[UUID | JobRef],
        *,
        on_failure: Literal["fail", "ignore"] = "fail",
    ) -> Any:
        """Give the slot back until these jobs have ended; returns their outcomes in order.

        When one was cancelled or is a dead letter, `fail` raises JobsFailed, and `ignore` returns it among the others.
        """
        ids = [job.id if isinstance(job, JobRef) else UUID(str(job)) for job in jobs]
        return self.finish_call(self._join(name, ids, on_failure))

    @property
    def id(self) -> UUID:
        return UUID(self.ref)

    # ------------------------------------------------------------ how

    def _is_async(self) -> bool:
        try:
            return asyncio.get_running_loop() is self._operations.loop
        except RuntimeError:
            return False

    def finish_call(self, coroutine: Any) -> Any:
        """The coroutine for an async handler to await; a sync handler gets its answer."""
        if self._is_async():
            return coroutine
        return asyncio.run_coroutine_threadsafe(coroutine, self._operations.loop).result()

    def _call(self, call: Call[T]) -> Awaitable[T]:
        answer: Awaitable[T] = self._operations.submit(call)
        return answer

    def _call_sync(self, call: Call[T]) -> T:
        async def ask() -> T:
            return await self._call(call)

        answer: T = self.finish_call(ask())
        return answer

    def _log(self) -> StepLog:
        if self.log is None:
            self.log = StepLog(self._operations.version_of(self.task))
            if self.epoch == 1:
                # Nobody ran it before.
                self.log.known = {}
        return self.log

    def begin_step(self, name: str) -> tuple[Place, StepLog]:
        log = self._log()
        return Place(self.id, self.epoch, name, log.take(name), log.version), log

    async def known_step(self, log: StepLog, name: str) -> StoredStep | None:
        if log.known is None:
            log.known = {step.name: step for step in await self._call(calls.steps_of(self.id, self.epoch))}
        return log.known.get(name)

    async def _step_async(
        self, name: str, function: Callable[..., Any], args: tuple[Any, ...], limits: Tries
    ) -> Any:
        place, log = self.begin_step(name)
        stored = await self.known_step(log, name)
        if stored is not None and stored.state == "done":
            return load_result(function, stored.result, name)
        with self.part("step", name):
            began, tried = time.monotonic(), 0
            while True:
                tried += 1
                try:
                    value = await _within(limits.timeout, function, args)
                    break
                except Exception as error:
                    if limits.is_over(error, tried):
                        await self.record_failure(place, error, "step", tried, time.monotonic() - began)
                        raise
                    await asyncio.sleep(limits.wait(tried, error))
            text = dump_result(function, value, name)
            took = time.monotonic() - began
            await self._call(calls.finish_step(place, text, kind="step", tries=tried, took=took))
            return value

    def _step_sync(
        self, name: str, function: Callable[..., Any], args: tuple[Any, ...], limits: Tries
    ) -> Any:
        if limits.timeout is not None or inspect.iscoroutinefunction(function):
            raise InvalidArgument(
                f"step {name!r} of a sync handler takes a plain function and no timeout",
                hint="A thread cannot be interrupted: write the handler as an async function.",
            )
        place, log = self.begin_step(name)
        stored = self.finish_call(self.known_step(log, name))
        if stored is not None and stored.state == "done":
            return load_result(function, stored.result, name)
        with self.part("step", name):
            began, tried = time.monotonic(), 0
            while True:
                tried += 1
                try:
                    value = function(*args)
                    break
                except Exception as error:
                    if limits.is_over(error, tried):
                        took = time.monotonic() - began
                        self.finish_call(self.record_failure(place, error, "step", tried, took))
                        raise
                    time.sleep(limits.wait(tried, error))
            text = dump_result(function, value, name)
            took = time.monotonic() - began
            self._call_sync(calls.finish_step(place, text, kind="step", tries=tried, took=took))
            return value

    def part(
        self, kind: str, name: str, *, outside: bool = False, **more: str
    ) -> AbstractContextManager[Outcome]:
        """A span around a part of the work, if the application is traced."""
        tracing = self._operations.app.tracing
        if tracing is None:
            return UNTRACED
        attributes = {"onceward.job": self.ref, "onceward.part": kind, **more}
        return tracing.part(f"{kind} {name}", attributes, outside=outside)

    async def record_failure(
        self, place: Place, error: Exception, kind: str, tries: int, took: float
    ) -> None:
        """For people to see.  The error itself is what counts, so trouble in recording it is not raised."""
        with contextlib.suppress(Exception):
            await self._call(calls.fail_step(place, error, kind=kind, tries=tries, took=took))

    async def _sleep(self, name: str, duration: timedelta) -> None:
        place, log = self.begin_step(name)
        stored = await self.known_step(log, name)
        if stored is None or not (stored.is_over or stored.state == "done"):
            raise Suspended(calls.sleep(place, duration))

    async def _wait_event(self, event: str, timeout: timedelta | None) -> Json:
        name = f"event {event}"
        place, log = self.begin_step(name)
        stored = await self.known_step(log, name)
        if stored is not None and stored.state == "done":
            state, payload = stored.result["state"], stored.result["payload"]
        else:
            state, payload = await self._call(calls.receive_event(place, event))
        if state == "waiting":
            raise Suspended(calls.wait_event(place, event, timeout))
        if state == "timeout":
            raise EventTimeout(f'event "{event}" did not come in time')
        return payload

    async def _spawn(self, name: str, task: Task[Any, Any] | str, payloads: list[Any]) -> list[UUID]:
        place, log = self.begin_step(name)
        stored = await self.known_step(log, name)
        if stored is not None and stored.state == "done":
            return [UUID(item) for item in stored.result]
        known = self._operations.app.tasks.find(task if isinstance(task, str) else task.name)
        tracing = self._operations.app.tracing
        if tracing is None:
            return await self._call(self._children(place, known, payloads, None))
        with tracing.enqueue(known.name, {}, count=len(payloads)) as carried:
            return await self._call(self._children(place, known, payloads, carried))

    @staticmethod
    def _children(
        place: Place, task: Task[Any, Any], payloads: list[Any], headers: dict[str, str] | None
    ) -> Call[list[UUID]]:
        options = task.options
        return calls.spawn(
            place,
            task.name,
            task.dump_many(payloads),
            lane=options.lane,
            priority=options.priority,
            max_attempts=options.max_attempts,
            retry=jsonsafe.dumps(options.retry.to_json()) if options.retry else None,
            timeout=options.timeout,
            headers=jsonsafe.dumps(headers) if headers else None,
            uses=[task.uses(payload) for payload in payloads] if task.limits else None,
        )

    async def _join(self, name: str, ids: list[UUID], on_failure: str) -> list[JobOutcome]:
        place, log = self.begin_step(name)
        stored = await self.known_step(log, name)
        outcomes = await self._call(calls.outcomes_of(self.id, self.epoch, ids)) if ids else []
        if stored is None or stored.state != "done":
            if any(outcome.state not in ENDED for outcome in outcomes):
                raise Suspended(calls.join_jobs(place, ids))
            await self._call(calls.finish_step(place, None, kind="join", tries=1, took=0.0))
        failed = [outcome for outcome in outcomes if outcome.state in {"cancelled", "dead_letter"}]
        if failed and on_failure == "fail":
            raise JobsFailed(
                f"{len(failed)} of {len(outcomes)} jobs have failed, the first: {failed[0].job_id}",
                hint='Requeue them, or join with on_failure="ignore" and look at each outcome.',
            )
        return outcomes


def find_suspended(error: BaseException) -> Suspended | None:
    """Also among errors of tasks that the handler ran side by side."""
    if isinstance(error, BaseExceptionGroup):
        found = (find_suspended(inner) for inner in error.exceptions)
        return next((inner for inner in found if inner is not None), None)
    return error if isinstance(error, Suspended) else None


def steps_changed(task: str, unasked: list[str]) -> StepsChanged:
    return StepsChanged(
        f"the handler of task {task} did not ask for steps that an earlier attempt has done: {', '.join(unasked[:10])}",
        hint="It has changed meanwhile, or takes another way each time.  Check what was done, then resolve or requeue the job.",
    )


async def _within(timeout: float | None, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    async with asyncio.timeout(timeout):
        if inspect.iscoroutinefunction(function):
            return await function(*args)
        # A plain function must not stop all the other handlers; one that only makes an awaitable does not take long.
        value = await asyncio.to_thread(function, *args)
        return await value if inspect.isawaitable(value) else value
