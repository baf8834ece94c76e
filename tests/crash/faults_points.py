"""Every crash point: a worker dies before, or right after, the n-th call of each kind that its process makes, for every n.

The proxy counts the statements of the engine and of the handlers alike, and what the sink hears.  Each point has a lane
of its own with the same few jobs, so many of them are tried at once.  Whoever takes over dies at the same call of its own
life; a third one ends the work.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from onceward import Client
from tests.crash.arena import Arena
from tests.crash.clients import ATTEMPTS, RETRY
from tests.crash.fleet import Life
from tests.crash.ledger import ClientLedger
from tests.crash.proxy import Proxy, Strike
from tests.crash.sink import Sink
from tests.crash.verdict import Verdict
from tests.crash.waiting import until

JOBS = [
    ("work", "plain"), ("work", "tx"), ("work", "flaky"), ("work", "snooze"), ("work_sync", "plain"), ("work_sync", "tx"),
]  # fmt: skip
LEASE = 2.0
UNFINISHED = "select distinct lane from onceward.jobs where state <> 'done'"
# Calls of an idle life, whose number depends on the time: a few more, so that the last are not missed.
MORE = 2


@dataclass(frozen=True, slots=True)
class Where:
    """A crash point: which call of a process."""

    kind: str
    at: int
    after: bool


@dataclass(frozen=True, slots=True)
class Cast:
    """The jobs of a point: task and payload by token, which of them others will enqueue, and the lanes besides its own."""

    jobs: Callable[[str], dict[str, tuple[str, dict[str, Any]]]]
    offspring: Callable[[str], list[str]] = field(default=lambda _: [])
    lanes: tuple[str, ...] = ()
    # A process that gets no time for half of it abandons its handlers; those in threads end when they next ask for something.
    lease: float = LEASE


class Point:
    """One lane with its jobs, and where its workers die."""

    def __init__(self, arena: Arena, number: int, cast: Cast, where: Where | None) -> None:
        self._arena = arena
        self._cast = cast
        self.lane = f"point-{number}"
        self.where = where
        self.deaths = 0
        self.calls: Counter[str] = Counter()
        self.heard: list[tuple[str, str, str, int]] = []
        arena.execute("select onceward.add_lane(%s)", self.lane)

    def fill(self, client: Client, ledger: ClientLedger) -> None:
        for token, (task, payload) in self._cast.jobs(self.lane).items():
            op = ledger.invoke([token])
            ref = client.enqueue(task, payload, lane=self.lane, key=token, max_attempts=ATTEMPTS, retry=RETRY)
            ledger.ok(op, [(ref.id, ref.created)])
            # Whether these come to be is for the job to decide; if so, once each.
            if tokens := self._cast.offspring(token):
                ledger.unknown(ledger.invoke(tokens), "enqueued by a job")

    def start(self, *, strike: bool) -> None:
        self._proxy = Proxy(self._arena.server.port, self._arena.seed)
        self._sink = Sink(self._proxy)
        started = threading.Event()

        def blow() -> None:
            started.wait()
            self._arena.signal(self._life, "kill")

        if strike and self.where is not None:
            self._proxy.strike = Strike(self.where.kind, self.where.at, self.where.after, blow)
        self._life: Life = self._arena.spawn(
            dsn=self._proxy.dsn(self._arena.name),
            sink=self._sink.port,
            lanes=dict.fromkeys([self.lane, *self._cast.lanes]),
            lease=self._cast.lease,
            grace=5.0,
            poll=0.2,
        )
        started.set()

    @property
    def is_dead(self) -> bool:
        return not self._life.alive

    def leave(self) -> None:
        """Its last words are crash points too."""
        if self._life.alive:
            self._arena.signal(self._life, "term")

    def end(self) -> None:
        self._arena.until_exited(self._life, 60)
        self._sink.close()
        self._proxy.close()
        self.calls += self._proxy.calls
        self.heard += self._sink.heard
        self.deaths += self._proxy.strike is not None and self._proxy.strike.struck


@dataclass(slots=True)
class Exhaustion:
    """What was tried, and what became of it."""

    tried: list[Point]
    points_there_are: int
    calls_of_a_life: Counter[str]
    heard: list[tuple[str, str, str, int]]

    @property
    def deaths(self) -> Counter[str]:
        died: Counter[str] = Counter()
        for point in self.tried:
            assert point.where is not None
            died[f"{point.where.kind} {'after' if point.where.after else 'before'}"] += point.deaths
        return +died

    @property
    def injected(self) -> dict[str, int]:
        return {"points": len(self.tried), "deaths": self.deaths.total()}

    @property
    def facts(self) -> dict[str, Any]:
        return {
            "calls_of_a_life": self.calls_of_a_life.total(),
            "points_there_are": self.points_there_are,
            "not_reached": sum(not point.deaths for point in self.tried),
            "died_at": dict(sorted(self.deaths.items())),
        }


def points(arena: Arena, *, points: int, at_once: int) -> Verdict:
    """The first `points` of all crash points of jobs without steps; all of them, if there are not so many."""
    found = exhaust(arena, Cast(_jobs), points=points, at_once=at_once)
    return arena.verdict(
        "every crash point",
        found.injected,
        facts=found.facts,
        problems=[] if found.deaths else ["nobody died"],
    )


def exhaust(arena: Arena, cast: Cast, *, points: int, at_once: int) -> Exhaustion:
    """Find out what a life calls, then have workers die at each of these calls."""
    ledger = ClientLedger(arena.folder, "points")
    with Client(arena.dsn) as client:
        whole = Point(arena, 0, cast, None)
        whole.fill(client, ledger)
        _work(arena, [whole], strike=False)
        every = _every(arena, whole.calls)
        tried = [Point(arena, number, cast, where) for number, where in enumerate(every[:points], start=1)]
        for point in tried:
            point.fill(client, ledger)
    for first in range(0, len(tried), at_once):
        group = tried[first : first + at_once]
        _work(arena, group, strike=True)
        _work(arena, group, strike=True)
        _work(arena, group, strike=False)
    ledger.close()
    heard = [effect for point in [whole, *tried] for effect in point.heard]
    return Exhaustion(tried, len(every), whole.calls, heard)


def _every(arena: Arena, calls: Counter[str]) -> list[Where]:
    """In random order, but kind by kind in turn: however few are tried, they are of as many kinds as can be."""
    by_kind = [
        arena.random.sample(range(1, count + MORE), count + MORE - 1) for _, count in sorted(calls.items())
    ]
    kinds = [
        [Where(kind, at, after) for at in order]
        for kind, order in zip(sorted(calls), by_kind, strict=True)
        for after in (False, True)
    ]
    arena.random.shuffle(kinds)
    return [where for turn in zip_longest(*kinds) for where in turn if where is not None]


def _jobs(lane: str) -> dict[str, tuple[str, dict[str, Any]]]:
    return {
        f"{lane}-{number}": (task, {"token": f"{lane}-{number}", "mode": mode})
        for number, (task, mode) in enumerate(JOBS)
    }


def _work(arena: Arena, group: Sequence[Point], *, strike: bool) -> None:
    for point in group:
        point.start(strike=strike)

    def is_over() -> bool:
        unfinished = {row[0] for row in arena.query(UNFINISHED)}
        return all(point.is_dead or point.lane not in unfinished for point in group)

    until(is_over, what=f"{len(group)} lanes empty, or their workers dead")
    for point in group:
        point.leave()
    for point in group:
        point.end()
