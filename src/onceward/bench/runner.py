"""Goes through the measurements: repeats outside, systems inside, so that noise spreads over all alike."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

import onceward
from onceward.bench import machine
from onceward.bench.measures import GROUPS, Bench, Group
from onceward.bench.metrics import METRICS, NOT_MEASURED, rounded, summary
from onceward.bench.systems import LABELS, PGQUEUER, Systems, versions
from onceward.errors import InvalidArgument
from onceward.registry import nearest_hint

FORMAT = 1
UNITS = {metric.name: metric.unit for metric in METRICS}
# What a line of progress shows of a measurement.
HEADLINES = ("single", "bulk", "transaction_added", "drain_one", "drain_two", "drain_threads", "start_p50",
             "growth_ready_kept", "horizon_kept", "keys_kept", "limits_kept", "fairness_times", "steps_with", "log",
             "audit_kept", "web_p95", "import")  # fmt: skip


@dataclass(slots=True)
class Results:
    """Figures by metric and system, and how each run went."""

    figures: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    runs: list[dict[str, Any]] = field(default_factory=list)
    errors: list[dict[str, str]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Step:
    group: Group
    system: str
    repeat: int


def choose(only: Sequence[str] | None) -> list[Group]:
    known = {group.name: group for group in GROUPS}
    for name in only or ():
        if name not in known:
            raise InvalidArgument(
                f'there is no measurement "{name}"',
                hint=nearest_hint(name, known) or f"Measurements: {', '.join(known)}.",
            )
    return [group for group in GROUPS if not only or group.name in only]


def plan(groups: Iterable[Group], systems: Systems, repeats: int) -> list[Step]:
    return [
        Step(group, system, repeat)
        for group in groups
        for repeat in range(repeats)
        for system in group.systems
        if system != PGQUEUER or systems.has_peer
    ]


def measure(bench: Bench, steps: Iterable[Step], tell: Callable[[Step, str], None]) -> Results:
    """Carry out the steps.  One that fails is noted, and the others go on."""
    results = Results()
    for step in steps:
        tell(step, "")
        bench.notes.clear()
        server = bench.place.server.pid
        before, began = machine.Work.now(server), time.monotonic()
        try:
            figures = step.group.measure(bench, step.system)
        except Exception as error:
            # Results are published: the first line only, because details may show this machine's files.
            trouble = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
            results.errors.append({"group": step.group.name, "system": step.system, "error": trouble})
            tell(step, f"failed: {type(error).__name__}: {error}")
            continue
        seconds = time.monotonic() - began
        foreign = machine.foreign_cores(before, machine.Work.now(server), seconds)
        for metric, value in figures.items():
            results.figures.setdefault(metric, {}).setdefault(step.system, []).append(value)
        results.runs.append(
            {
                "group": step.group.name,
                "system": step.system,
                "repeat": step.repeat + 1,
                "seconds": round(seconds, 1),
                "foreign_cores": foreign,
                "notes": list(bench.notes),
            }
        )
        noise = ["noisy"] if (foreign or 0) > machine.NOISY else []
        said = [_headline(figures), *bench.notes, *noise]
        # Many notes are a table of their own.
        tell(step, ("; " if len(said) < 5 else "\n  ").join(said))
    return results


def document(
    bench: Bench, results: Results, *, command: str, seconds: float, skipped: Sequence[dict[str, str]]
) -> dict[str, Any]:
    systems = bench.systems
    noisy = [run for run in results.runs if (run["foreign_cores"] or 0) > machine.NOISY]
    packages = ("psycopg", "asyncpg", "uvloop", "pydantic")
    return {
        "format": FORMAT,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command,
        "seconds": round(seconds),
        "onceward": onceward.__version__,
        "machine": machine.describe(),
        "server": {"version": bench.place.server_version(), "settings": bench.place.settings()},
        "packages": {
            "onceward": versions(sys.executable, packages),
            "raw": versions(systems.raw_python, packages),
            "pgqueuer": versions(systems.peer_python, ("pgqueuer", "asyncpg", "uvloop"))
            if systems.peer_python
            else None,
        },
        "sizes": asdict(bench.sizes),
        "labels": LABELS,
        "metrics": summary(results.figures),
        "not_measured": list(NOT_MEASURED),
        "skipped": list(skipped),
        "errors": results.errors,
        "noisy_runs": len(noisy),
        "runs": results.runs,
    }


def _headline(figures: dict[str, float]) -> str:
    name = next(name for name in HEADLINES if name in figures)
    return f"{rounded(figures[name]):,} {UNITS[name]}".strip()
