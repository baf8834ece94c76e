"""Workers whose clocks are wrong by an hour.  The server's clock is the only one that counts."""

from __future__ import annotations

from collections import Counter

from tests.crash import clients
from tests.crash.arena import Arena
from tests.crash.clients import Work
from tests.crash.fleet import Life
from tests.crash.ledger import History
from tests.crash.verdict import Verdict

HOUR = 3600
SKEWS = [HOUR, -HOUR, HOUR, -HOUR, 0]
LEASE = 6.0
# Further from the truth than this, a clock was not corrected by its own skew: it was right all the time.
TOLERANCE = 60_000_000_000


def clocks(arena: Arena, *, jobs: int, kills: int) -> Verdict:
    """Delays, retries, leases and rescues among workers that disagree by two hours; some are killed."""
    fleet = [_worker(arena, skew) for skew in SKEWS]
    producers = clients.produce(arena, jobs, work=_work, backlog=400)
    killed: set[int] = set()
    for count in range(kills):
        arena.until_done(int((count + 1) * 0.8 * jobs / (kills + 1)))
        index = count % len(fleet)
        arena.signal(fleet[index], "kill")
        killed.add(fleet[index].number)
        fleet[index] = _worker(arena, SKEWS[index])
    problems = clients.finish(producers)
    arena.until_quiet()
    if (identities := arena.value("select count(*) from onceward.workers")) != len(arena.lives):
        problems.append(f"{len(arena.lives)} workers took {identities} identities: some lost their lease")
    verdict = arena.verdict(
        "wrong clocks",
        {"jobs": jobs, "kills": kills, "workers_an_hour_off": sum(map(bool, SKEWS))},
        facts=clients.told(producers),
        also=lambda history: _judged(history, arena.skews, killed),
        problems=problems,
    )
    for what in ("false_rescues", "never_wrong"):
        if verdict.facts[what]:
            verdict.problems.append(f"{what}: {verdict.facts[what]}")
    if len(verdict.facts["begun_by_skew"]) != len(set(SKEWS)):
        verdict.problems.append(f"jobs were begun by {verdict.facts['begun_by_skew']} only")
    return verdict


def _worker(arena: Arena, skew: int) -> Life:
    return arena.spawn(skew=skew, concurrency=10, lease=LEASE, grace=5.0, poll=0.5)


def _work(rng):
    """Most of it has to do with time."""
    mode = rng.choices(["plain", "tx", "flaky", "snooze"], [30, 20, 30, 20])[0]
    delay = rng.randrange(50, 3000) if rng.random() < 0.5 else 0
    return Work("work_sync" if rng.random() < 0.25 else "work", rng.randrange(40), mode, delay)


def _judged(history: History, skews: dict[int, int], killed: set[int]) -> dict[str, object]:
    """Rescues of workers that lived, and workers whose clock was right though it should not have been."""
    life_of = {(mark.job, mark.epoch): mark.life for mark in history.begins}
    rescued = [row for row in history.attempts if row.outcome == "rescued"]
    begun = Counter(f"{skews[mark.life]:+d} s" for mark in history.begins)
    # Every process reads the same CLOCK_MONOTONIC, so wall clock minus that is one number for all of them.
    true = {mark.wall - mark.mono for mark in history.begins if not skews[mark.life]}
    offset = min(true, default=0)
    wrong = {mark.life for mark in history.begins if abs(mark.wall - mark.mono - offset) > TOLERANCE}
    return {
        "rescued": len(rescued),
        # One that was not begun has no mark, and was claimed by a worker that died.
        "false_rescues": sum(
            life_of.get((row.job, row.epoch), next(iter(killed), 0)) not in killed for row in rescued
        ),
        "never_wrong": len(wrong),
        "begun_by_skew": dict(begun),
    }
