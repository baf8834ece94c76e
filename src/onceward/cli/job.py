"""`onceward job`: look at jobs, enqueue them, act on them."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from datetime import timedelta
from typing import Annotated
from uuid import UUID

import typer

from onceward import calls, jsonsafe
from onceward.attempts import runs
from onceward.cli import output, values
from onceward.cli.actions import act_on_each
from onceward.cli.explain import explain_job
from onceward.cli.framework import AsJson, Delay, Id, Ids, Noun, RunAt
from onceward.cli.job_enqueue import enqueue
from onceward.cli.job_show import History, print_job
from onceward.cli.output import Column
from onceward.cli.session import Session, session_of
from onceward.cli.values import UsageProblem
from onceward.errors import JobFailed, NotAllowed, UnknownJob, WaitTimeout, is_connection_trouble
from onceward.model import FINISHED, STATES, JobFilter, JobInfo, Json
from onceward.model_audit import AuditEntry

# How long `job wait` asks a server that does not answer, in seconds.
PATIENCE = 60.0

app = Noun(help="List, show, enqueue and act on jobs.")


@app.command("list")
def list_(
    ctx: typer.Context,
    state: Annotated[
        list[str] | None,
        typer.Option(
            metavar="STATES",
            help="Only these states; repeat it or use commas.",
            autocompletion=lambda: list(STATES),
        ),
    ] = None,
    lane: Annotated[str | None, typer.Option(metavar="NAME", help="Only this lane.")] = None,
    task: Annotated[str | None, typer.Option(metavar="NAME", help="Only this task.")] = None,
    key: Annotated[str | None, typer.Option(metavar="KEY", help="Only this idempotency key.")] = None,
    error: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Only if the last error contains this.")
    ] = None,
    fingerprint: Annotated[
        str | None, typer.Option(metavar="HEX", help="Only if the last error has this fingerprint.")
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Created since; ISO 8601, or a duration back, as 2h.")
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help="Created before; ISO 8601, or a duration back, as 2h.")
    ] = None,
    limit: Annotated[int, typer.Option(metavar="N", help="At most this many.")] = 50,
    before: Annotated[
        str | None, typer.Option(metavar="ID", help="Go on after this job of the previous page.")
    ] = None,
    count: Annotated[bool, typer.Option("--count", help="Print only how many there are.")] = False,
    as_json: AsJson = False,
) -> None:
    """List jobs, newest first."""
    session = session_of(ctx)
    wanted = JobFilter(
        states=values.many_of("--state", state, STATES),
        lane=lane,
        task=task,
        tenant=None if session.tenant == "*" else session.tenant,
        key=key,
        error=error,
        fingerprint=fingerprint,
        limit=values.whole("--limit", limit, least=1, most=100_000),
        before=values.job_id(before) if before else None,
    )
    if since or until:
        now = session.run(calls.now())
        wanted = replace(
            wanted,
            since=values.past_moment("--since", since, now),
            until=values.past_moment("--until", until, now),
        )
    if count:
        number = session.run(calls.count_jobs(wanted))
        if not number:
            session.explain_empty(lane=lane, task=task)
        output.print_json({"count": number}) if as_json else print(number)
        return
    jobs = session.run(calls.jobs(wanted))
    if not jobs:
        session.explain_empty(lane=lane, task=task)
    if as_json:
        output.print_json(jobs)
        return
    _print_list(session, jobs, limit)


def _print_list(session: Session, jobs: list[JobInfo], limit: int) -> None:
    if not jobs:
        output.note("no jobs")
        return
    now = session.run(calls.now())
    tenants = {job.tenant for job in jobs} != {"default"}
    output.print_table(
        [
            Column("ID"),
            Column("STATE"),
            Column("TASK", flexible=16),
            Column("LANE", optional=True),
            Column("TRY", right=True),
            Column("CREATED"),
            *([Column("TENANT", optional=True)] if tenants else []),
            Column("RUNS", optional=True),
            Column("LAST ERROR", optional=True, flexible=24),
        ],
        [
            (
                job.id,
                output.styled(job.state),
                job.task,
                job.lane,
                f"{job.attempt}/{job.max_attempts}",
                output.ago(job.created_at, now),
                *([job.tenant] if tenants else []),
                output.ago(job.run_at, now) if job.state == "scheduled" else "-",
                _error_line(job.last_error),
            )
            for job in jobs
        ],
    )
    if len(jobs) == limit:
        output.note(f"there may be more: add --before {jobs[-1].id}")


def _error_line(error: Json) -> str:
    return f"{error.get('type')}: {error.get('message')}" if error else "-"


@app.command("show")
def show(
    ctx: typer.Context,
    job: Id,
    full: Annotated[bool, typer.Option("--full", help="Whole tracebacks and payloads.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show one job: where it stands, why, its attempts, steps, payload and result."""
    session = session_of(ctx)
    found = find(session, values.job_id(job))
    attempts = session.run(calls.attempts(found.id))
    edits = session.run(calls.payload_edits(found.id))
    steps = session.run(calls.steps(found.id))
    reasons = session.run(calls.explain(found.id))
    if as_json:
        more = {"reasons": reasons, "attempts": attempts, "steps": steps, "payload_edits": edits}
        output.print_json({**output.to_json(found), **output.to_json(more)})
        return
    history = History(reasons, runs(attempts, _audited(session, found.id)), steps, edits)
    print_job(session, found, history, full=full)


def _audited(session: Session, job: UUID) -> list[AuditEntry]:
    """Who has requeued it; who may not read the audit log sees where runs begin by how the ones before ended."""
    try:
        return session.run(calls.audit_of(job))
    except NotAllowed:
        return []


def find(session: Session, job: UUID) -> JobInfo:
    found = session.run(calls.job(job))
    # A role that sees every tenant was asked to look at one.
    if found is None or session.tenant not in {None, "*", found.tenant}:
        where = f' of tenant "{session.tenant}"' if session.tenant not in {None, "*"} else ""
        session.explain_empty()
        raise UnknownJob(
            f"job {job}{where} does not exist",
            hint='Look for it with "onceward job list".',
        )
    return found


app.command("explain")(explain_job)
app.command("enqueue")(enqueue)


@app.command("cancel")
def cancel(
    ctx: typer.Context,
    jobs: Ids,
    reason: Annotated[str | None, typer.Option(metavar="TEXT", help="Why; kept with the job.")] = None,
    as_json: AsJson = False,
) -> None:
    """Cancel jobs: at once, or through their worker when they run (state cancelling)."""
    act_on_each(session_of(ctx), values.job_ids(jobs), lambda job: calls.cancel(job, reason), as_json=as_json)


@app.command("requeue")
def requeue(
    ctx: typer.Context,
    jobs: Ids,
    payload: Annotated[
        str | None,
        typer.Option(
            metavar="JSON", help="Run with this payload instead: JSON, @file or -. The old one is kept."
        ),
    ] = None,
    delay: Delay = None,
    run_at: RunAt = None,
    as_json: AsJson = False,
) -> None:
    """Run dead letters, cancelled or resolved jobs again, with fresh attempts."""
    session = session_of(ctx)
    ids = values.job_ids(jobs)
    if payload is not None and len(ids) > 1:
        raise UsageProblem("--payload goes with one job", hint="Requeue them one by one.")
    text = jsonsafe.dumps(values.payload("--payload", payload)) if payload is not None else None
    start = values.start_time(delay, run_at, lambda: session.run(calls.now()))
    act_on_each(session, ids, lambda job: calls.requeue(job, payload=text, run_at=start), as_json=as_json)


@app.command("resolve")
def resolve(
    ctx: typer.Context,
    jobs: Ids,
    note: Annotated[
        str, typer.Option(metavar="TEXT", help="How it was settled; kept with the job.", show_default=False)
    ],
    override: Annotated[
        bool,
        typer.Option("--override", help="Even if the check of the task does not pass; this is recorded."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Settle dead letters by hand, with a note."""
    act_on_each(
        session_of(ctx),
        values.job_ids(jobs),
        lambda job: calls.resolve(job, note, override=override),
        state="resolved",
        as_json=as_json,
    )


@app.command("run-now")
def run_now(ctx: typer.Context, jobs: Ids, as_json: AsJson = False) -> None:
    """Start scheduled jobs without waiting for their time."""
    act_on_each(session_of(ctx), values.job_ids(jobs), calls.run_now, as_json=as_json)


@app.command("wait")
def wait(
    ctx: typer.Context,
    job: Id,
    timeout: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Give up after this time. Without it: never.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Wait until a job ends and print its result; exit status 1 when it failed."""
    session = session_of(ctx)
    wanted = find(session, values.job_id(job)).id
    limit = values.duration("--timeout", timeout)
    state, result, error, note = _await_outcome(session, wanted, limit)
    if as_json:
        output.print_json({"id": wanted, "state": state, "result": result, "last_error": error, "note": note})
    elif state == "done":
        output.print_json(result)
    if state != "done":
        why = note or (f"{error.get('type')}: {error.get('message')}" if error else None)
        raise JobFailed(
            f"job {wanted} ended as {state}", detail=why, hint=f'See "onceward job show {wanted}".'
        )


def _await_outcome(
    session: Session, job: UUID, limit: timedelta | None
) -> tuple[str, Json, Json, str | None]:
    end = None if limit is None else time.monotonic() + limit.total_seconds()
    pause = 0.02
    lost_at: float | None = None
    while True:
        try:
            outcome = session.run(calls.outcome(job))
        except Exception as error:
            if not is_connection_trouble(error):
                raise
            # The job goes on without us, and to ask again changes nothing.
            if lost_at is None:
                lost_at = time.monotonic()
                output.note("The connection was lost; trying again …")
            if time.monotonic() >= min(lost_at + PATIENCE, math.inf if end is None else end):
                raise
            time.sleep(pause)
            pause = min(pause * 1.5, 1.0)
            continue
        lost_at = None
        if outcome is None:
            raise UnknownJob(f"job {job} does not exist")
        if outcome[0] in FINISHED or outcome[0] == "dead_letter":
            return outcome
        if end is not None and time.monotonic() >= end:
            assert limit is not None
            raise WaitTimeout(
                f"job {job} has not ended within {output.short(limit)}",
                detail=f"Job {job} is in state {outcome[0]} and goes on.",
                hint=f'Wait longer, or see "onceward job show {job}".',
            )
        time.sleep(pause if end is None else max(min(pause, end - time.monotonic()), 0))
        pause = min(pause * 1.5, 1.0)
