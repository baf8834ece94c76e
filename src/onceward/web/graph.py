"""The graph of a workflow: who waits for whom, from left to right."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from onceward.model import STATES, WorkflowJob

BOX_WIDTH, BOX_HEIGHT, GAP_X, GAP_Y = 176, 44, 56, 14
# More equal jobs than this are one box.
MANY = 4
WORST_FIRST = ("dead_letter", "running", "blocked", "ready", "scheduled", "cancelled", "resolved", "done")


@dataclass(frozen=True, slots=True)
class Box:
    id: UUID
    title: str
    note: str
    state: str
    x: int
    y: int
    current: bool


@dataclass(frozen=True, slots=True)
class Graph:
    boxes: list[Box]
    # Paths of SVG, each with whether it is a child's (spawned) rather than a dependency.
    edges: list[tuple[str, bool]]
    width: int
    height: int


def layout(jobs: Sequence[WorkflowJob], current: UUID) -> Graph:
    """Columns by depth; many equal jobs are one box."""
    depth: dict[UUID, int] = {}
    # Ids rise: what a job comes after was there before it.
    for job in sorted(jobs, key=lambda job: job.id):
        before = [*(job.after or ()), *([job.parent_id] if job.parent_id else ())]
        depth[job.id] = max((depth[other] + 1 for other in before if other in depth), default=0)
    groups: dict[object, list[WorkflowJob]] = {}
    for job in jobs:
        key = job.id if job.node else (depth[job.id], job.task, job.parent_id, tuple(job.after or ()))
        groups.setdefault(key, []).append(job)
    parts = [
        part
        for group in groups.values()
        for part in ([group] if len(group) > MANY else [[job] for job in group])
    ]
    rows: Counter[int] = Counter()
    place: dict[UUID, Box] = {}
    boxes = []
    for part in sorted(parts, key=lambda part: (depth[part[0].id], part[0].id)):
        box = _box(part, depth[part[0].id], rows, current)
        boxes.append(box)
        place.update({job.id: box for job in part})
    edges = {
        (place[other], place[job.id], spawned)
        for job in jobs
        for other, spawned in _before(job)
        if other in place and place[other] is not place[job.id]
    }
    columns, most = max(rows, default=0) + 1, max(rows.values(), default=1)
    return Graph(
        boxes,
        sorted((_curve(start, end), spawned) for start, end, spawned in edges),
        columns * (BOX_WIDTH + GAP_X) - GAP_X + 4,
        most * (BOX_HEIGHT + GAP_Y) - GAP_Y + 4,
    )


def _before(job: WorkflowJob) -> list[tuple[UUID, bool]]:
    """Those that it waits for, else the one that has spawned it."""
    if job.after:
        return [(other, False) for other in job.after]
    return [(job.parent_id, True)] if job.parent_id else []


def _box(part: Sequence[WorkflowJob], depth: int, rows: Counter[int], current: UUID) -> Box:
    job = part[0]
    states = Counter(each.state for each in part)
    worst = next(state for state in WORST_FIRST if states[state])
    if len(part) > 1:
        title = f"{job.task} × {len(part):,}"
        note = ", ".join(f"{states[state]:,} {state.replace('_', ' ')}" for state in STATES if states[state])
    else:
        title = job.node or job.task
        note = (job.task if job.node and job.node != job.task else "") or job.state.replace("_", " ")
    y = rows[depth]
    rows[depth] += 1
    here = any(each.id == current for each in part)
    return Box(
        job.id,
        _cut(title),
        _cut(note, 28),
        worst,
        depth * (BOX_WIDTH + GAP_X) + 2,
        y * (BOX_HEIGHT + GAP_Y) + 2,
        here,
    )


def _cut(text: str, most: int = 22) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _curve(start: Box, end: Box) -> str:
    x1, y1 = start.x + BOX_WIDTH, start.y + BOX_HEIGHT // 2
    x2, y2 = end.x, end.y + BOX_HEIGHT // 2
    middle = (x1 + x2) // 2
    return f"M{x1},{y1} C{middle},{y1} {middle},{y2} {x2},{y2}"
