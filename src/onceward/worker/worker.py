"""The worker: claims, runs, finishes.

One coordinator decides what the database links do next: exchange (finish a batch and claim the next), operations
(failures, snoozes, progress), maintenance (promote, rescue).  Handlers run in long-lived slots or threads that pull
from a deque.  A thread of its own keeps the lease.  Nothing is acknowledged before its commit.
"""

from __future__ import annotations

import asyncio
import math
import os
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from onceward import logs
from onceward.calls import Call
from onceward.dsn import resolve_dsn
from onceward.errors import InvalidArgument
from onceward.worker.claims import BATCH, Claims
from onceward.worker.connections import Connections
from onceward.worker.ends import Ends
from onceward.worker.exchanges import Action, Exchanges
from onceward.worker.hand import Hand
from onceward.worker.heart import Heart
from onceward.worker.idleness import Idleness
from onceward.worker.job import Job
from onceward.worker.link import Link
from onceward.worker.links import Links
from onceward.worker.maintenance import Maintenance
from onceward.worker.operations import Operations
from onceward.worker.registration import AT_ONCE, LAST_WORDS, Registration, Stopped
from onceward.worker.relay import Relayed
from onceward.worker.running import Runner
from onceward.worker.settings import GRACE, LEASE, POLL
from onceward.worker.signals import Signal
from onceward.worker.tally import Tally
from onceward.worker.watch import Watch

if TYPE_CHECKING:
    from onceward.app import Onceward

log = logs.get("onceward.worker")
# A buffered job that could not start by then goes back, for others to run.
STALE_AFTER = 2.0
# So that handlers run while PostgreSQL commits.
LINKS = 2
# Operations give their link up after so many seconds for what else has to be done, and maintenance the only one.
TURN = 0.05
# Connections that handlers may hold at once, for transactions of their own.
MOST_TRANSACTIONS = 10


class Worker:
    """One process's worker.  `await run()` until `stop()`; `await drain()` to empty the lanes once."""

    def __init__(  # noqa: PLR0913 - the options of `onceward worker`
        self,
        app: Onceward,
        *,
        dsn: str | None = None,
        lanes: Mapping[str, int | None] | Sequence[str] | None = None,
        concurrency: int = 50,
        lease: timedelta = LEASE,
        grace: timedelta = GRACE,
        poll: timedelta = POLL,
        name: str | None = None,
        relay: Relayed | None = None,
    ) -> None:
        """`relay`: from the parent that keeps several workers; then one link is enough, and the heart needs none."""
        logs.configure_if_nobody_has()
        if concurrency < 1:
            raise InvalidArgument(f"concurrency must be at least 1, got {concurrency}")
        self.app = app
        self.name = name or f"{socket.gethostname()}:{os.getpid()}"
        self.id: UUID | None = None
        self.executed = 0
        self.passes: Signal[int] = Signal()
        self.tally = Tally(app.tasks)
        self._dsn = resolve_dsn(dsn or app.dsn)
        self._lanes = dict(lanes) if isinstance(lanes, Mapping) else dict.fromkeys(lanes or app.lanes)
        self._concurrency = concurrency
        self._lease = lease
        # Half of it: whoever has not heard from the database for so long stops, before others may take over.
        self._patience = lease.total_seconds() / 2
        self._grace = grace
        links = LINKS if relay is None else 1
        # One link carries at once what two would.
        self._claims = Claims(self._lanes, concurrency, poll.total_seconds(), batch=BATCH * LINKS // links)
        self._watch = Watch(app, self._dsn)
        self.maintenance = Maintenance(self.wake, self._watch)
        self._links = Links(self, links, on_note=self._notified)
        self._wishes = [self._wish_operations, self._wish_exchange, self._wish_maintenance]
        self._registration = Registration(app, self._links.first, name=self.name, lanes=list(self._lanes))
        self.ends = Ends(self)
        self._hand = Hand(self, self._claims.in_lane)
        self._exchanges = Exchanges(self, self._hand, self._claims)
        self.connections = Connections(self._dsn, min(concurrency, MOST_TRANSACTIONS))
        # Another one in each loop; this one for those who stop it before it runs.
        self._wake = asyncio.Event()
        self._rests = False  # The coordinator has nothing to do.
        self._leave_by: float | None = None
        self._relay = relay
        self._heart: Heart | None = None
        self._past_failures = 0
        self._lost: str | None = None
        self.is_draining = False
        self.idleness = Idleness()
        self._watched_at = 0.0

    # ------------------------------------------------------------ life

    async def run(self) -> None:
        """Work until `stop()`; then hand back what is unfinished."""
        self.loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self.operations = Operations(self._wake.set)
        self.runner = Runner(self, self._concurrency)
        try:
            await self._register()
            await self._coordinate()
        except Stopped:
            log.warning("stopped_without_database", worker=str(self.id))
        finally:
            await self._leave()

    async def drain(self) -> int:
        """Run everything that is ready or due, until nothing is left.  Returns how many jobs were run."""
        self.idleness.awaited = True
        # Not of work: who drains the lanes wants nothing else to happen.
        self.maintenance = Maintenance(self.wake)
        await self.run()
        return self.executed

    def stop(self) -> None:
        """Finish what runs, hand the rest back, end.  Called again: at once."""
        if self.is_draining:
            self._interrupt("worker stops", AT_ONCE)
        elif self.id is not None:
            self.hand_back(self.runner.take_back(), why="worker stops")
            self.loop.call_later(self._grace.total_seconds(), self._interrupt, "grace is over", LAST_WORDS)
        self.is_draining = True
        self.wake()

    def _interrupt(self, why: str, seconds: float) -> None:
        """Tell handlers to stop, and wait this long for them."""
        if self._leave_by is None:
            self.runner.interrupt_all(why)
        leave_by = time.monotonic() + seconds
        self._leave_by = leave_by if self._leave_by is None else min(self._leave_by, leave_by)

    @property
    def healthy(self) -> bool:
        """Whether the lease is held and being renewed."""
        return self._heart is not None and self._lost is None and self._heart.silence < self._patience

    @property
    def dsn(self) -> str:
        return self._dsn

    @property
    def concurrency(self) -> int:
        return self._concurrency

    @property
    def active(self) -> int:
        """Jobs that run or are buffered."""
        return self.runner.active if self.id is not None else 0

    @property
    def silence(self) -> float | None:
        """Seconds since the database has confirmed the lease; None before the first one."""
        return None if self._heart is None else self._heart.silence

    @property
    def heartbeat_failures(self) -> int:
        """Of all identities that this process had."""
        return self._past_failures + (self._heart.failures if self._heart is not None else 0)

    def wake(self) -> None:
        self._exchanges.wanted = True
        self._wake.set()

    def look(self) -> None:
        """Have the coordinator decide anew what to do."""
        self._wake.set()

    def _notified(self, said: str) -> None:
        """A lane, and maybe ` returned` or ` opened` behind it: see onceward.wake and onceward.call_back."""
        lane, _, what = said.partition(" ")
        if lane in self._lanes:
            if not what and self._claims.is_full(lane):
                return  # Until a place is free, which the next poll finds.
            if what == "returned":
                self._claims.look_back()
            self._exchanges.noticed = True
            self._exchanges.wanted = True
            if self._rests and self._lost is None:
                self._claim_at_once(time.monotonic())
            self._wake.set()

    def _claim_at_once(self, now: float) -> None:
        """What the coordinator would do, a round of the loop later."""
        is_free = self._links.is_one_free and not self._exchanges.adoption_is_due(now)
        if is_free and (action := self._wish_exchange(now)) is not None:
            self._links.begin(action)

    async def _register(self) -> None:
        self.id = await self._registration.register(
            lease=self._lease, concurrency=self._concurrency, is_stopping=lambda: self.is_draining
        )
        self._lost = None
        self._exchanges.registered()
        self._past_failures = self.heartbeat_failures
        later = self.loop.call_soon_threadsafe
        self._heart = Heart(
            self._dsn,
            self.id,
            lease=self._lease,
            relay=self._relay,
            on_cancel=lambda ids: _quietly(later, self._cancel_jobs, ids),
            on_lost=lambda why: _quietly(later, self.lose, why),
        )
        self._heart.start()

    async def _leave(self) -> None:
        if self._heart is not None:
            self._heart.stop()
        await self._watch.stop()
        await self.runner.stop()
        await self._links.end()
        if self.id is not None and self._lost is None:
            await self._registration.retire(self.id, executed=self.executed)
        await self._links.close()
        await self.connections.close()

    # ------------------------------------------------------------ the coordinator

    async def _coordinate(self) -> None:
        while True:
            self._wake.clear()
            self.runner.collect()
            now = time.monotonic()
            self._look_after(now)
            if self._lost is not None:
                await self._start_anew()
                continue
            action = self._next_action(now) if self._links.is_one_free else None
            if action is not None:
                self._links.begin(action)
                continue
            if self._is_over():
                return
            timer = self.loop.call_later(self._pause(now), self._wake.set)
            self._rests = True
            try:
                await self._wake.wait()
            finally:
                self._rests = False
            timer.cancel()

    def _next_action(self, now: float) -> Action | None:
        if self._exchanges.adoption_is_due(now) and not self.is_draining:
            # Alone: a claim whose reply is still under way would be taken for an unknown one.
            return self._exchanges.adopt if not self._links.is_one_busy else None
        for wish in self._wishes:
            if (action := wish(now)) is not None:
                # In turn: each of the three could keep all links busy for good.
                self._wishes = [*(other for other in self._wishes if other != wish), wish]
                return action
        idle = not (self.is_draining or self._links.is_one_busy or self.runner.active)
        if self.idleness.awaited and idle and not self.idleness.found_nothing:
            return self._exchanges.prepare(now) if self.idleness.looked else self._maintain
        return None

    def following(self) -> Action | None:
        """What a link does that has just done something, before anything else happens here."""
        self._wake.set()
        return self._next_action(time.monotonic()) if self._lost is None else None

    def _wish_operations(self, _now: float) -> Action | None:
        return self._run_operations if self.operations.is_ready else None

    def _wish_exchange(self, now: float) -> Action | None:
        return self._exchanges.prepare(now) if self._exchanges.is_wanted(now) else None

    def _wish_maintenance(self, now: float) -> Action | None:
        return self._maintain if not self.is_draining and self.maintenance.is_due(now) else None

    def _pause(self, now: float) -> float:
        """Until the next thing that has a time of its own.  Everything else wakes the coordinator when it happens."""
        moments = [now + min(1.0, self._patience / 4)]
        if not self.is_draining:
            moments += [self.maintenance.next_at, self._exchanges.next_adoption]
            if self._exchanges.room > 0:
                moments.append(self._claims.next_poll)
        # What is due already waits for a link.
        return max(0.001, min(moment for moment in moments if moment > now) - now)

    def _is_over(self) -> bool:
        if self._leave_by is not None and time.monotonic() > self._leave_by:
            return True
        if self.runner.active or self._hand.done or not self.operations.is_empty or self._links.is_one_busy:
            return False
        if self.is_draining:
            return True
        return self.idleness.awaited and self.idleness.found_nothing

    def _look_after(self, now: float) -> None:
        if now - self._watched_at < min(0.25, self._patience / 8):
            return
        self._watched_at = now
        if self._heart is not None:
            self._heart.watch()
            # Also when the heart itself hangs, or this process was suspended.
            if self._heart.silence > self._patience:
                self.lose("no heartbeat for half the lease")
        self.runner.check_deadlines(now)
        stale = self.runner.take_back(claimed_before=now - STALE_AFTER)
        if stale:
            self.hand_back(stale, why="could not start soon")

    # ------------------------------------------------------------ what a link does

    async def _run_operations(self, link: Link) -> None:
        await self.operations.run(link, self.idleness.changed, turn=TURN)

    async def _maintain(self, link: Link) -> None:
        before = self.idleness.changes
        await self.maintenance.once(link, turn=TURN if self._links.is_single else math.inf)
        busy = self.runner.active or self._hand.done or not self.operations.is_empty
        self.idleness.looked = False
        if self.maintenance.is_quiet and not busy:
            self.idleness.promoted_nothing(since=before)

    # ------------------------------------------------------------ what happens to jobs

    def finish(self, job: Job, result: str | None) -> None:
        """The handler is done: acknowledge with the next exchange."""
        self.executed += 1
        self._hand.finish(job, result)
        self._wake.set()

    def settle(self, job: Job, call: Call[Any], outcome: str) -> None:
        """The attempt ended otherwise: failed, snoozed or cancelled.  The outcome is what is counted, unless the
        database decides otherwise.
        """
        self.executed += 1
        self._hand.settle(job, call, outcome)

    def submit(self, call: Call[Any]) -> asyncio.Future[Any]:
        """For handlers: whatever the database answers is theirs to hear."""
        return self.operations.submit(call)

    def version_of(self, task: str) -> str | None:
        return self.app.version or self.app.tasks[task].version

    def hand_back(self, jobs: list[Job], *, why: str) -> None:
        """Jobs that were not begun."""
        self._hand.hand_back(jobs, why=why)

    def _cancel_jobs(self, job_ids: Sequence[UUID]) -> None:
        for job_id in job_ids:
            job = self._hand.find(job_id)
            if job is not None and not job.cancelled:
                about = {"job_id": job.ref, "task": job.task, "attempt": job.attempt}
                log.info("job_cancel_requested", **about, worker=str(self.id))
                self.runner.cancel(job)

    def lose(self, why: str) -> None:
        if self._lost is None:
            self._lost = why
            self._wake.set()

    async def _start_anew(self) -> None:
        """The lease is gone: whatever runs belongs to others.  Stop it, and come back under a new identity."""
        self.tally.leases_lost += 1
        log.error("worker_lease_lost", worker=str(self.id), why=self._lost, abandoned=len(self._hand))
        if self._heart is not None:
            self._heart.stop()
        # First of all: others may take the jobs over soon.
        self.runner.abandon()
        await self._links.end()
        self.operations.abandon()
        self._hand.abandon()
        if self.is_draining:
            raise Stopped
        await self._register()


def _quietly(later: Callable[..., object], function: Callable[..., object], argument: object) -> None:
    try:
        later(function, argument)
    except RuntimeError:
        # The loop has ended; nobody needs to know any more.
        return
