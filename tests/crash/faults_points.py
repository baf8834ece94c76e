"""Every crash point: a worker dies before, or right after, the n-th statement that its process sends, for every n.

The proxy counts the statements of the engine and of the handlers alike.  Each point has a lane of its own with the same few
jobs, so many of them are tried at once.  Whoever takes over dies at its own n-th statement as well; a third one ends the work.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence

from onceward import Client
from tests.crash.arena import Arena
from tests.crash.clients import ATTEMPTS, RETRY
from tests.crash.fleet import Life
from tests.crash.ledger import ClientLedger
from tests.crash.proxy import Proxy, Strike
from tests.crash.verdict import Verdict
from tests.crash.waiting import until

JOBS = [
    ("work", "plain"), ("work", "tx"), ("work", "flaky"), ("work", "snooze"), ("work_sync", "plain"), ("work_sync", "tx"),
]  # fmt: skip
LEASE = 2.0
UNFINISHED = "select distinct lane from onceward.jobs where state <> 'done'"


class Point:
    """One lane with its jobs, and where its workers die."""

    def __init__(self, arena: Arena, number: int, at: int, *, after: bool) -> None:
        self._arena = arena
        self.lane = f"point-{number}"
        self.at = at
        self.after = after
        self.hit: list[str] = []
        self.calls = 0
        arena.execute("select onceward.add_lane(%s)", self.lane)

    def fill(self, client: Client, ledger: ClientLedger) -> None:
        for number, (task, mode) in enumerate(JOBS):
            token = f"{self.lane}-{number}"
            op = ledger.invoke([token])
            ref = client.enqueue(
                task,
                {"token": token, "mode": mode},
                lane=self.lane,
                key=token,
                max_attempts=ATTEMPTS,
                retry=RETRY,
            )
            ledger.ok(op, [(ref.id, ref.created)])

    def start(self, *, strike: bool) -> None:
        self._proxy = Proxy(self._arena.server.port, self._arena.seed)
        started = threading.Event()

        def blow() -> None:
            started.wait()
            self._arena.signal(self._life, "kill")

        if strike:
            self._proxy.strike = Strike(self.at, self.after, blow)
        self._life: Life = self._arena.spawn(
            dsn=self._proxy.dsn(self._arena.name), lanes={self.lane: None}, lease=LEASE, grace=5.0, poll=0.2
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
        self._proxy.close()
        self.calls = self._proxy.calls.total()
        strike = self._proxy.strike
        if strike is not None and strike.kind:
            self.hit.append(f"{strike.kind} {'after' if self.after else 'before'}")


def points(arena: Arena, *, points: int, at_once: int) -> Verdict:
    """The first `points` of all crash points, in random order; all of them, if there are not so many."""
    ledger = ClientLedger(arena.folder, "points")
    with Client(arena.dsn) as client:
        whole = Point(arena, 0, 0, after=False)
        whole.fill(client, ledger)
        _work(arena, [whole], strike=False)
        # How many statements a life has depends on its timing; a few more, so that the last are not missed.
        every = [(at, after) for at in range(1, whole.calls + 6) for after in (False, True)]
        arena.random.shuffle(every)
        tried = [
            Point(arena, number, at, after=after)
            for number, (at, after) in enumerate(every[:points], start=1)
        ]
        for point in tried:
            point.fill(client, ledger)
    for first in range(0, len(tried), at_once):
        group = tried[first : first + at_once]
        _work(arena, group, strike=True)
        _work(arena, group, strike=True)
        _work(arena, group, strike=False)
    ledger.close()
    hit = Counter(kind for point in tried for kind in point.hit)
    return arena.verdict(
        "every crash point",
        {"points": len(tried), "deaths": hit.total()},
        facts={
            "statements_of_a_life": whole.calls,
            "points_there_are": len(every),
            "not_reached": sum(not point.hit for point in tried),
            "died_at": dict(sorted(hit.items())),
        },
        problems=[] if hit else ["nobody died"],
    )


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
