"""One job in full, for a person: where it stands, why, and what happened before."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from rich.text import Text

from onceward import calls
from onceward.attempts import Run
from onceward.cli import output
from onceward.cli.explain import print_reasons
from onceward.cli.job_show_steps import print_steps, relations
from onceward.cli.session import Session
from onceward.model import AttemptInfo, Explanation, JobInfo, Json, PayloadEdit, StepInfo

TRACEBACK_LINES = 6
JSON_LINES = 20


@dataclass(frozen=True, slots=True)
class History:
    """What is kept beside the job itself."""

    reasons: Sequence[Explanation]
    runs: Sequence[Run]
    steps: Sequence[StepInfo]
    edits: Sequence[PayloadEdit]


def print_job(session: Session, job: JobInfo, history: History, *, full: bool) -> None:
    now = session.run(calls.now())
    title = Text("Job ", style="bold")
    title.append(str(job.id), style="bold")
    title.append("  ")
    title.append_text(output.styled(job.state))
    output.stdout().print(title)
    print_reasons(history.reasons)
    output.stdout().print()
    output.print_fields([*_facts(job, now), *relations(session, job)])
    _print_runs(history.runs, now, full=full)
    print_steps(history.steps, now, full=full)
    _print_json("Payload", job.payload, full=full)
    for edit in history.edits:
        _print_json(
            f"Payload before {output.when(edit.edited_at)}, changed by {edit.edited_by}",
            edit.payload_before,
            full=full,
        )
    if job.progress is not None:
        _print_json("Progress", job.progress, full=full)
    if job.state == "done":
        _print_json("Result", job.result, full=full)


def _facts(job: JobInfo, now: datetime) -> list[tuple[str, object]]:
    limit = f" (at most {job.concurrency_limit} at once)" if job.concurrency_key else ""
    return [
        ("task", job.task),
        ("lane", job.lane),
        ("tenant", job.tenant),
        ("priority", job.priority or None),
        (
            "attempts",
            f"{job.attempt} of {job.max_attempts}" + (f", {job.snoozes} snoozes" if job.snoozes else ""),
        ),
        ("created", output.when_and_ago(job.created_at, now)),
        ("run at", output.when_and_ago(job.run_at, now) if job.run_at > job.created_at else None),
        ("started", output.when_and_ago(job.started_at, now) if job.started_at else None),
        ("finished", output.when_and_ago(job.finished_at, now) if job.finished_at else None),
        (
            "took",
            output.short(job.finished_at - job.started_at) if job.finished_at and job.started_at else None,
        ),
        ("expires", output.when_and_ago(job.expires_at, now) if job.expires_at else None),
        ("timeout", output.short(job.timeout) if job.timeout else None),
        ("key", job.key),
        ("concurrency key", f"{job.concurrency_key}{limit}" if job.concurrency_key else None),
        ("retry", output.compact_json(job.retry) if job.retry else None),
        ("headers", output.compact_json(job.headers) if job.headers else None),
        ("cancel asked", output.when_and_ago(job.cancel_at, now) if job.cancel_at else None),
    ]


def _print_runs(runs: Sequence[Run], now: datetime, *, full: bool) -> None:
    for run in runs:
        begun = f", requeued {output.when_and_ago(run.since, now)} by {run.by}" if run.since else ""
        output.heading("Attempts" if len(runs) == 1 else f"Attempts of run {run.number}{begun}")
        _print_attempts(run.attempts, now, full=full, last=run is runs[-1])


def _print_attempts(attempts: Sequence[AttemptInfo], now: datetime, *, full: bool, last: bool) -> None:
    console = output.stdout()
    for attempt in attempts:
        took = f", took {output.short(attempt.ended_at - attempt.started_at)}" if attempt.ended_at else ""
        line = Text(f"  {attempt.attempt}. ")
        line.append_text(Text(attempt.outcome, style=output.STATE_STYLES.get(attempt.outcome, "bold")))
        line.append(f"  {output.when_and_ago(attempt.started_at, now)}{took}")
        console.print(line)
        error = ": ".join(part for part in (attempt.error_type, attempt.message) if part)
        if error:
            output.print_wrapped(error, indent=5)
        facts = [
            f"category {attempt.category}" if attempt.category else "",
            f"fingerprint {attempt.fingerprint}" if attempt.fingerprint else "",
            f"worker {attempt.worker_id}" if attempt.worker_id and full else "",
            f"again {output.when(attempt.retry_at)}"
            if attempt.retry_at and attempt.outcome == "failed"
            else "",
        ]
        if any(facts):
            output.print_wrapped(", ".join(filter(None, facts)), indent=5, style="dim")
        # The others are mostly the same.
        if attempt.traceback and (full or (last and attempt is attempts[-1])):
            _print_lines(attempt.traceback, TRACEBACK_LINES, full=full, last=True)


def _print_json(title: str, value: Json, *, full: bool) -> None:
    output.heading(title)
    _print_lines(json.dumps(value, indent=2, ensure_ascii=False), JSON_LINES, full=full, style="", indent=2)


def _print_lines(
    text: str, most: int, *, full: bool, last: bool = False, style: str = "dim", indent: int = 5
) -> None:
    """The lines, or the first (or last) of them and how many are missing."""
    lines = output.clean(text).rstrip().splitlines()
    hidden = 0 if full else max(len(lines) - most, 0)
    left_out = [f"… {output.counted(hidden, 'more line')}, shown with --full"] if hidden else []
    shown = left_out + lines[-most:] if last and hidden else lines[:most] + left_out if hidden else lines
    for line in shown:
        output.stdout().print(Text(" " * indent + line, style=style))
