"""What the figures were measured on, and whether somebody else used the machine meanwhile."""

from __future__ import annotations

import os
import platform
import resource
from dataclasses import dataclass
from pathlib import Path

# Cores taken by others above which a run is marked.
NOISY = 0.35


def describe() -> dict[str, object]:
    """No names of hosts or users: results are published."""
    return {
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "processor": _processor(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")),
        platform.machine(),
    )


@dataclass(frozen=True, slots=True)
class Work:
    """Seconds of processor time so far: of the whole machine, and of this benchmark with its server."""

    everybody: float
    ours: float

    @classmethod
    def now(cls, server_pid: int | None) -> Work | None:
        """None where the system does not tell.  Children must have ended."""
        ticks = os.sysconf("SC_CLK_TCK")
        try:
            user, nice, kernel, _, _, irq, soft = (
                int(field) for field in Path("/proc/stat").read_text().split(maxsplit=8)[1:8]
            )
            server = _tree_ticks(server_pid) if server_pid is not None else 0
        except (OSError, ValueError):
            return None
        own = sum(
            usage.ru_utime + usage.ru_stime
            for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        )
        return cls((user + nice + kernel + irq + soft) / ticks, own + server / ticks)


def foreign_cores(before: Work | None, after: Work | None, seconds: float) -> float | None:
    """Cores that others used in between."""
    if before is None or after is None:
        return None
    foreign = (after.everybody - before.everybody) - (after.ours - before.ours)
    return round(max(0.0, foreign / seconds), 2)


def _tree_ticks(server: int) -> int:
    """Of a server, its backends, and those that have ended."""
    total = 0
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # Ended meanwhile.
        parent, times = int(fields[1]), [int(field) for field in fields[11:15]]
        if int(entry.name) == server:
            total += sum(times)
        elif parent == server:
            total += sum(times[:2])
    return total
