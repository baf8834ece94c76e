"""`/metrics` of a worker: its own tally, and the gauges of the database."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from onceward import calls, logs
from onceward.metrics import exposition
from onceward.model import Sample
from onceward.worker.link import Link

if TYPE_CHECKING:
    from onceward.worker.worker import Worker

log = logs.get("onceward.worker")
# The gauges of the database are asked for at most this often, and for so long, in seconds.
FRESH = 5.0
PATIENCE = 3.0


class Exposition:
    """Makes the page.  A database that does not answer costs its gauges, not the page."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        # A connection of its own for the time of a scrape: those of the worker have work to do.
        self._link = Link(worker.dsn, "onceward metrics")
        self._gauges: list[Sample] = []
        self._asked_at = float("-inf")
        self._up = False
        self._one_at_a_time = asyncio.Lock()

    async def page(self) -> bytes:
        async with self._one_at_a_time:
            if time.monotonic() - self._asked_at >= FRESH:
                await self._ask()
        tally = self._worker.tally
        return exposition([*self._own(), *tally.samples(), *self._gauges], tally.distributions())

    async def close(self) -> None:
        await self._link.close()

    async def _ask(self) -> None:
        give_up = asyncio.get_running_loop().call_later(PATIENCE, self._link.cut_off)
        try:
            async with asyncio.timeout(PATIENCE + 1):
                self._gauges = await self._link.run(calls.metrics())
            self._up = True
        except Exception as error:
            self._gauges, self._up = [], False
            log.warning("metrics_unavailable", worker=str(self._worker.id), error=str(error).strip())
        finally:
            give_up.cancel()
            await self._link.close()
        self._asked_at = time.monotonic()

    def _own(self) -> Iterator[Sample]:
        worker = self._worker
        yield Sample("onceward_handlers_active", {}, worker.active)
        yield Sample("onceward_handler_slots", {}, worker.concurrency)
        yield Sample("onceward_worker_ready", {}, worker.healthy)
        yield Sample("onceward_heartbeat_failures", {}, worker.heartbeat_failures)
        if worker.silence is not None:
            yield Sample("onceward_heartbeat_age_seconds", {}, worker.silence)
        yield Sample("onceward_database_up", {}, self._up)
