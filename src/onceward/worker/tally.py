"""What a worker process has done, counted for whoever scrapes it.

Cheap enough to be always on: plain additions in the loop's thread, without a lock.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

from onceward.metrics import Distribution
from onceward.model import Sample

if TYPE_CHECKING:
    from onceward.worker.job import Job

# In seconds.
HANDLERS = (0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0)
ROUND_TRIPS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0)
# Pairs of lane and task that have series of their own; the rest share one.  Code names tasks, so that is plenty.
MOST_PAIRS = 1000
OTHER = "(other)"
# What the database says of a job that was settled, where it is not what the handler wanted.
_STATES = {
    "cancelled": "cancelled",
    "dead_letter": "dead_letter",
    "sent": "done",
    "uncertain": "dead_letter",
    "abandoned": "dead_letter",
}


class Spread:
    """A histogram."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def add(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def read(self, name: str, labels: dict[str, str]) -> Distribution:
        buckets: list[tuple[str, float]] = []
        total = 0
        for bound, count in zip((*map(str, self._bounds), "+Inf"), self._counts, strict=True):
            total += count
            buckets.append((bound, total))
        return Distribution(name, labels, buckets, self._sum)


class Attempts:
    """The attempts of one task in one lane."""

    __slots__ = ("ended", "seconds", "started")

    def __init__(self) -> None:
        self.started = 0
        self.ended: defaultdict[str, int] = defaultdict(int)
        self.seconds = Spread(HANDLERS)


class Tally:
    """The counters of one process, over all the identities that its worker had."""

    def __init__(self, tasks: Collection[str]) -> None:
        self._tasks = tasks
        self._attempts: dict[tuple[str, str], Attempts] = {}
        self.exchanges = Spread(ROUND_TRIPS)
        self.exchange_failures = 0
        self.leases_lost = 0

    def started(self, job: Job) -> Attempts:
        """The attempt begins with its claim.  Returns where to count the rest of it."""
        attempts = self._attempts.get((job.lane, job.task)) or self._find(job.lane, job.task)
        attempts.started += 1
        return attempts

    def _find(self, lane: str, task: str) -> Attempts:
        # The name of a task that this process does not have is somebody's input.
        pair = (lane, task if task in self._tasks else OTHER)
        if len(self._attempts) >= MOST_PAIRS:
            pair = (OTHER, OTHER)
        return self._attempts.setdefault(pair, Attempts())

    def samples(self) -> Iterator[Sample]:
        # Copies: a thread may be about to add to them.
        for (lane, task), attempts in list(self._attempts.items()):
            of = {"lane": lane, "task": task}
            yield Sample("onceward_attempts_started", of, attempts.started)
            for outcome, count in list(attempts.ended.items()):
                yield Sample("onceward_attempts_ended", {**of, "outcome": outcome}, count)
        yield Sample("onceward_worker_leases_lost", {}, self.leases_lost)
        yield Sample("onceward_exchange_failures", {}, self.exchange_failures)

    def distributions(self) -> Iterator[Distribution]:
        for (lane, task), attempts in list(self._attempts.items()):
            yield attempts.seconds.read("onceward_attempt_seconds", {"lane": lane, "task": task})
        yield self.exchanges.read("onceward_exchange_seconds", {})


def outcome_of(answer: Any, expected: str) -> str:
    """What became of an attempt that was settled, by the database's answer."""
    state = answer[0] if isinstance(answer, tuple) else answer
    return _STATES.get(state, expected) if isinstance(state, str) else expected
