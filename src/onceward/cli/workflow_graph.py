"""The jobs of a workflow as lines: one per job, indented by what it comes after; many equal ones as one line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from rich.text import Text

from onceward.cli import output
from onceward.cli.output import Column
from onceward.model import STATES, WorkflowJob

# More equal jobs than this are one line.
MANY = 5
# As many names of other jobs are given in one line.
NAMES = 3
LIVE = frozenset({"scheduled", "ready", "running", "blocked"})


@dataclass(frozen=True, slots=True)
class Line:
    """One job, or many equal ones: same task, after the same jobs, without names of their own."""

    jobs: Sequence[WorkflowJob]
    depth: int


def print_graph(jobs: Sequence[WorkflowJob], *, full: bool) -> None:
    known = {job.id: job for job in jobs}
    output.print_table(
        [
            Column("JOB", flexible=20),
            Column("TASK", optional=True, flexible=16),
            Column("STATE"),
            Column("TRY", right=True),
            Column("AFTER", flexible=24),
            Column("ID", optional=True),
        ],
        [_cells(line, known) for line in lines(jobs, many=len(jobs) if full else MANY)],
    )


def lines(jobs: Sequence[WorkflowJob], *, many: int = MANY) -> list[Line]:
    """In order of depth: whoever waits stands below those that it waits for."""
    depth: dict[UUID, int] = {}
    # Ids rise: what a job comes after was there before it.
    for job in sorted(jobs, key=lambda job: job.id):
        before = [*(job.after or ()), *([job.parent_id] if job.parent_id else ())]
        depth[job.id] = max((depth[other] + 1 for other in before if other in depth), default=0)
    equal: dict[object, list[WorkflowJob]] = {}
    for job in jobs:
        key = job.id if job.node else (depth[job.id], job.task, job.parent_id, tuple(job.after or ()))
        equal.setdefault(key, []).append(job)
    found = [
        Line(part, depth[part[0].id])
        for group in equal.values()
        for part in ([group] if len(group) > many else [[job] for job in group])
    ]
    return sorted(found, key=lambda line: (line.depth, line.jobs[0].id))


def _cells(line: Line, known: Mapping[UUID, WorkflowJob]) -> tuple[object, ...]:
    job = line.jobs[0]
    # A table keeps no spaces at the beginning of plain text.
    indent = Text("  " * line.depth)
    if len(line.jobs) > 1:
        name = indent + Text(output.one_line(f"{job.task} × {len(line.jobs):,}"))
        return name, job.task, by_state(each.state for each in line.jobs), "", _after(job, known), ""
    name = indent + Text(output.one_line(job.node or job.task))
    state = output.styled(job.state)
    return name, job.task, state, f"{job.attempt}/{job.max_attempts}", _after(job, known), job.id


def by_state(states: Iterable[str] | Mapping[str, int]) -> str:
    """`998 done, 2 ready`, in the order of a job's life."""
    count = Counter(states)
    return ", ".join(f"{count[state]:,} {state}" for state in STATES if count[state])


def _after(job: WorkflowJob, known: Mapping[UUID, WorkflowJob]) -> str:
    if not job.after:
        return f"child of {_names([job.parent_id], known)}" if job.parent_id else "-"
    policy = f" ({job.after_policy})" if job.after_policy not in {None, "fail"} else ""
    waits = [other for other in job.after if other in known and known[other].state in LIVE]
    if job.state != "blocked" or not waits:
        return _names(job.after, known) + policy
    if len(waits) == len(job.after):
        return f"waits for {_names(waits, known)}{policy}"
    return f"{_names(job.after, known)}{policy}: waits for {_names(waits, known)}"


def _names(ids: Sequence[UUID], known: Mapping[UUID, WorkflowJob]) -> str:
    """Equal names once, with how often; a job of another workflow by its id."""
    names = Counter(
        (known[other].node or known[other].task) if other in known else str(other) for other in ids
    )
    shown = [name if count == 1 else f"{name} × {count:,}" for name, count in names.items()]
    rest = len(shown) - NAMES
    return ", ".join(shown[:NAMES]) + (f" and {rest:,} more" if rest > 0 else "")
