"""`onceward schedule`: what is enqueued again and again."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

import typer

from onceward import calls
from onceward.cli import output, values
from onceward.cli.framework import AsJson, Noun
from onceward.cli.output import Column
from onceward.cli.schedule_add import add
from onceward.cli.schedule_export import export
from onceward.cli.session import Session, session_of
from onceward.cli.values import UsageProblem
from onceward.errors import UnknownSchedule, shown
from onceward.model_schedules import NextTick, ScheduleInfo, TickInfo

app = Noun(help="List, show, add, pause, resume, run and drop schedules.")
app.command("add")(add)
app.command("export")(export)
Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the schedule.", show_default=False)]


def find(session: Session, name: str) -> ScheduleInfo:
    """The one schedule of this name that the role may see."""
    tenant = None if session.tenant == "*" else session.tenant
    found = session.run(calls.schedules([name], tenant=tenant))
    if len(found) > 1:
        raise UsageProblem(
            f'schedule "{shown(name)}" exists for {len(found)} tenants',
            detail=f"Tenants: {', '.join(info.tenant for info in found[:20])}.",
            hint="Name one with --tenant.",
        )
    if not found:
        known = [info.name for info in session.run(calls.schedules(tenant=tenant))]
        if not known:
            session.explain_empty()
        raise UnknownSchedule(
            f'schedule "{shown(name)}" does not exist',
            detail=f"Known schedules: {', '.join(known[:20])}." if known else None,
            hint=values.join_hints(values.did_you_mean(name, known), 'See "onceward schedule list".'),
        )
    return found[0]


@app.command("list")
def list_(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List schedules with their next moment."""
    session = session_of(ctx)
    tenant = None if session.tenant == "*" else session.tenant
    known = session.run(calls.schedules(tenant=tenant))
    if as_json:
        output.print_json(known)
    if not known:
        session.explain_empty()
        if not as_json:
            output.note("no schedules")
    if as_json or not known:
        return
    now = session.run(calls.now())
    output.print_table(
        [
            Column("SCHEDULE"),
            Column("STATE"),
            Column("SPEC", flexible=12),
            Column("ZONE"),
            Column("NEXT"),
            Column("LAST"),
            Column("OUTCOME"),
            Column("TASK", optional=True),
            Column("SOURCE", optional=True),
            Column("TENANT", optional=True),
        ],
        [
            (
                info.name,
                output.styled(info.state),
                info.spec,
                info.zone,
                output.ago(info.next_at, now),
                output.ago(info.last_fire_at, now),
                info.last_outcome or "-",
                info.task,
                _source(info),
                info.tenant,
            )
            for info in known
        ],
    )


def _source(info: ScheduleInfo) -> str:
    return info.source if info.declared else "code, undeclared"


@app.command("show")
def show(ctx: typer.Context, name: Name, as_json: AsJson = False) -> None:
    """Show a schedule, its next ten moments and its last ticks."""
    session = session_of(ctx)
    info = find(session, name)
    coming = [] if info.next_at is None else _coming(session, info)
    past = session.run(calls.ticks(info.id))
    if as_json:
        output.print_json({**output.to_json(info), "next_ticks": coming, "ticks": past})
        return
    now = session.run(calls.now())
    output.print_fields(
        [
            ("schedule", info.name),
            ("state", output.styled(info.state)),
            ("paused", _paused(info, now)),
            ("spec", f"{info.spec}   ({info.zone})"),
            ("task", f"{info.task}   in lane {info.lane}, priority {info.priority}"),
            ("payload", output.compact_json(info.payload)),
            ("missed", _missed(info)),
            ("overlap", info.overlap),
            ("jitter", output.short(info.jitter) if info.jitter else None),
            ("tenant", info.tenant),
            ("source", _source(info) + (f" ({info.app})" if info.app else "")),
            ("changed", f"{output.when_and_ago(info.changed_at, now)} by {info.changed_by}"),
        ]
    )
    output.heading("Next")
    _print_coming(coming, info.zone)
    output.heading("Last ticks")
    _print_past(past, now)


def _coming(session: Session, info: ScheduleInfo) -> list[NextTick]:
    assert info.next_at is not None
    assert info.next_slot is not None
    # What is stored comes first, also when it is overdue.
    later = session.run(calls.next_ticks(info.spec, info.zone, after=info.next_at, count=9))
    return [NextTick(info.next_slot, info.next_at), *later]


def _paused(info: ScheduleInfo, now: datetime) -> str | None:
    if info.paused_at is None:
        return None
    reason = f": {info.pause_reason}" if info.pause_reason else ""
    return f"{output.when_and_ago(info.paused_at, now)} by {info.paused_by}{reason}"


def _missed(info: ScheduleInfo) -> str:
    match info.missed:
        case "all":
            return f"all, at most {info.catch_up}"
        case "none":
            return f"none, unless within {output.short(info.grace)}"
        case other:
            return other


def _print_coming(coming: list[NextTick], zone: str) -> None:
    local = _zone(zone)
    output.print_table(
        [Column("LOCAL TIME"), Column("UTC"), Column("SLOT", optional=True, style="dim")],
        [
            (
                tick.fire_at.astimezone(local).strftime("%a %Y-%m-%d %H:%M:%S %Z") if local else "-",
                output.when(tick.fire_at),
                tick.slot,
            )
            for tick in coming
        ],
    )


def _zone(name: str) -> ZoneInfo | None:
    """The zone, written in any case, as PostgreSQL takes it; None when this machine does not know what the server knows."""
    spelled = {known.lower(): known for known in available_timezones()}.get(name.lower(), name)
    try:
        return ZoneInfo(spelled)
    except (ZoneInfoNotFoundError, ValueError):
        return None


def _print_past(past: list[TickInfo], now: datetime) -> None:
    output.print_table(
        [
            Column("SLOT"),
            Column("OUTCOME"),
            Column("SLOTS", right=True),
            Column("TICKED"),
            Column("JOB"),
            Column("REASON", optional=True, flexible=20),
        ],
        [
            (
                tick.slot,
                tick.outcome,
                tick.slots,
                output.ago(tick.ticked_at, now),
                tick.job_id or "-",
                tick.reason or "-",
            )
            for tick in past
        ],
    )


@app.command("preview")
def preview(
    ctx: typer.Context,
    spec: Annotated[
        str,
        typer.Argument(
            metavar="SPEC", help="Cron expression, times of day, or interval.", show_default=False
        ),
    ],
    zone: Annotated[
        str | None, typer.Option(metavar="ZONE", help="Time zone, as Europe/Berlin. Without it: UTC.")
    ] = None,
    count: Annotated[int, typer.Option(metavar="N", help="How many moments.")] = 10,
    after: Annotated[
        str | None, typer.Option(metavar="TIME", help="From this time on, ISO 8601. Without it: now.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show when a spec would fire. Nothing is stored."""
    values.whole("--count", count, least=1, most=10_000)
    start = values.moment("--after", after)
    coming = session_of(ctx).run(calls.next_ticks(spec, zone, after=start, count=count))
    if as_json:
        output.print_json(coming)
        return
    last_word = spec.split()[-1]
    _print_coming(coming, zone or (last_word if "/" in last_word else "UTC"))


@app.command("pause")
def pause(
    ctx: typer.Context,
    name: Name,
    reason: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Why; shown to everyone who looks.")
    ] = None,
) -> None:
    """Stop a schedule. Jobs that it has enqueued go on."""
    session = session_of(ctx)
    changed = session.run(calls.pause_schedule(name, reason, tenant=find(session, name).tenant))
    output.note(f'schedule "{name}" is paused' if changed else f'schedule "{name}" was paused already')


@app.command("resume")
def resume(ctx: typer.Context, name: Name) -> None:
    """Let a paused schedule fire again. What fell into the pause is not caught up."""
    session = session_of(ctx)
    changed = session.run(calls.resume_schedule(name, tenant=find(session, name).tenant))
    output.note(f'schedule "{name}" is active' if changed else f'schedule "{name}" was not paused')


@app.command("run")
def run(ctx: typer.Context, name: Name, as_json: AsJson = False) -> None:
    """Enqueue the job of a schedule at once, and print its id."""
    session = session_of(ctx)
    job = session.run(calls.run_schedule_now(name, tenant=find(session, name).tenant))
    if as_json:
        output.print_json({"id": job})
    else:
        print(job)


@app.command("drop")
def drop(ctx: typer.Context, name: Name) -> None:
    """Remove a schedule. Its jobs and the record of its ticks stay."""
    session = session_of(ctx)
    info = find(session, name)
    session.run(calls.drop_schedule(name, tenant=info.tenant))
    output.note(f'schedule "{name}" is gone')
    if info.source == "code" and info.declared:
        output.note("hint: Code declares it: it comes back with the next start of a worker.")
