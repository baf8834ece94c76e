"""What keeps the lanes moving: promote due jobs, rescue those of dead workers, fire schedules, seal the audit log,
begin checks, tidy up.

Done by every worker.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from datetime import timedelta

from onceward import calls, logs
from onceward.worker.link import Link
from onceward.worker.watch import AT_ONCE, Watch

log = logs.get("onceward.worker")
EVERY = 1.0
THOROUGH_EVERY = 60.0
TIDY_EVERY = 60.0
# Of the fleet: a worker that comes sooner finds that another one has sealed.
SEAL_EVERY = 10.0
PARTITIONS_EVERY = 6 * 3600.0
RETENTION_EVERY = 60.0
SHORTEST = 0.01


class Maintenance:
    """One pass: promote, rescue, tick, begin checks; now and then the thorough look, tidying, partitions and retention."""

    def __init__(self, wake: Callable[[], None], watch: Watch | None = None) -> None:
        self._wake = wake
        # None: somebody else looks after monitors and retention.
        self._watch = watch
        self.next_at = 0.0
        self.is_quiet = False
        self._busy = False
        self._next_rescue = 0.0
        self._next_thorough = 0.0
        self._next_promote = 0.0
        self._next_tick = 0.0
        self._next_tidy = time.monotonic() + TIDY_EVERY * random.random()  # noqa: S311 - spread, not secrecy
        self._next_seal = time.monotonic() + SEAL_EVERY * random.random()  # noqa: S311 - spread, not secrecy
        self._next_partitions = 0.0
        self._next_watch = 0.0
        self._next_retention = time.monotonic() + RETENTION_EVERY * random.random()  # noqa: S311 - spread, not secrecy

    def is_due(self, now: float) -> bool:
        return not self._busy and now >= self.next_at

    def soon(self) -> None:
        self.next_at = self._next_promote = 0.0

    async def once(self, link: Link, *, turn: float = math.inf) -> None:
        """`turn`: after so many seconds, what is left is done by the next pass, which is due at once."""
        self._busy = True
        now = time.monotonic()
        if now < self.next_at:
            # Asked though nothing is due: a worker that drains wants to know whether anything is left.
            self._next_promote = self._next_tick = 0.0
        # Also when the pass fails: the next one is a second away.
        self.next_at = now + EVERY
        self.is_quiet = False
        try:
            for step in (
                self._promote, self._rescue, self._tick, self._partitions, self._seal, self._tidy, self._begin_checks,
            ):  # fmt: skip
                await step(link, now)
                if time.monotonic() - now > turn:
                    self.next_at = 0.0
                    return
            self.next_at = min(self._next_promote, self._next_tick)
        finally:
            self._busy = False

    async def _promote(self, link: Link, now: float) -> None:
        if now < self._next_promote:
            return
        began = time.monotonic()
        found = await link.run(calls.promote())
        took = time.monotonic() - began
        pause = EVERY * random.uniform(0.5, 1.0)  # noqa: S311 - spread, not secrecy
        if found.next_in is not None:
            pause = min(pause, max(SHORTEST, found.next_in.total_seconds()))
        if found.more:
            pause = 0.0
        # When looking is slow (an old snapshot keeps dead entries alive), look less often.
        self._next_promote = time.monotonic() + max(pause, took * 10)
        self.is_quiet = not found.promoted and not found.expired
        if found.promoted:
            self._wake()

    async def _tick(self, link: Link, now: float) -> None:
        if now < self._next_tick:
            return
        found = await link.run(calls.tick())
        # Also without anything due: somebody may add a schedule.
        pause = EVERY * random.uniform(0.5, 1.0)  # noqa: S311 - spread, not secrecy
        if found.next_in is not None:
            pause = min(pause, max(SHORTEST, found.next_in.total_seconds()))
        self._next_tick = time.monotonic() + pause
        if found.fired:
            log.debug("schedules_fired", count=found.fired)
            # At once: jobs that wait for their key are admitted by the next pass, and more may be due.
            self._next_tick = self._next_promote = 0.0
            self.is_quiet = False
            self._wake()
        if found.missed:
            log.warning("slots_missed", count=found.missed)

    async def _partitions(self, link: Link, now: float) -> None:
        if now >= self._next_partitions:
            self._next_partitions = now + PARTITIONS_EVERY
            await link.run(calls.ensure_partitions())

    async def _tidy(self, link: Link, now: float) -> None:
        if now >= self._next_tidy:
            self._next_tidy = now + TIDY_EVERY
            await link.run(calls.tidy())

    async def _seal(self, link: Link, now: float) -> None:
        if now < self._next_seal:
            return
        sealed = await link.run(calls.seal(every=timedelta(seconds=SEAL_EVERY / 2)))
        self._next_seal = time.monotonic() + SEAL_EVERY
        if sealed.more:
            # A backlog, as after an import: the rest is sealed in pieces, between other things.
            await link.run(calls.seal())
            self._next_seal = 0.0

    async def _begin_checks(self, link: Link, now: float) -> None:
        """Only begun here, which takes a look at what is due; executed elsewhere, however long that takes."""
        watch = self._watch
        if watch is None:
            return
        if now >= self._next_watch and watch.is_free:
            self._next_watch = now + EVERY * random.uniform(0.5, 1.0)  # noqa: S311 - spread, not secrecy
            begun = await link.run(calls.begin_checks(watch.known, limit=AT_ONCE))
            watch.start(begun)
        if now >= self._next_retention:
            self._next_retention = now + RETENTION_EVERY
            if await link.run(calls.retention_is_due()):
                watch.start_retention()

    async def _rescue(self, link: Link, now: float) -> None:
        if now < self._next_rescue:
            return
        self._next_rescue = now + EVERY * random.uniform(0.5, 1.0)  # noqa: S311 - spread, not secrecy
        thorough = now >= self._next_thorough
        began = time.monotonic()
        rescued = await link.run(calls.rescue(thorough=thorough))
        if thorough:
            self._next_thorough = now + max(THOROUGH_EVERY, 20 * (time.monotonic() - began))
        if rescued:
            log.warning("jobs_rescued", count=rescued)
            self._wake()
