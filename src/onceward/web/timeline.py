"""A job's life to scale: waiting, attempts, and the steps inside them, each as a bar on one common axis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from onceward.attempts import Run
from onceward.model import AttemptInfo, JobInfo, StepInfo

WIDTH = 1000
# Whatever is shorter is still seen.
LEAST = 5
MOST_STEPS = 60


@dataclass(frozen=True, slots=True)
class Bar:
    """One line of the time line; x and width are thousandths of the whole."""

    label: str
    kind: str
    outcome: str
    start: datetime
    end: datetime | None
    took: timedelta
    x: float
    width: float
    detail: str = ""


def end_of(job: JobInfo, attempts: Sequence[AttemptInfo], now: datetime) -> datetime:
    """When the story ends: a dead letter's with its last attempt, a live job's now."""
    if job.state == "dead_letter" and attempts:
        return attempts[-1].ended_at or now
    return job.finished_at or now


def bars(job: JobInfo, runs: Sequence[Run], steps: Sequence[StepInfo], now: datetime) -> list[Bar]:
    attempts = [attempt for run in runs for attempt in run.attempts]
    run_of = {attempt.epoch: run.number for run in runs for attempt in run.attempts}
    begin = job.created_at
    end = max([end_of(job, attempts, now), *(attempt.ended_at or now for attempt in attempts)])
    whole = max((end - begin).total_seconds(), 0.001)

    def bar(
        label: str, kind: str, outcome: str, start: datetime, stop: datetime | None, detail: str = ""
    ) -> Bar:
        last = min(stop or now, end)
        x = max((start - begin).total_seconds() / whole, 0) * WIDTH
        width = max((last - start).total_seconds() / whole * WIDTH, LEAST)
        x = min(x, WIDTH - width) if width < WIDTH else 0
        return Bar(
            label, kind, outcome, start, stop, (stop or now) - start, round(x, 2), round(width, 2), detail
        )

    found: list[Bar] = []
    ready = begin
    left = list(steps[:MOST_STEPS])
    for attempt in attempts:
        if attempt.started_at - ready > timedelta(milliseconds=1):
            found.append(bar("Waited", "wait", "waited", ready, attempt.started_at))
        error = ": ".join(part for part in (attempt.error_type, attempt.message) if part)
        found.append(
            bar(
                f"Attempt {attempt.attempt}" + (f", run {run_of[attempt.epoch]}" if len(runs) > 1 else ""),
                "attempt",
                attempt.outcome,
                attempt.started_at,
                attempt.ended_at,
                error,
            )
        )
        inside = [
            step for step in left if step.started_at < (attempt.ended_at or now) or attempt is attempts[-1]
        ]
        left = [step for step in left if step not in inside]
        found += [
            bar(step.name, "step", step.state, step.started_at, step.finished_at, _about(step))
            for step in inside
        ]
        ready = attempt.ended_at or now
    if job.state in {"scheduled", "ready", "blocked"}:
        found.append(bar("Waits", "wait", job.state, ready, None))
    return found


def _about(step: StepInfo) -> str:
    parts = [] if step.kind == "step" else [step.kind]
    parts += [f"{step.tries} tries"] if step.tries > 1 else []
    parts += [f"{step.error.get('type')}: {step.error.get('message')}"] if step.error else []
    return ", ".join(parts)
