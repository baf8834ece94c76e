"""Runs: once per key.  Whoever begins first runs; the others hear who has it since when.

    with Runs(client).hold(run_key("detect-alerts", tenant)) as run:
        ...

Leaving the block completes the run, and its key is taken for good; an exception marks it failed, and the next caller may
take it.  A holder that dies keeps the key until its lease is over.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING
from uuid import uuid4

from onceward import calls, jsonsafe, logs
from onceward.calls import Call
from onceward.errors import InvalidArgument, LeaseLost, RunHeld
from onceward.model import Json
from onceward.model_schedules import RunAnswer, RunInfo

if TYPE_CHECKING:
    from onceward.async_client import AsyncClient
    from onceward.client import Client

__all__ = ["AsyncRuns", "Run", "Runs"]

log = logs.get("onceward.runs")
LEASE = timedelta(minutes=5)
# The lease is renewed when this much of it has passed.
RENEW_AFTER = 1 / 3


class Run:
    """A run that is held.  Set `result` to what later callers should be told."""

    def __init__(self, key: str, answer: RunAnswer) -> None:
        self.key = key
        self.epoch = answer.epoch
        self.attempt = answer.attempt
        self.holder = answer.holder
        self.since = answer.since
        self.result: Json = None
        # Somebody has taken the run over: whatever is still done here is done twice.
        self.lost = False


class _Calls:
    """What both shells share."""

    def __init__(self, *, holder: str | None, lease: timedelta, tenant: str | None) -> None:
        if not isinstance(lease, timedelta) or lease < timedelta(seconds=1):
            raise InvalidArgument(
                f"lease must be a timedelta of at least a second, got {lease!r:.100}",
                hint="Pass timedelta(minutes=5).",
            )
        self._holder = holder or f"{socket.gethostname()}:{os.getpid()}"
        self._lease = lease
        self._tenant = tenant

    @property
    def _pause(self) -> float:
        return self._lease.total_seconds() * RENEW_AFTER

    def _begin(self, key: str) -> Call[RunAnswer]:
        return calls.begin_run(key, self._holder, lease=self._lease, tenant=self._tenant, token=uuid4())

    def _renew(self, run: Run) -> Call[datetime]:
        return calls.renew_run(run.key, run.epoch, lease=self._lease, tenant=self._tenant)

    def _finish(self, run: Run) -> Call[None]:
        result = None if run.result is None else jsonsafe.dumps(run.result, what="result")
        return calls.finish_run(run.key, run.epoch, result, tenant=self._tenant)

    def _fail(self, run: Run, error: BaseException) -> Call[None]:
        return calls.fail_run(run.key, run.epoch, f"{type(error).__name__}: {error}", tenant=self._tenant)

    def _run_key(
        self, function: str, tenant: str, grain: str, entity: dict[str, Json] | None, zone: str
    ) -> Call[str]:
        text = None if entity is None else jsonsafe.dumps(entity, what="entity")
        return calls.run_key(function, tenant, grain=grain, entity=text, zone=zone)


def _refused(key: str, answer: RunAnswer) -> RunHeld:
    since = answer.since.isoformat(timespec="seconds")
    if answer.state == "completed":
        ended = answer.finished_at.isoformat(timespec="seconds") if answer.finished_at else "?"
        return RunHeld(
            f'run "{key}" has completed', detail=f"{answer.holder} ran it from {since} to {ended}.", hint=None
        )
    until = answer.expires_at.isoformat(timespec="seconds") if answer.expires_at else "?"
    return RunHeld(
        f'run "{key}" is held by {answer.holder} since {since}',
        detail=f"Its lease ends at {until} unless it is renewed.",
        hint="Leave it to the holder, or try again after that.",
    )


class Runs(_Calls):
    """For synchronous code.  The lease of what is held is renewed by a thread."""

    def __init__(
        self,
        client: Client,
        *,
        holder: str | None = None,
        lease: timedelta = LEASE,
        tenant: str | None = None,
    ) -> None:
        super().__init__(holder=holder, lease=lease, tenant=tenant)
        self._client = client

    def key(
        self,
        function: str,
        tenant: str,
        *,
        grain: str = "day",
        entity: dict[str, Json] | None = None,
        zone: str = "UTC",
    ) -> str:
        """Like `run_key`, with the window of the engine's clock instead of this machine's."""
        return self._client.run(self._run_key(function, tenant, grain, entity, zone))

    def begin(self, key: str) -> RunAnswer:
        """Take the key, or hear who has it.  Without renewal: finish before the lease is over."""
        return self._client.run(self._begin(key))

    @contextlib.contextmanager
    def hold(self, key: str) -> Iterator[Run]:
        """Raises RunHeld when somebody runs the key or has completed it, LeaseLost when it was taken over meanwhile."""
        answer = self._client.run(self._begin(key))
        if not answer.acquired:
            raise _refused(key, answer)
        run = Run(key, answer)
        over = threading.Event()
        thread = threading.Thread(
            target=self._keep, args=(run, over), name=f"onceward run {key}", daemon=True
        )
        thread.start()
        try:
            yield run
        except BaseException as error:
            over.set()
            thread.join()
            with contextlib.suppress(LeaseLost):
                self._client.run(self._fail(run, error))
            raise
        over.set()
        thread.join()
        self._client.run(self._finish(run))

    def get(self, key: str) -> RunInfo | None:
        found = self._client.run(calls.runs(key=key, tenant=self._tenant))
        return found[0] if found else None

    def _keep(self, run: Run, over: threading.Event) -> None:
        while not over.wait(self._pause):
            try:
                self._client.run(self._renew(run))
            except LeaseLost:
                run.lost = True
                log.error("run_lost", key=run.key, epoch=run.epoch)
                return
            except Exception as error:
                # The next renewal may pass; until the lease is over nobody takes the run.
                log.warning("could_not_renew_run", key=run.key, error=str(error))


class AsyncRuns(_Calls):
    """For asyncio code.  The lease of what is held is renewed by a task of the loop."""

    def __init__(
        self,
        client: AsyncClient,
        *,
        holder: str | None = None,
        lease: timedelta = LEASE,
        tenant: str | None = None,
    ) -> None:
        super().__init__(holder=holder, lease=lease, tenant=tenant)
        self._client = client

    async def key(
        self,
        function: str,
        tenant: str,
        *,
        grain: str = "day",
        entity: dict[str, Json] | None = None,
        zone: str = "UTC",
    ) -> str:
        """Like `run_key`, with the window of the engine's clock instead of this machine's."""
        return await self._client.run(self._run_key(function, tenant, grain, entity, zone))

    async def begin(self, key: str) -> RunAnswer:
        """Take the key, or hear who has it.  Without renewal: finish before the lease is over."""
        return await self._client.run(self._begin(key))

    @contextlib.asynccontextmanager
    async def hold(self, key: str) -> AsyncIterator[Run]:
        """Raises RunHeld when somebody runs the key or has completed it, LeaseLost when it was taken over meanwhile."""
        answer = await self._client.run(self._begin(key))
        if not answer.acquired:
            raise _refused(key, answer)
        run = Run(key, answer)
        keeper = asyncio.create_task(self._keep(run))
        try:
            yield run
        except BaseException as error:
            await _ended(keeper)
            with contextlib.suppress(LeaseLost):
                await self._client.run(self._fail(run, error))
            raise
        await _ended(keeper)
        await self._client.run(self._finish(run))

    async def get(self, key: str) -> RunInfo | None:
        found = await self._client.run(calls.runs(key=key, tenant=self._tenant))
        return found[0] if found else None

    async def _keep(self, run: Run) -> None:
        while True:
            await asyncio.sleep(self._pause)
            try:
                await self._client.run(self._renew(run))
            except LeaseLost:
                run.lost = True
                log.error("run_lost", key=run.key, epoch=run.epoch)
                return
            except Exception as error:
                # The next renewal may pass; until the lease is over nobody takes the run.
                log.warning("could_not_renew_run", key=run.key, error=str(error))


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
