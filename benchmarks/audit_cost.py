"""What the audit log costs: processor time of server and worker for jobs that do nothing.

    python benchmarks/audit_cost.py --mode ends --mode all --jobs 60000 --rounds 5

Each round makes a database of its own, enqueues the jobs in calls of 1,000 and lets one worker drain them.  The time of
the server is that of all its processes, so nothing else should use it.  Rounds alternate between the modes.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import time
from dataclasses import dataclass

import psutil
import psycopg
from psycopg.conninfo import make_conninfo

from onceward import Onceward
from onceward.dsn import resolve_dsn
from onceward.install import upgrade
from onceward.worker import Worker

app = Onceward()
DATABASE = "audit_cost"


@app.task(name="nothing")
async def nothing() -> None:
    pass


@dataclass(frozen=True)
class Cost:
    """Microseconds of processor time per job, and jobs per second."""

    enqueue: float
    server: float
    worker: float
    rate: float


def server_seconds(conn: psycopg.Connection[tuple[object, ...]]) -> float:
    """Processor time of the server's processes, those that have ended included."""
    (pid,) = conn.execute("select pg_backend_pid()").fetchone() or (0,)
    parent = psutil.Process(int(str(pid))).parent()
    assert parent is not None
    times = []
    for process in (parent, *parent.children(recursive=True)):
        # One that has just ended is among the children's times below.
        with contextlib.suppress(psutil.NoSuchProcess):
            times.append(process.cpu_times())
    ended = parent.cpu_times()
    return sum(t.user + t.system for t in times) + ended.children_user + ended.children_system


def measure(dsn: str, mode: str, jobs: int) -> Cost:
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(f"drop database if exists {DATABASE} with (force)")
        conn.execute(f"create database {DATABASE}")
    dsn = make_conninfo(dsn, dbname=DATABASE)
    upgrade(dsn)
    with psycopg.connect(dsn, autocommit=True) as conn:
        if mode == "all":
            conn.execute("select onceward.audit_lane('default', 'all')")
        began = server_seconds(conn)
        for _ in range(jobs // 1000):
            conn.execute(
                "select count(*) from onceward.enqueue_many('nothing', array_fill('{}'::jsonb, array[1000]))"
            )
        conn.execute("checkpoint")
        filled = server_seconds(conn)
        ours, clock = time.process_time(), time.monotonic()
        asyncio.run(Worker(app, dsn=dsn).drain())
        ours, clock = time.process_time() - ours, time.monotonic() - clock
        ended = server_seconds(conn)
        (left,) = conn.execute("select count(*) from onceward.job_private").fetchone() or (0,)
        assert left == 0
    return Cost((filled - began) / jobs * 1e6, (ended - filled) / jobs * 1e6, ours / jobs * 1e6, jobs / clock)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mode", action="append", choices=("asis", "ends", "all"))
    parser.add_argument("--jobs", type=int, default=60_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    modes = given.mode or ["ends", "all"]
    dsn = resolve_dsn(None)
    found: dict[str, list[Cost]] = {mode: [] for mode in modes}
    for _ in range(given.rounds):
        for mode in modes:
            found[mode].append(measure(dsn, mode, given.jobs))
    print(
        f"{'mode':6} {'enqueue µs':>11} {'server µs':>10} {'worker µs':>10} {'jobs/s':>8}   medians of {given.rounds}"
    )
    for mode, costs in found.items():
        values = [
            statistics.median(getattr(cost, name) for cost in costs)
            for name in ("enqueue", "server", "worker", "rate")
        ]
        print(f"{mode:6} {values[0]:11.2f} {values[1]:10.2f} {values[2]:10.2f} {values[3]:8.0f}")


if __name__ == "__main__":
    main()
