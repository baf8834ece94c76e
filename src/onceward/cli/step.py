"""`onceward step`: checkpoints inside jobs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

import typer

from onceward import calls
from onceward.cli import output, values
from onceward.cli.framework import AsJson, Id, Noun
from onceward.cli.job import find
from onceward.cli.output import Column
from onceward.cli.session import session_of
from onceward.model import Json, PartialCompletion, StepInfo

app = Noun(help="List steps of jobs, and jobs that stopped half-way.")


@app.command("list")
def list_(ctx: typer.Context, job: Id, as_json: AsJson = False) -> None:
    """List the steps of a job, in the order of its handler."""
    session = session_of(ctx)
    found = find(session, values.job_id(job))
    steps = session.run(calls.steps(found.id))
    if as_json:
        output.print_json(steps)
        return
    if not steps:
        output.note("no steps")
        return
    _print_steps(steps, session.run(calls.now()))


def _print_steps(steps: Sequence[StepInfo], now: datetime) -> None:
    output.print_table(
        [
            Column("STEP", flexible=20),
            Column("STATE"),
            Column("KIND", optional=True),
            Column("TRIES", right=True),
            Column("TOOK", right=True),
            Column("FINISHED", optional=True),
            Column("UNTIL", optional=True),
            Column("RESULT OR ERROR", optional=True, flexible=24),
        ],
        [
            (
                step.name,
                output.styled(step.state),
                step.kind,
                step.tries,
                output.short(step.took) if step.took is not None else "-",
                output.ago(step.finished_at, now),
                until(step) or "-",
                error_line(step.error) or ("-" if step.result is None else output.compact_json(step.result)),
            )
            for step in steps
        ],
    )


def until(step: StepInfo) -> str | None:
    """When a sleep ends or a wait is given up; None when that is never, or not asked."""
    return output.when(step.until) if step.until is not None and step.until.year < output.NEVER else None


def error_line(error: Json) -> str:
    return f"{error.get('type')}: {error.get('message')}" if error else ""


@app.command("partial")
def partial(
    ctx: typer.Context,
    task: Annotated[str | None, typer.Option(metavar="NAME", help="Only this task.")] = None,
    limit: Annotated[int, typer.Option(metavar="N", help="At most this many.")] = 50,
    as_json: AsJson = False,
) -> None:
    """List jobs that stopped half-way: some steps are done, and the job failed or was cancelled."""
    session = session_of(ctx)
    most = values.whole("--limit", limit, least=1, most=100_000)
    tenant = None if session.tenant == "*" else session.tenant
    halves = session.run(calls.partial_completions(task, most, tenant=tenant))
    if not halves:
        session.explain_empty(task=task)
    if as_json:
        output.print_json(halves)
        return
    if not halves:
        output.note("no job has stopped half-way")
        return
    _print_partial(halves)
    if len(halves) == most:
        output.note("there may be more: raise --limit")


def _print_partial(halves: Sequence[PartialCompletion]) -> None:
    output.print_table(
        [
            Column("ID"),
            Column("STATE"),
            Column("TASK", flexible=16),
            Column("TRY", right=True),
            Column("DONE", right=True),
            Column("LAST DONE", flexible=12),
            Column("FAILED AT", flexible=12),
            Column("LAST ERROR", optional=True, flexible=24),
        ],
        [
            (
                half.job_id,
                output.styled(half.state),
                half.task,
                f"{half.attempt}/{half.max_attempts}",
                half.done,
                half.last_done or "-",
                half.last_failed or "-",
                error_line(half.last_error) or "-",
            )
            for half in halves
        ],
    )
