"""What happens on the way to the database: replies cut after the commit, calls that arrive late, half-open connections,
resets, latency."""

from __future__ import annotations

import time

from tests.crash import clients
from tests.crash.arena import Arena
from tests.crash.fleet import Life
from tests.crash.proxy import Proxy
from tests.crash.verdict import Verdict

# What workers and clients do, and how often each is cut out of a hundred.
SHARES = {
    "exchange": 35,
    "enqueue_set": 15,
    "enqueue": 8,
    "fail": 10,
    "snooze": 8,
    "commit": 10,
    "effect_and_end": 8,
    "heartbeat": 2,
    "promote": 2,
    "rescue": 2,
}
# A half-open connection is replaced within 15 s, and its work is done; the rest is for a busy machine.
REPLACED_WITHIN = 15.0
SLACK = 10.0


def cuts(arena: Arena, *, cuts: int, jobs: int, workers: int) -> Verdict:
    """The reply to a committed call is swallowed and the connection closed; some calls arrive after their client left."""
    with Proxy(arena.server.port, arena.seed) as proxy:
        dsn = proxy.dsn(arena.name)
        for _ in range(workers):
            _worker(arena, proxy)
        for kind, share in SHARES.items():
            count = max(1, cuts * share // 100)
            late = count // 5 if kind in {"exchange", "fail", "enqueue_set"} else 0
            proxy.cut(kind, count, rate=0.3)
            if late:
                proxy.cut(kind, late, rate=0.3, late=True)
        producers = clients.produce(arena, jobs, dsn=dsn, backlog=300)
        more: list[clients.Producer] = []
        problems = clients.finish(producers)
        # The rarer calls need more jobs until all cuts are made.
        while proxy.cuts_left and len(more) < 50:
            more.append(clients.Producer(arena, f"more{len(more)}", max(100, jobs // 10), dsn=dsn))
            more[-1].start()
            problems += more[-1].finish()
            arena.until_quiet()
        arena.until_quiet()
        if proxy.cuts_left:
            problems.append(f"{proxy.cuts_left} cuts could not be made")
        made = {"replies": proxy.cut_replies.total(), "late": proxy.late_calls.total()}
        return arena.verdict(
            "commit reply cut",
            {**made, "jobs": jobs},
            facts={
                "replies": dict(proxy.cut_replies),
                "late": dict(proxy.late_calls),
                **clients.told([*producers, *more]),
            },
            problems=problems,
        )


def half_open(arena: Arena, *, hangs: int, jobs: int) -> Verdict:
    """Connections that stay open and pass nothing on are replaced, and the worker keeps its identity."""
    with Proxy(arena.server.port, arena.seed) as proxy:
        # Handlers have connections of their own, and would need deadlines of their own.
        life = _worker(arena, proxy, lease=60.0, handlers_dsn=arena.dsn)
        arena.until_registered(life)
        problems: list[str] = []
        slowest = 0.0
        for count in range(hangs):
            identities = arena.value("select count(*) from onceward.workers")
            problems += clients.finish(
                clients.produce(arena, jobs, producers=1, work=_short, prefix=f"hang{count}-")
            )
            before = arena.done()
            hung = proxy.hang()
            hung_at = time.monotonic()
            arena.until_more(before, "work after the hang")
            arena.until_quiet()
            slowest = max(slowest, time.monotonic() - hung_at)
            if hung < 2:
                problems.append(f"only {hung} connections were open")
            if arena.value("select count(*) from onceward.workers") != identities:
                problems.append("the worker lost its lease")
        if slowest > REPLACED_WITHIN + SLACK:
            problems.append(f"half-open connections were replaced after {slowest:.1f} s")
        return arena.verdict(
            "half-open", {"hangs": hangs}, facts={"slowest_s": round(slowest, 1)}, problems=problems
        )


def resets(arena: Arena, *, resets: int, jobs: int, workers: int) -> Verdict:
    """Latency on every call and connections reset at random: slower, never wrong."""
    with Proxy(arena.server.port, arena.seed) as proxy:
        proxy.latency = 0.01
        for _ in range(workers):
            _worker(arena, proxy)
        producers = clients.produce(arena, jobs, dsn=proxy.dsn(arena.name), backlog=300)
        count = 0
        while count < resets:
            done = arena.done()
            count += proxy.reset(0.3)
            arena.until_more(done, "work after a reset")
        problems = clients.finish(producers)
        arena.until_quiet()
        return arena.verdict(
            "latency and resets",
            {"resets": count, "jobs": jobs},
            facts=clients.told(producers),
            problems=problems,
        )


def _worker(arena: Arena, proxy: Proxy, **options) -> Life:
    settings = {"concurrency": 20, "lease": 10.0, "grace": 5.0, "poll": 0.5, **options}
    return arena.spawn(dsn=proxy.dsn(arena.name), **settings)


def _short(rng):
    return clients.mixed(rng, ms=10)
