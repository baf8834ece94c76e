"""`onceward dead-letter`: jobs that gave up and wait for a person, one by one or by filter."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated
from uuid import UUID

import typer

from onceward import calls, jsonsafe
from onceward.cli import job as job_commands
from onceward.cli import output, values
from onceward.cli.actions import act_on_each, act_on_many
from onceward.cli.dead_letter_care import assign, comment, comments
from onceward.cli.framework import AsJson, Delay, Id, Noun, RunAt
from onceward.cli.output import Column
from onceward.cli.session import Session, session_of
from onceward.cli.values import UsageProblem
from onceward.errors import OncewardError
from onceward.model import DeadLetterGroup, JobFilter

app = Noun(help="Look after, requeue or settle jobs that gave up.")
EVERYTHING = 2_000_000_000

SomeIds = Annotated[
    list[str] | None,
    typer.Argument(metavar="[ID...]", help="Ids of dead letters; or use a filter.", show_default=False),
]
Task = Annotated[str | None, typer.Option(metavar="NAME", help="Only this task.")]
Lane = Annotated[str | None, typer.Option(metavar="NAME", help="Only this lane.")]
Error = Annotated[str | None, typer.Option(metavar="TEXT", help="Only if the error message contains this.")]
Fingerprint = Annotated[str | None, typer.Option(metavar="HEX", help="Only failures of this fingerprint.")]
Since = Annotated[
    str | None, typer.Option(metavar="TIME", help="Gave up since; ISO 8601, or a duration back, as 2h.")
]
Until = Annotated[
    str | None, typer.Option(metavar="TIME", help="Gave up before; ISO 8601, or a duration back, as 2h.")
]
Everything = Annotated[bool, typer.Option("--all", help="All dead letters.")]
Most = Annotated[
    int | None, typer.Option("--limit", metavar="N", help="At most this many, the oldest first.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")]


@dataclass(frozen=True)
class Wanted:
    """The filter options as they were typed."""

    task: str | None
    lane: str | None
    error: str | None
    fingerprint: str | None
    since: str | None
    until: str | None

    @property
    def given(self) -> bool:
        return any(value is not None for value in vars(self).values())

    def read(self, session: Session, *, limit: int) -> JobFilter:
        wanted = JobFilter(
            task=self.task,
            lane=self.lane,
            tenant=None if session.tenant == "*" else session.tenant,
            error=self.error,
            fingerprint=self.fingerprint,
            limit=limit,
        )
        if self.since is None and self.until is None:
            return wanted
        now = session.run(calls.now())
        return replace(
            wanted,
            since=values.past_moment("--since", self.since, now),
            until=values.past_moment("--until", self.until, now),
        )


@app.command("list")
def list_(
    ctx: typer.Context,
    task: Task = None,
    lane: Lane = None,
    error: Error = None,
    fingerprint: Fingerprint = None,
    since: Since = None,
    until: Until = None,
    limit: Annotated[int, typer.Option(metavar="N", help="At most this many.")] = 50,
    group: Annotated[
        bool, typer.Option("--group", help="One line per kind of failure (fingerprint).")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List dead letters, latest first."""
    session = session_of(ctx)
    values.whole("--limit", limit, least=1, most=100_000)
    wanted = Wanted(task, lane, error, fingerprint, since, until).read(session, limit=limit)
    total = session.run(calls.count_dead_letters(wanted))
    if not total:
        session.explain_empty(lane=lane, task=task)
    if group:
        groups = session.run(calls.dead_letter_groups(wanted))
        output.print_json(groups) if as_json else _print_groups(session, groups)
    else:
        letters = session.run(calls.dead_letters(wanted))
        if as_json:
            output.print_json(letters)
        elif letters:
            now = session.run(calls.now())
            tenants = {letter.tenant for letter in letters} != {"default"}
            output.print_table(
                [
                    Column("ID"),
                    Column("TASK", flexible=16),
                    Column("LANE", optional=True),
                    Column("TRY", right=True, optional=True),
                    Column("GAVE UP"),
                    Column("FINGERPRINT", optional=True),
                    *([Column("TENANT", optional=True)] if tenants else []),
                    Column("ERROR", flexible=30),
                ],
                [
                    (
                        letter.id,
                        letter.task,
                        letter.lane,
                        f"{letter.attempt}/{letter.max_attempts}",
                        output.ago(letter.dead_at, now),
                        letter.fingerprint or "-",
                        *([letter.tenant] if tenants else []),
                        _error(letter.error_type, letter.message),
                    )
                    for letter in letters
                ],
            )
    if not as_json:
        _print_total(total, len(letters) if not group else None)


def _print_total(total: int, shown: int | None) -> None:
    if not total:
        output.note("no dead letters")
    elif shown is not None and shown < total:
        output.note(
            f"{shown} of {output.counted(total, 'dead letter')}; see more with --limit, or sum up with --group"
        )
    else:
        output.note(output.counted(total, "dead letter"))


def _error(kind: str | None, message: str | None) -> str:
    return ": ".join(part for part in (kind, message) if part) or "-"


def _print_groups(session: Session, groups: list[DeadLetterGroup]) -> None:
    if not groups:
        return
    now = session.run(calls.now())
    output.print_table(
        [
            Column("COUNT", right=True),
            Column("FINGERPRINT"),
            Column("TASK", flexible=16),
            Column("FIRST"),
            Column("LAST"),
            Column("ERROR (LATEST)", flexible=24),
            Column("SAMPLE", optional=True, style="dim"),
        ],
        [
            (
                f"{group.count:,}",
                group.fingerprint or "-",
                group.task,
                output.ago(group.first_dead_at, now),
                output.ago(group.last_dead_at, now),
                _error(group.error_type, group.message),
                group.id,
            )
            for group in groups
        ],
    )


@app.command("show")
def show(
    ctx: typer.Context,
    job: Id,
    full: Annotated[bool, typer.Option("--full", help="Whole tracebacks and payloads.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show one dead letter: its error, attempts and payload."""
    job_commands.show(ctx, job, full=full, as_json=as_json)


@app.command("requeue")
def requeue(
    ctx: typer.Context,
    jobs: SomeIds = None,
    task: Task = None,
    lane: Lane = None,
    error: Error = None,
    fingerprint: Fingerprint = None,
    since: Since = None,
    until: Until = None,
    everything: Everything = False,
    limit: Most = None,
    payload: Annotated[
        str | None,
        typer.Option(metavar="JSON", help="With one id: run with this payload instead; JSON, @file or -."),
    ] = None,
    delay: Delay = None,
    run_at: RunAt = None,
    yes: Yes = False,
    dry_run: DryRun = False,
) -> None:
    """Run dead letters again, with fresh attempts: by id, or all that a filter finds."""
    session = session_of(ctx)
    if payload is not None and len(jobs or ()) != 1:
        raise UsageProblem("--payload goes with exactly one id")
    text = jsonsafe.dumps(values.payload("--payload", payload)) if payload is not None else None
    start = values.start_time(delay, run_at, lambda: session.run(calls.now()))
    wanted = Wanted(task, lane, error, fingerprint, since, until)
    chosen = _choose(session, jobs, wanted, everything=everything, limit=limit)

    def make(job: UUID) -> calls.Call[str]:
        return calls.requeue(job, payload=text, run_at=start)

    if chosen.by_id:
        if not dry_run:
            act_on_each(session, chosen.ids, make)
        else:
            _preview(session, chosen, "requeue")
    elif _agreed(session, chosen, "requeue", yes=yes, dry_run=dry_run):
        act_on_many(session, chosen.ids, make, verb="Requeueing", done_word="requeued")


@app.command("resolve")
def resolve(
    ctx: typer.Context,
    jobs: SomeIds = None,
    note: Annotated[
        str | None, typer.Option(metavar="TEXT", help="How they were settled; required, kept with each.")
    ] = None,
    override: Annotated[
        bool,
        typer.Option("--override", help="Even if the check of the task does not pass; this is recorded."),
    ] = False,
    task: Task = None,
    lane: Lane = None,
    error: Error = None,
    fingerprint: Fingerprint = None,
    since: Since = None,
    until: Until = None,
    everything: Everything = False,
    limit: Most = None,
    yes: Yes = False,
    dry_run: DryRun = False,
) -> None:
    """Settle dead letters by hand, with a note: by id, or all that a filter finds."""
    if (note is None or not note.strip()) and not dry_run:
        raise UsageProblem("--note is missing", hint='Say how it was settled: --note "refunded by hand".')
    session = session_of(ctx)
    wanted = Wanted(task, lane, error, fingerprint, since, until)
    chosen = _choose(session, jobs, wanted, everything=everything, limit=limit)

    def make(job: UUID) -> calls.Call[None]:
        return calls.resolve(job, note or "", override=override)

    if chosen.by_id:
        if not dry_run:
            act_on_each(session, chosen.ids, make, state="resolved")
        else:
            _preview(session, chosen, "resolve")
    elif _agreed(session, chosen, "resolve", yes=yes, dry_run=dry_run):
        act_on_many(session, chosen.ids, make, verb="Resolving", done_word="resolved")


app.command("assign")(assign)
app.command("comment")(comment)
app.command("comments")(comments)


# ---------------------------------------------------------------- choosing


@dataclass(frozen=True)
class Chosen:
    """What a bulk action takes: exactly these, whatever turns up meanwhile."""

    ids: list[UUID]
    by_id: bool
    wanted: JobFilter


def _choose(
    session: Session, jobs: list[str] | None, wanted: Wanted, *, everything: bool, limit: int | None
) -> Chosen:
    if jobs and (wanted.given or everything):
        raise UsageProblem("ids and filters cannot be given together", hint="Use one or the other.")
    if limit is not None:
        values.whole("--limit", limit, least=1, most=1_000_000)
    read = wanted.read(session, limit=EVERYTHING if limit is None else limit)
    if jobs:
        return Chosen(values.job_ids(jobs), by_id=True, wanted=read)
    if not wanted.given and not everything and session.tenant is None:
        raise UsageProblem(
            "no dead letters are named",
            hint="Give ids, or a filter: --task, --lane, --error, --fingerprint, --since, --until, --tenant; or --all.",
        )
    return Chosen(session.run(calls.dead_letter_ids(read)), by_id=False, wanted=read)


def _preview(session: Session, chosen: Chosen, verb: str) -> None:
    if chosen.by_id:
        for job in chosen.ids:
            found = job_commands.find(session, job)
            output.note(f"would {verb} {found.id} ({found.task}, {found.state})")
        return
    if len(chosen.ids) < chosen.wanted.limit:
        groups = session.run(calls.dead_letter_groups(replace(chosen.wanted, limit=11)))
        _print_groups(session, groups[:10])
        if len(groups) > 10:
            output.note("… and other kinds of failure")


def _agreed(session: Session, chosen: Chosen, verb: str, *, yes: bool, dry_run: bool) -> bool:
    """Show what would be done, and ask."""
    if not chosen.ids:
        session.explain_empty(lane=chosen.wanted.lane, task=chosen.wanted.task)
        output.note(f"no dead letters to {verb}")
        return False
    if dry_run or not yes:
        _preview(session, chosen, verb)
    count = output.counted(len(chosen.ids), "dead letter")
    if dry_run:
        output.note(f"would {verb} {count}")
        return False
    if yes or output.confirm(f"{verb.capitalize()} {count}?"):
        return True
    raise OncewardError("not confirmed", detail="Nothing was changed.", hint="Answer y, or add --yes.")
