"""What happens to the server: immediate restarts, sessions terminated."""

from __future__ import annotations

import statistics
import time

import psycopg

from tests.crash import clients
from tests.crash.arena import Arena
from tests.crash.verdict import Verdict

# Jobs are counted in windows of so many seconds, and the median of so many counts.
WINDOW, WINDOWS = 0.5, 5
# When the rate of before has to be back.
REGAINED_WITHIN = 60.0
TERMINATE = """
select pg_terminate_backend(pid), application_name from pg_stat_activity
 where datname = current_database() and backend_type = 'client backend' and pid <> pg_backend_pid()
 -- The engine's own rather than those of handlers, of which there are many.
 order by random() * case when application_name like 'onceward%%' then 0.3 else 1 end limit %s
"""


def restarts(arena: Arena, *, restarts: int, jobs_each: int, workers: int) -> Verdict:
    """`pg_ctl stop -m immediate` and start again, under load; the workers come back by themselves."""
    for _ in range(workers):
        arena.spawn(concurrency=20, lease=6.0, grace=5.0, poll=0.5)
    producers = clients.produce(arena, 100_000_000, backlog=1000)
    slowest = 0.0
    for _ in range(restarts):
        before = arena.done()
        arena.until_done(before + jobs_each)
        arena.server.embedded.restart_immediate()
        ready, before = time.monotonic(), arena.done()
        arena.until_more(before, "work after the restart")
        slowest = max(slowest, time.monotonic() - ready)
    for producer in producers:
        producer.stop()
    problems = clients.finish(producers)
    arena.until_quiet()
    return arena.verdict(
        "hard database restart",
        {"restarts": restarts},
        facts={"slowest_until_busy_s": round(slowest, 2), **clients.told(producers)},
        problems=problems,
    )


class Throughput:
    """Jobs that end, counted in windows: how fast it was, and whether it is so again."""

    def __init__(self, arena: Arena) -> None:
        self._arena = arena
        self._rates: list[float] = []

    def window(self) -> float:
        began, before = time.monotonic(), self._arena.done()
        time.sleep(WINDOW)
        rate = (self._arena.done() - before) / (time.monotonic() - began)
        self._rates.append(rate)
        return rate

    @property
    def median(self) -> float:
        """Of the last windows."""
        return statistics.median(self._rates[-WINDOWS:])

    def settled(self) -> float:
        """As many windows as count."""
        for _ in range(WINDOWS):
            self.window()
        return self.median

    def regained(self, rate: float) -> bool:
        """Wait until the last windows are as good as that.  A crowded machine may take its time."""
        deadline = time.monotonic() + REGAINED_WITHIN
        while self.settled() < rate:
            if time.monotonic() > deadline:
                return False
        return True


def terminated(arena: Arena, *, sessions: int, at_once: int, workers: int, kept_percent: int) -> Verdict:
    """`pg_terminate_backend` on sessions chosen at random, of workers, their handlers and clients alike."""
    for _ in range(workers):
        arena.spawn(concurrency=20, lease=6.0, grace=5.0, poll=0.5)
    producers = clients.produce(arena, 100_000_000, backlog=500)
    arena.until_done(200)
    throughput = Throughput(arena)
    before_all = throughput.settled()
    hit: dict[str, int] = {}
    with psycopg.connect(arena.dsn, autocommit=True) as conn:
        while sum(hit.values()) < sessions:
            before = arena.done()
            for gone, name in conn.execute(TERMINATE, [at_once]):
                if gone:
                    hit[name] = hit.get(name, 0) + 1
            arena.until_more(before, "work after sessions were terminated")
    ended = time.monotonic()
    regained = throughput.regained(before_all * kept_percent / 100)
    took = time.monotonic() - ended
    for producer in producers:
        producer.stop()
    problems = clients.finish(producers)
    if not regained:
        problems.append(f"{throughput.median:.0f} jobs/s afterwards, {before_all:.0f} before")
    arena.until_quiet()
    return arena.verdict(
        "sessions terminated",
        {"sessions": sum(hit.values())},
        facts={
            "of": hit,
            "before_per_s": round(before_all),
            "after_per_s": round(throughput.median),
            "kept": round(throughput.median / before_all, 2),
            # The windows themselves are part of it.
            "regained_within_s": round(took, 1),
            **clients.told(producers),
        },
        problems=problems,
    )
