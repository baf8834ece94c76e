"""All faults, with the counts of `make test` and the full ones of `make chaos ARGS=--full`."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.crash.arena import Arena
from tests.crash.faults_clocks import clocks
from tests.crash.faults_disk import disk_full
from tests.crash.faults_flows import flows
from tests.crash.faults_limits import limits
from tests.crash.faults_network import cuts, half_open, resets
from tests.crash.faults_points import points
from tests.crash.faults_poison import poisoned
from tests.crash.faults_pooler import pooler
from tests.crash.faults_processes import deploys, hogs, kills, zombies
from tests.crash.faults_races import deadlocks, unique
from tests.crash.faults_server import restarts, terminated
from tests.crash.faults_step_points import step_points
from tests.crash.faults_storm import storm
from tests.crash.faults_ticks import ticks
from tests.crash.server import Server
from tests.crash.verdict import CannotInject, Verdict


@dataclass(frozen=True, slots=True)
class Fault:
    """How to inject it, and how often: in the tests, and for the figures that we want to reach."""

    inject: Callable[..., Verdict]
    small: dict[str, int]
    full: dict[str, int]


FAULTS = {
    "kills": Fault(
        kills,
        {"kills": 200, "jobs": 20_000, "workers": 4},
        {"kills": 10_000, "jobs": 1_000_000, "workers": 6},
    ),
    "points": Fault(points, {"points": 12, "at_once": 12}, {"points": 10_000, "at_once": 12}),
    "step_points": Fault(step_points, {"points": 24, "at_once": 12}, {"points": 10_000, "at_once": 12}),
    "flows": Fault(
        flows, {"flows": 200, "steps": 20, "workers": 3}, {"flows": 1_000, "steps": 50, "workers": 4}
    ),
    "zombies": Fault(zombies, {"zombies": 50, "at_once": 10}, {"zombies": 1_000, "at_once": 8}),
    "deploys": Fault(
        deploys, {"deploys": 50, "jobs": 5_000, "workers": 4}, {"deploys": 500, "jobs": 50_000, "workers": 4}
    ),
    "hogs": Fault(hogs, {"hogs": 6}, {"hogs": 100}),
    "restarts": Fault(
        restarts,
        {"restarts": 10, "jobs_each": 300, "workers": 3},
        {"restarts": 1_000, "jobs_each": 300, "workers": 3},
    ),
    "sessions": Fault(
        terminated,
        # What other tests do meanwhile changes the rate, but does not take most of it; the long form runs alone.
        {"sessions": 150, "at_once": 3, "workers": 3, "kept_percent": 30},
        {"sessions": 18_000, "at_once": 3, "workers": 3, "kept_percent": 95},
    ),
    "cuts": Fault(
        cuts, {"cuts": 200, "jobs": 3_000, "workers": 2}, {"cuts": 10_000, "jobs": 150_000, "workers": 2}
    ),
    "hangs": Fault(half_open, {"hangs": 1, "jobs": 300}, {"hangs": 20, "jobs": 300}),
    "resets": Fault(
        resets,
        {"resets": 100, "jobs": 2_000, "workers": 3},
        {"resets": 10_000, "jobs": 200_000, "workers": 3},
    ),
    "pooler": Fault(
        pooler,
        # How soon a job begins depends on what else the machine does: the long form asks for 1.5 s.
        {"kills": 4, "sessions": 12, "restarts": 2, "workers": 3, "lone_jobs": 8, "start_ms": 3_000},
        {
            "kills": 1_000,
            "sessions": 3_000,
            "restarts": 100,
            "workers": 6,
            "lone_jobs": 1_000,
            "start_ms": 1_500,
        },
    ),
    "disk": Fault(disk_full, {"fills": 3, "workers": 3}, {"fills": 100, "workers": 3}),
    "clocks": Fault(clocks, {"jobs": 1_500, "kills": 3}, {"jobs": 200_000, "kills": 400}),
    "poison": Fault(poisoned, {"cases": 6_000, "workers": 2}, {"cases": 1_000_000, "workers": 2}),
    "unique": Fault(unique, {"clients": 64, "keys": 150}, {"clients": 64, "keys": 10_000}),
    "ticks": Fault(ticks, {"schedulers": 20, "ticks": 1_000}, {"schedulers": 20, "ticks": 10_000}),
    "limits": Fault(
        limits,
        # How much is used depends on what else the machine does: the long form asks for the promised 95 %.
        {"workers": 8, "tasks": 64, "kills": 4, "seconds": 30, "least_percent": 85},
        {"workers": 8, "tasks": 64, "kills": 400, "seconds": 3_600, "least_percent": 95},
    ),
    "hunt": Fault(deadlocks, {"hunters": 32, "seconds": 60}, {"hunters": 32, "seconds": 1_800}),
    "storm": Fault(storm, {"storms": 50, "workers": 5}, {"storms": 10_000, "workers": 8}),
}


def run(server: Server, name: str, seed: int, counts: dict[str, int], *, keep: Path | None = None) -> Verdict:
    """Inject one fault in a database of its own.  What goes wrong on the way is part of the verdict."""
    with server.arena(seed) as arena:
        try:
            verdict = FAULTS[name].inject(arena, **counts)
        except CannotInject as reason:
            return Verdict(name, seed, counts, {}, skipped=str(reason))
        except Exception as error:
            verdict = _broken(arena, name, counts, error)
        if keep is not None and not verdict.clean:
            arena.save(keep / f"{name}-{seed}")
    return verdict


def _broken(arena: Arena, name: str, counts: dict[str, Any], error: Exception) -> Verdict:
    where = "".join(traceback.format_exception(error)).splitlines()[-6:]
    problems = [repr(error), *where]
    try:
        return arena.verdict(name, counts, problems=problems)
    except Exception as again:
        return Verdict(name, arena.seed, counts, {}, problems=[*problems, repr(again)])
