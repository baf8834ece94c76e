"""The jobs in a worker's hand: from the claim until the database has taken their end."""

from __future__ import annotations

import asyncio
from collections.abc import Container, Iterable, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

from onceward import calls, logs
from onceward.calls import Call
from onceward.errors import LeaseLost
from onceward.worker.job import Job
from onceward.worker.tally import outcome_of

if TYPE_CHECKING:
    from onceward.worker.worker import Worker

log = logs.get("onceward.worker")
# What an exchange acknowledges: id, epoch and result.
Done = tuple[str, int, str | None]


class Hand:
    """Every job that this worker holds, by the text of its id, and how each one leaves."""

    def __init__(self, worker: Worker, in_lane: dict[str, int]) -> None:
        self._worker = worker
        self._held: dict[str, Job] = {}
        # Held jobs of each lane that the worker serves.
        self._in_lane = in_lane
        # Finished by their handlers, to be acknowledged with the next exchange.
        self.done: list[Done] = []

    def __len__(self) -> int:
        return len(self._held)

    @property
    def ids(self) -> list[str]:
        return list(self._held)

    # ------------------------------------------------------------ in

    def take(self, row: Sequence[Any], now: float) -> Job | None:
        """A job that was claimed.  None when it is known already."""
        held = self._held.get(row[1])
        if held is not None:
            if held.epoch >= row[2]:
                return None
            # Its earlier attempt has ended in the database; the answer is still on its way.
            self._drop(held)
        job = Job(row, self._worker, now)
        job.measures = self._worker.tally.started(job)
        self._held[job.ref] = job
        if job.lane in self._in_lane:
            self._in_lane[job.lane] += 1
        return job

    def find(self, job_id: UUID) -> Job | None:
        return self._held.get(str(job_id))

    # ------------------------------------------------------------ out

    def finish(self, job: Job, result: str | None) -> None:
        """The handler is done: acknowledge with the next exchange."""
        if self._held.get(job.ref) is job:
            self.done.append((job.ref, job.epoch, result))

    def acknowledged(self, done: Iterable[Done], lost: Container[str]) -> None:
        """The database has answered: these are done, except those that came too late."""
        for ref, epoch, _ in done:
            job = self._held.get(ref)
            if job is not None and job.epoch == epoch:
                job.measures.ended["lost" if ref in lost else "done"] += 1
                self._drop(job)

    def settle(self, job: Job, call: Call[Any], outcome: str) -> None:
        """The attempt ended otherwise: failed, snoozed or cancelled."""
        if self._held.get(job.ref) is job:
            answer = self._worker.operations.submit(call, insist=True)
            answer.add_done_callback(lambda answer: self._settled(job, answer, outcome))

    def finish_one_by_one(self, done: Iterable[Done]) -> None:
        """A batch was refused for a reason that will not pass: so that only the culprit fails."""
        for ref, epoch, result in done:
            job = self._held.get(ref)
            if job is not None and job.epoch == epoch:
                self._complete(job, result)

    def hand_back(self, jobs: list[Job], *, why: str) -> None:
        """Jobs that were not begun.  They are ours until the database has taken them, so that nobody adopts them."""
        worker = self._worker
        assert worker.id is not None
        if not jobs:
            return
        log.info("jobs_handed_back", worker=str(worker.id), count=len(jobs), why=why)

        def answered(answer: asyncio.Future[Any]) -> None:
            if not answer.cancelled() and (error := answer.exception()) is not None:
                log.warning("could_not_hand_back", worker=str(worker.id), error=str(error))
            for job in jobs:
                job.measures.ended["released"] += 1
                self._drop(job)

        call = calls.release(worker.id, [(job.id, job.epoch) for job in jobs])
        worker.operations.submit(call, insist=True).add_done_callback(answered)

    def abandon(self) -> None:
        """The lease is gone.  What is done stays on its list: unless another attempt has begun, it is still accepted."""
        for job in self._held.values():
            job.measures.ended["lost"] += 1
        self._held.clear()
        for lane in self._in_lane:
            self._in_lane[lane] = 0

    # ------------------------------------------------------------ answers

    def _complete(self, job: Job, result: str | None) -> None:
        def answered(answer: asyncio.Future[Any]) -> None:
            error = None if answer.cancelled() else answer.exception()
            if error is None or isinstance(error, LeaseLost):
                self._settled(job, answer, "done")
            else:
                self._worker.ends.fail(job, error, category="result", permanent=True)
                self._worker.executed -= 1

        call = calls.complete(job.id, job.epoch, result)
        self._worker.operations.submit(call, insist=True).add_done_callback(answered)

    def _settled(self, job: Job, answer: asyncio.Future[Any], outcome: str) -> None:
        error = None if answer.cancelled() else answer.exception()
        if error is None and not answer.cancelled():
            job.measures.ended[outcome_of(answer.result(), outcome)] += 1
        elif isinstance(error, LeaseLost):
            job.measures.ended["lost"] += 1
            log.warning("lease_lost", job_id=job.ref, epoch=job.epoch, worker=str(self._worker.id))
        elif error is not None:
            log.error(
                "could_not_settle",
                job_id=job.ref,
                task=job.task,
                error=str(error),
                worker=str(self._worker.id),
            )
            # It must not stay "running" for ever.  What was refused is on record with the failure.  When that is
            # refused as well, the job is kept in hand, so that nobody adopts and repeats it.
            if not job.unsettled:
                job.unsettled = True
                self._worker.ends.fail(job, error, category="result")
                self._worker.executed -= 1
            return
        self._drop(job)
        if job.start_by is not None:
            # It may have held a slot of a limit, for which others wait.
            self._worker.wake()

    def _drop(self, job: Job) -> None:
        """Forget a job, unless a later attempt of it has come in meanwhile."""
        if self._held.get(job.ref) is job:
            del self._held[job.ref]
            if job.lane in self._in_lane:
                self._in_lane[job.lane] -= 1
