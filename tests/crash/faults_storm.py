"""Everything at once: whatever the other faults do one at a time happens here in random order, some of it together."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

import psycopg

from tests.crash import clients
from tests.crash.arena import Arena
from tests.crash.faults_server import TERMINATE
from tests.crash.fleet import Life
from tests.crash.proxy import Proxy
from tests.crash.verdict import Verdict

LEASE = 3.0
CUT = ["exchange", "fail", "snooze", "release", "adopt", "register_worker", "retire_worker", "heartbeat", "promote",
       "rescue", "enqueue", "enqueue_set", "complete", "cancel"]  # fmt: skip


class Storm:
    """A fleet, half of it behind a proxy, and what can happen to it.  Clients have a proxy of their own, which never
    hangs: what they ask for may rightly take as long as another transaction stays open."""

    def __init__(self, arena: Arena, proxy: Proxy, clients_proxy: Proxy, workers: int) -> None:
        self.arena = arena
        self.proxy = proxy
        self.proxies = [proxy, clients_proxy]
        self.random = arena.random
        self.fleet: list[Life] = []
        # When to wake those that were stopped.
        self.asleep: dict[Life, float] = {}
        for _ in range(workers):
            self._spawn()
        self.actions: dict[Callable[[], None], int] = {
            self.kill: 20,
            self.term: 20,
            self.stop: 10,
            self.reset: 10,
            self.cut: 20,
            self.late: 8,
            self.terminate: 10,
            self.latency: 3,
            self.hang: 2,
            self.restart: 2,
        }

    def one(self) -> str:
        """Let one thing happen, when some jobs have ended since the last."""
        before = self.arena.done()
        action = self.random.choices(list(self.actions), list(self.actions.values()))[0]
        action()
        self.wake(time.monotonic())
        deadline = time.monotonic() + 0.5
        while self.arena.done() < before + 20 and time.monotonic() < deadline:
            time.sleep(0.02)
        return action.__name__

    def wake(self, now: float) -> None:
        for life, until in list(self.asleep.items()):
            if now >= until:
                self.arena.signal(life, "cont")
                del self.asleep[life]

    def kill(self) -> None:
        victim = self._some()
        self.arena.signal(victim, "kill")
        self._replace(victim)

    def term(self) -> None:
        victim = self._some()
        self.arena.signal(victim, "term")
        if self.random.random() < 0.2:
            self.arena.signal(victim, "term")
        self._replace(victim)

    def stop(self) -> None:
        victim = self._some()
        self.arena.signal(victim, "stop")
        # Sometimes past the lease, sometimes not.
        self.asleep[victim] = time.monotonic() + LEASE * self.random.uniform(0.2, 2)

    def reset(self) -> None:
        self.random.choice(self.proxies).reset(0.5)

    def cut(self) -> None:
        kind, count = self.random.choice(CUT), self.random.randrange(1, 4)
        for proxy in self.proxies:
            proxy.cut(kind, count)

    def late(self) -> None:
        kind = self.random.choice(CUT)
        for proxy in self.proxies:
            proxy.cut(kind, 1, late=True)

    def terminate(self) -> None:
        with psycopg.connect(self.arena.dsn, autocommit=True) as conn:
            conn.execute(TERMINATE, [5])

    def latency(self) -> None:
        self.random.choice(self.proxies).latency = self.random.choice([0.0, 0.0, 0.005, 0.1])

    def hang(self) -> None:
        self.proxy.hang()

    def restart(self) -> None:
        self.arena.server.embedded.restart_immediate()

    def calm(self) -> None:
        for proxy in self.proxies:
            proxy.forget_cuts()
            proxy.latency = 0.0
        self.wake(float("inf"))

    def _some(self) -> Life:
        return self.random.choice([life for life in self.fleet if life not in self.asleep] or self.fleet)

    def _spawn(self) -> None:
        through_proxy = len(self.fleet) % 2 == 0
        self.fleet.append(
            self.arena.spawn(
                dsn=self.proxy.dsn(self.arena.name) if through_proxy else None,
                # Their own connections would need deadlines of their own.
                handlers_dsn=self.arena.dsn,
                concurrency=10,
                lease=LEASE,
                grace=self.random.choice([0.1, 1.0, 5.0]),
                poll=0.5,
            )
        )

    def _replace(self, gone: Life) -> None:
        self.fleet.remove(gone)
        if gone in self.asleep:
            # Not left asleep for ever; if it was killed, this does nothing.
            self.arena.signal(gone, "cont")
            del self.asleep[gone]
        self._spawn()


def storm(arena: Arena, *, storms: int, workers: int) -> Verdict:
    with Proxy(arena.server.port, arena.seed) as proxy, Proxy(arena.server.port, arena.seed + 1) as other:
        weather = Storm(arena, proxy, other, workers)
        producers = [
            *clients.produce(arena, 100_000_000, producers=1, backlog=1000),
            *clients.produce(
                arena, 100_000_000, producers=1, backlog=1000, prefix="q", dsn=other.dsn(arena.name)
            ),
        ]
        seen = Counter(weather.one() for _ in range(storms))
        weather.calm()
        for producer in producers:
            producer.stop()
        problems = clients.finish(producers)
        arena.until_quiet()
        cut = {
            "replies cut": (proxy.cut_replies + other.cut_replies).total(),
            "calls late": (proxy.late_calls + other.late_calls).total(),
        }
        return arena.verdict(
            "everything at once", {**seen, **cut}, facts=clients.told(producers), problems=problems
        )
