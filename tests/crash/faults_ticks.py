"""Many schedulers, killed all the time, and a clock that moves: every slot fires once."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from datetime import UTC, datetime

from onceward.testing.clock import Clock, install_clock
from tests.crash.arena import Arena
from tests.crash.verdict import Verdict
from tests.crash.waiting import until

# A quarter of an hour before the clocks of Los Angeles change.
START = datetime(2026, 3, 8, 9, 45, tzinfo=UTC)
FIRED = """
select count(*), count(distinct (t.schedule_id, t.slot)), count(distinct j.id), count(distinct j.headers ->> 'slot')
  from onceward.ticks as t left join onceward.jobs as j on j.id = t.job_id where t.outcome = 'fired' and t.schedule = %s
"""


def ticks(arena: Arena, *, schedulers: int, ticks: int) -> Verdict:
    """The clock moves second by second; nothing may be fired twice, nothing left out."""
    install_clock(arena.dsn)
    clock = Clock(arena.dsn)
    clock.pin(START)
    for name, spec in (("seconds", "1 second"), ("minutes", "* * * * * America/Los_Angeles")):
        arena.execute(
            "select onceward.add_schedule(%s, 'work', %s, p_missed => 'all', p_catch_up => 100000, p_overlap => 'allow')",
            name,
            spec,
        )
    expected = {"seconds": ticks, "minutes": ticks // 60}
    program = subprocess.Popen(
        [sys.executable, "-m", "tests.crash.schedulers", arena.dsn, str(schedulers), str(arena.seed)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        for _ in range(ticks):
            clock.advance("1 s")
        until(
            lambda: arena.value("select min(next_at) > onceward.now() from onceward.schedules"),
            what="everything that is due has fired",
        )
        injected, _ = program.communicate(timeout=60)
    finally:
        program.kill()
        program.wait()
    found = {name: arena.query(FIRED, name)[0] for name in expected}
    missed = arena.value("select coalesce(sum(slots), 0)::int from onceward.ticks where outcome <> 'fired'")
    problems = [
        f"{name}: expected {expected[name]}, found {counts}"
        for name, counts in found.items()
        if set(counts) != {expected[name]}
    ]
    jobs = arena.value("select count(*) from onceward.jobs")
    total = sum(expected.values())
    deadlocks = arena.value("select deadlocks from pg_stat_database where datname = current_database()")
    return Verdict(
        "ticks",
        arena.seed,
        {"schedulers": schedulers, "ticks": ticks, **json.loads(injected)},
        {
            "lost": max(total - jobs, 0),
            "twice": max(jobs - total, 0),
            "missed": missed,
            "deadlocks": deadlocks,
        },
        facts={"fired": jobs},
        problems=problems,
        seconds=round(time.monotonic() - arena.began, 1),
    )
