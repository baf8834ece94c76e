"""The job as its handler sees it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Generator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, cast

from onceward import calls, jsonsafe
from onceward.limits import exhausted
from onceward.model import Json
from onceward.worker.steps import Operations, StepLog, Steps

if TYPE_CHECKING:
    from onceward.calls import Call
    from onceward.worker.tally import Attempts


class _Done:
    """Awaitable that is over already: what a sync handler gets, which has no use for it."""

    def __await__(self) -> Generator[None, None, None]:
        return
        yield


class Job(Steps):
    """One attempt of one job.  Ask for it with a parameter annotated `Job`."""

    __slots__ = (
        "_cancel", "_operations", "attempt", "claimed_at", "deadline", "epoch", "headers", "key", "lane", "line", "log",
        "max_attempts", "measures", "payload_text", "ref", "slot", "start_by", "task", "tenant", "timeout", "took", "unsettled",
    )  # fmt: skip

    def __init__(self, row: Sequence[Any], operations: Operations, claimed_at: float) -> None:
        (
            _, self.ref, self.epoch, self.task, self.payload_text, self.lane, _, _, self.attempt, self.max_attempts,
            self.tenant, self.timeout, self.headers, self.key, self.line,
        ) = row  # fmt: skip
        self.claimed_at = claimed_at
        self._operations = operations
        self._cancel = False
        # Made when the handler uses its first step.
        self.log: StepLog | None = None
        # When a sync handler overruns; None when it has no timeout.
        self.deadline: float | None = None
        # The asyncio task that runs an async handler, so that it can be interrupted.
        self.slot: asyncio.Task[None] | None = None
        # Until when it may begin; None: whenever.
        self.start_by: float | None = None
        # The database has refused the end that the handler wanted.
        self.unsettled = False
        # How long the handler ran, in seconds; None when it did not.
        self.took: float | None = None

    # The id and the payload stay text until somebody asks: most handlers need neither.
    ref: str
    payload_text: str
    # Where this attempt is counted; set when the worker takes the job.
    measures: Attempts
    epoch: int
    task: str
    lane: str
    attempt: int
    max_attempts: int
    tenant: str
    timeout: timedelta | None
    headers: dict[str, str] | None
    key: str | None
    line: str

    def __repr__(self) -> str:
        return f"<Job {self.ref} {self.task} attempt {self.attempt}/{self.max_attempts}>"

    @property
    def payload(self) -> Json:
        """The payload as it is stored."""
        return cast("Json", jsonsafe.loads(self.payload_text))

    @property
    def created_at(self) -> datetime:
        """When the job was enqueued, by the time inside its id."""
        return datetime.fromtimestamp((self.id.int >> 80) / 1000, UTC)

    @property
    def cancelled(self) -> bool:
        """Whether somebody asked this job to stop, or its lease is gone.  Sync handlers should look now and then."""
        return self._cancel

    def cancel(self) -> None:
        """Ask the handler to stop: what `cancelled` tells."""
        self._cancel = True

    def submit(self, call: Call[Any]) -> asyncio.Future[Any]:
        """Make a call through the worker, repeated until it is answered.  For the engine's own async tasks."""
        return self._operations.submit(call)

    def settle(self, limit: str, *, tokens: int) -> Awaitable[None]:
        """Say how much of a limit was really used: the difference to what was reserved is charged or given back.

        Await it in async handlers; in sync handlers it blocks.  Raises LeaseLost when another attempt owns the job.
        """
        call = calls.settle(self.id, self.epoch, limit, tokens)
        if self._is_async():
            return self._call(call)
        self._call_sync(call)
        return _Done()

    def observe(self, limit: str, headers: Mapping[str, str], *, key: str = "") -> Awaitable[None]:
        """Learn from the headers of an answer: when they say that nothing is left, everybody waits for the reset.

        Await it in async handlers; in sync handlers it blocks.
        """
        wait = exhausted(headers)
        if wait is None or wait <= timedelta(0):
            return _Done()
        call = calls.pause_limit(limit, wait, key, "the provider says that nothing is left")
        if self._is_async():
            return self._pause(call)
        self._call_sync(call)
        return _Done()

    async def _pause(self, call: Call[datetime]) -> None:
        await self._call(call)

    def progress(self, value: Json) -> Awaitable[None]:
        """Store progress that others can see.  Await it in async handlers; in sync handlers it blocks.

        Raises LeaseLost when another attempt owns the job: stop then.
        """
        call = calls.progress(self.id, self.epoch, value)
        if self._is_async():
            return self._call(call)
        self._call_sync(call)
        return _Done()
