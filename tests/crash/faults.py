"""All faults, with the counts of `make test` and the full ones of `make chaos ARGS=--full`."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.crash.arena import Arena, Server
from tests.crash.faults_network import cuts, half_open, resets
from tests.crash.faults_processes import deploys, hogs, kills, zombies
from tests.crash.faults_races import deadlocks, unique
from tests.crash.faults_server import restarts, terminated
from tests.crash.faults_storm import storm
from tests.crash.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Fault:
    inject: Callable[..., Verdict]
    small: dict[str, int]
    full: dict[str, int]


FAULTS = {
    "kills": Fault(kills, {"kills": 200, "jobs": 20_000}, {"kills": 10_000, "jobs": 1_000_000}),
    "zombies": Fault(zombies, {"zombies": 50}, {"zombies": 1_000}),
    "deploys": Fault(deploys, {"deploys": 50, "jobs": 5_000}, {"deploys": 500, "jobs": 50_000}),
    "hogs": Fault(hogs, {"hogs": 6}, {"hogs": 100}),
    "restarts": Fault(restarts, {"restarts": 10}, {"restarts": 1_000}),
    "sessions": Fault(terminated, {"sessions": 150}, {"sessions": 18_000}),
    "cuts": Fault(cuts, {"cuts": 200, "jobs": 3_000}, {"cuts": 10_000, "jobs": 150_000}),
    "hangs": Fault(half_open, {"hangs": 1}, {"hangs": 20}),
    "resets": Fault(resets, {"resets": 100, "jobs": 2_000}, {"resets": 10_000, "jobs": 200_000}),
    "unique": Fault(unique, {"clients": 64, "keys": 150}, {"clients": 64, "keys": 10_000}),
    "storm": Fault(storm, {"storms": 60}, {"storms": 10_000}),
    "hunt": Fault(deadlocks, {"hunters": 32, "seconds": 60}, {"hunters": 32, "seconds": 1_800}),
}


def run(server: Server, name: str, seed: int, counts: dict[str, int], *, keep: Path | None = None) -> Verdict:
    """Inject one fault in a database of its own.  What goes wrong on the way is part of the verdict."""
    with server.arena(seed) as arena:
        try:
            verdict = FAULTS[name].inject(arena, **counts)
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
