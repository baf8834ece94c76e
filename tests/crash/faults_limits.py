"""A fleet under one limit, against a provider that counts: never too much, nearly all, and quiet when it asks for it."""

from __future__ import annotations

import bisect
import subprocess
import sys
import time
from pathlib import Path

from tests.crash.arena import Arena
from tests.crash.verdict import Verdict
from tests.crash.waiting import until

# Requests per period, in seconds.
LIMIT, PERIOD = 1200, 15
SLOTS = 60
LEASE = 3.0
# While the provider refuses, and for how long it asks to wait.
REFUSES, RETRY_AFTER = 1.0, 4
# How long a request may be under way that was begun before anybody had heard of the refusal.
UNDER_WAY = 1.5
NS = 1_000_000_000


class Log:
    """What was asked of the provider."""

    def __init__(self, path: Path) -> None:
        lines = [line.split() for line in path.read_text().splitlines()]
        self.events = [(int(moment), word) for word, moment in lines]
        self.came = sorted(moment for moment, word in self.events if word == "came")
        self.refused = sorted(moment for moment, word in self.events if word == "refused")

    def between(self, start: float, end: float) -> int:
        return bisect.bisect_left(self.came, end) - bisect.bisect_left(self.came, start)

    def windows(self) -> list[int]:
        """How many came within one period, from each request on."""
        return [self.between(start, start + PERIOD * NS) for start in self.came]

    def most_at_once(self) -> int:
        most = now = 0
        for _, word in sorted(self.events):
            now += {"came": 1, "gone": -1}.get(word, 0)
            most = max(most, now)
        return most


def limits(
    arena: Arena, *, workers: int, tasks: int, kills: int, seconds: int, least_percent: int
) -> Verdict:
    path = arena.folder / "provider.log"
    provider = subprocess.Popen(
        [sys.executable, "-m", "tests.crash.provider", str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert provider.stdin is not None
    assert provider.stdout is not None
    try:
        port = int(provider.stdout.readline())
        arena.execute(
            "select onceward.set_limit('provider', %s, make_interval(secs => %s), p_slots => %s, p_burst => 15, "
            "p_allowance => '300 milliseconds')",
            LIMIT,
            PERIOD,
            SLOTS,
        )
        arena.execute(
            "select onceward.enqueue_many('ask', array_fill(jsonb_build_object('port', %s::int), array[%s]), "
            'p_uses => \'[{"limit": "provider"}]\')',
            port,
            LIMIT * (seconds // PERIOD + 3),
        )
        fleet = [arena.spawn(concurrency=tasks, lease=LEASE, poll=1.0) for _ in range(workers)]
        until(lambda: path.read_text().count("came") > LIMIT // PERIOD, what="the provider is asked")
        began = time.monotonic()
        for number in range(kills):
            _rest_until(began + (number + 1) * seconds / (kills + 1))
            victim = arena.random.choice(fleet)
            arena.signal(victim, "kill")
            fleet.remove(victim)
            fleet.append(arena.spawn(concurrency=tasks, lease=LEASE, poll=1.0))
        _rest_until(began + seconds)
        ended = time.monotonic()
        provider.stdin.write(f"refuse {REFUSES} {RETRY_AFTER}\n")
        provider.stdin.flush()
        _rest_until(ended + REFUSES + RETRY_AFTER + 2)
        problems = arena.end_workers()
        held = arena.value("select slots_held from onceward.limits where name = 'provider'")
        log = Log(path)
    finally:
        provider.kill()
        provider.communicate()
    used = log.between(began * NS, ended * NS) / (LIMIT * (ended - began) / PERIOD)
    # From the last refusal on, when everybody has heard of it, until the pause is over.
    quiet = (log.refused[0] + UNDER_WAY * NS, log.refused[0] + RETRY_AFTER * NS)
    probed = bisect.bisect_left(log.came, quiet[1])
    attempts = dict(arena.query("select outcome, count(*) from onceward.attempts group by 1"))
    if used < least_percent / 100:
        problems.append(f"{used:.1%} of the limit was used, less than {least_percent} %")
    if log.came[probed + 1] - log.came[probed] < 0.1 * NS:
        problems.append("after the pause, more than one came at once")
    if attempts.get("failed"):
        problems.append(f"{attempts['failed']} attempts failed")
    return Verdict(
        "limits",
        arena.seed,
        {"workers": workers, "tasks": tasks, "kills": kills, "refused": len(log.refused)},
        {
            "windows_over": sum(count > LIMIT for count in log.windows()),
            "slots_over": max(0, log.most_at_once() - SLOTS),
            "slots_leaked": held,
            "not_quiet": log.between(*quiet),
        },
        facts={
            "requests": len(log.came),
            "used": round(used, 4),
            "fullest_window": max(log.windows()),
            "limit": LIMIT,
            "most_at_once": log.most_at_once(),
            "handed_back": attempts.get("released", 0),
            "deadlocks": arena.deadlocks(),
        },
        problems=problems,
        seconds=round(time.monotonic() - arena.began, 1),
    )


def _rest_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.monotonic()))
