"""A worker's first and last words: registering its identity, and handing everything back."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar
from uuid import UUID

from onceward import calls, logs
from onceward.calls import Call
from onceward.errors import UnknownLane, is_connection_trouble
from onceward.registry import nearest_hint
from onceward.schedules import DEFAULT_NAME
from onceward.worker.fit import warn_unless_fit
from onceward.worker.link import Link

if TYPE_CHECKING:
    from onceward.app import Onceward

T = TypeVar("T")
log = logs.get("onceward.worker")
# How long a worker that ends waits for handlers that were told to stop, and then tries to hand its jobs back, in seconds;
# after that, its lease has to run out.
LAST_WORDS = 5.0
# How long it waits for handlers when it is told to stop a second time.
AT_ONCE = 1.0


class Stopped(Exception):
    """The worker was told to stop while it could not reach the database."""


class Registration:
    """Registers a worker under a new identity, through any trouble with the connection."""

    def __init__(self, app: Onceward, link: Link, *, name: str, lanes: Sequence[str]) -> None:
        self._app = app
        self._link = link
        self._name = name
        self._lanes = list(lanes)
        self._is_checked = False

    async def register(self, *, lease: timedelta, concurrency: int, is_stopping: Callable[[], bool]) -> UUID:
        async def insist(call: Call[T]) -> T:
            return await self._insist(call, is_stopping)

        if not self._is_checked:
            await warn_unless_fit(insist)
            self._is_checked = True
        lanes = {lane for lane in self._lanes if lane in self._app.lanes}
        lanes |= {schedule.lane for schedule in self._app.schedules.values()}
        await insist(calls.declare_lanes(sorted(lanes)))
        if self._app.limits:
            changed = await insist(calls.declare_limits(list(self._app.limits.values())))
            if changed:
                log.info("limits_declared", changed=changed)
        await self._declare_schedules(is_stopping)
        await self._declare_monitors(is_stopping)
        call = calls.register_worker(
            name=self._name,
            lanes=self._lanes,
            tasks=sorted(self._app.tasks),
            lease=lease,
            host=socket.gethostname(),
            pid=os.getpid(),
            version=self._app.version,
            concurrency=concurrency,
        )
        try:
            worker_id = await insist(call)
        except UnknownLane as error:
            known = [lane.name for lane in await insist(calls.lanes())]
            wrong = next(lane for lane in self._lanes if lane not in known)
            raise UnknownLane(
                error.message, detail=error.detail, hint=nearest_hint(wrong, known) or error.hint
            ) from None
        log.info(
            "worker_started",
            worker=str(worker_id),
            name=self._name,
            lanes=self._lanes,
            tasks=len(self._app.tasks),
        )
        return worker_id

    async def _declare_schedules(self, is_stopping: Callable[[], bool]) -> None:
        schedules = list(self._app.schedules.values())
        if not schedules and self._app.name == DEFAULT_NAME:
            # Any application may be called so; one without schedules must not speak for the others.
            return
        text = json.dumps([schedule.to_json() for schedule in schedules])
        outcomes = await self._insist(calls.declare_schedules(self._app.name, text), is_stopping)
        for name, outcome in outcomes.items():
            if outcome != "unchanged":
                log.info("schedule_declared", schedule=name, outcome=outcome)

    async def _declare_monitors(self, is_stopping: Callable[[], bool]) -> None:
        if not self._app.monitors:
            return
        text = json.dumps([monitor.to_json() for monitor in self._app.monitors.values()])
        outcomes = await self._insist(calls.declare_monitors(self._app.name, text), is_stopping)
        for name, outcome in outcomes.items():
            if outcome != "unchanged":
                log.info("monitor_declared", monitor=name, outcome=outcome)

    async def retire(self, worker_id: UUID, *, executed: int) -> None:
        give_up = asyncio.get_running_loop().call_later(LAST_WORDS, self._link.cut_off)
        until = time.monotonic() + LAST_WORDS
        while True:
            try:
                returned = await self._link.run(calls.retire_worker(worker_id))
            except Exception as error:
                if is_connection_trouble(error) and time.monotonic() < until:
                    await self._link.rest()
                    continue
                # The lease runs out by itself and others rescue the rest.
                log.warning("could_not_retire", worker=str(worker_id), error=str(error))
            else:
                log.info("worker_stopped", worker=str(worker_id), executed=executed, handed_back=returned)
            give_up.cancel()
            return

    async def _insist(self, call: Call[T], is_stopping: Callable[[], bool]) -> T:
        while True:
            try:
                return await self._link.run(call)
            except Exception as error:
                if not is_connection_trouble(error):
                    raise
                if is_stopping():
                    raise Stopped from error
                if (refusal := self._link.refusal(error)) is not None:
                    raise refusal from error
                log.warning("database_unreachable", error=" ".join(str(error).split()))
                await self._link.rest()
