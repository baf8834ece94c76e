"""The job as its handler sees it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Generator, Sequence
from concurrent.futures import Future
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol, cast
from uuid import UUID

from onceward import calls, jsonsafe
from onceward.model import Json
from onceward.registry import JobContext

if TYPE_CHECKING:
    from onceward.calls import Call

# How long a handler waits for the database when it stores its progress.
DATABASE_TIMEOUT = 30.0


class Operations(Protocol):
    """What a job needs of its worker."""

    loop: asyncio.AbstractEventLoop

    def submit(self, call: Call[Any]) -> asyncio.Future[Any]: ...


class _Done:
    """Awaitable that is over already: what a sync handler gets, which has no use for it."""

    def __await__(self) -> Generator[None, None, None]:
        return
        yield


class Job(JobContext):
    """One attempt of one job.  Ask for it with a parameter annotated `Job`."""

    __slots__ = (
        "_cancel", "_operations", "attempt", "claimed_at", "deadline", "epoch", "headers", "key", "lane",
        "max_attempts", "payload_text", "ref", "slot", "task", "tenant", "timeout", "unsettled",
    )  # fmt: skip

    def __init__(self, row: Sequence[Any], operations: Operations, claimed_at: float) -> None:
        (
            _, self.ref, self.epoch, self.task, self.payload_text, self.lane, _, _, self.attempt, self.max_attempts,
            self.tenant, self.timeout, self.headers, self.key,
        ) = row  # fmt: skip
        self.claimed_at = claimed_at
        self._operations = operations
        self._cancel = False
        # When a sync handler overruns; None when it has no timeout.
        self.deadline: float | None = None
        # The asyncio task that runs an async handler, so that it can be interrupted.
        self.slot: asyncio.Task[None] | None = None
        # The database has refused the end that the handler wanted.
        self.unsettled = False

    # The id and the payload stay text until somebody asks: most handlers need neither.
    ref: str
    payload_text: str
    epoch: int
    task: str
    lane: str
    attempt: int
    max_attempts: int
    tenant: str
    timeout: timedelta | None
    headers: dict[str, str] | None
    key: str | None

    def __repr__(self) -> str:
        return f"<Job {self.ref} {self.task} attempt {self.attempt}/{self.max_attempts}>"

    @property
    def id(self) -> UUID:
        return UUID(self.ref)

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

    def progress(self, value: Json) -> Awaitable[None]:
        """Store progress that others can see.  Await it in async handlers; in sync handlers it blocks.

        Raises LeaseLost when another attempt owns the job: stop then.
        """
        call = calls.progress(self.id, self.epoch, value)
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is self._operations.loop:
            return self._operations.submit(call)
        answer: Future[None] = Future()
        self._operations.loop.call_soon_threadsafe(_chain, self._operations, call, answer)
        answer.result(DATABASE_TIMEOUT)
        return _Done()


def _chain(operations: Operations, call: Call[Any], answer: Future[None]) -> None:
    def copy(done: asyncio.Future[Any]) -> None:
        if done.cancelled():
            answer.cancel()
        elif (error := done.exception()) is not None:
            answer.set_exception(error)
        else:
            answer.set_result(None)

    operations.submit(call).add_done_callback(copy)
