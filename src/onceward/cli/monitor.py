"""`onceward monitor`: what is checked again and again, and by which bounds."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer

from onceward import calls
from onceward.cli import output, values
from onceward.cli.framework import AsJson, Noun
from onceward.cli.output import Column
from onceward.cli.session import Session, session_of
from onceward.cli.thresholds import read_threshold, shown_threshold
from onceward.cli.values import UsageProblem
from onceward.errors import UnknownMonitor, shown
from onceward.model_monitors import SEVERITIES, MonitorInfo, MonitorRunInfo, ThresholdInfo

app = Noun(help="List, show, run, set, enable, disable and drop monitors.")
Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the monitor.", show_default=False)]


def find(session: Session, name: str) -> MonitorInfo:
    found = session.run(calls.monitors([name]))
    if not found:
        known = [info.name for info in session.run(calls.monitors())]
        raise UnknownMonitor(
            f'monitor "{shown(name)}" does not exist',
            hint=values.join_hints(values.did_you_mean(name, known), 'See "onceward monitor list".'),
        )
    return found[0]


def status_of(info: MonitorInfo) -> str:
    return (info.last_status or "-") if info.enabled else "disabled"


@app.command("list")
def list_(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List monitors with how their last run went."""
    session = session_of(ctx)
    known = session.run(calls.monitors())
    if as_json:
        output.print_json(known)
        return
    now = session.run(calls.now())
    output.print_table(
        [
            Column("MONITOR"),
            Column("STATUS"),
            Column("EVERY", right=True),
            Column("LAST RUN"),
            Column("NEXT"),
            Column("SOURCE", optional=True),
            Column("CHECKS", flexible=20),
        ],
        [
            (
                info.name,
                output.styled(status_of(info)),
                output.short(info.every),
                output.ago(info.last_run_at, now),
                output.ago(info.next_at, now),
                info.source,
                info.description,
            )
            for info in known
        ],
    )


@app.command("show")
def show(
    ctx: typer.Context,
    name: Name,
    runs: Annotated[int, typer.Option(metavar="N", help="How many of its last runs.")] = 10,
    as_json: AsJson = False,
) -> None:
    """Show a monitor with its thresholds, open alerts and last runs."""
    values.whole("--runs", runs, least=0, most=10_000)
    session = session_of(ctx)
    info = find(session, name)
    bounds = session.run(calls.thresholds(name))
    past = session.run(calls.monitor_runs(name, limit=runs))
    alerts = session.run(calls.alerts(monitor=name))
    if as_json:
        output.print_json({**output.to_json(info), "thresholds": bounds, "runs": past, "alerts": alerts})
        return
    now = session.run(calls.now())
    output.print_fields(_fields(info, now))
    if bounds:
        output.heading("Thresholds")
        _print_thresholds(bounds)
    if alerts:
        output.heading("Open alerts")
        output.print_table(
            [Column("ID"), Column("SEVERITY"), Column("SINCE"), Column("SUMMARY", flexible=30)],
            [
                (alert.id, output.styled(alert.severity), output.ago(alert.first_seen_at, now), alert.summary)
                for alert in alerts
            ],
        )
    if runs:
        output.heading("Last runs")
        _print_runs(past, now)


def _fields(info: MonitorInfo, now: datetime) -> list[tuple[str, object]]:
    return [
        ("monitor", info.name),
        ("status", output.styled(status_of(info))),
        ("error", f"{info.last_error} ({output.counted(info.errors, 'error')} in a row)" if info.errors else None),
        ("checks", info.description),
        ("every", output.short(info.every)),
        ("next", output.when_and_ago(info.next_at, now)),
        ("severity", f"{info.severity}, unless a finding says otherwise"),
        ("opens", f"when it lasts {output.short(info.hold_for)}" if info.hold_for else "at once"),
        ("closes", f"when it is over for {output.short(info.clear_after)}" if info.clear_after else "at once"),
        ("reminds", f"every {output.short(info.remind_every)}" if info.remind_every else "never"),
        ("channels", ", ".join(info.channels) if info.channels else "all"),
        ("source", info.source + (f" ({info.app})" if info.app else "")),
        ("set", f"{output.when_and_ago(info.set_at, now)} by {info.set_by}" if info.set_at else None),
    ]  # fmt: skip


def _print_thresholds(bounds: list[ThresholdInfo]) -> None:
    output.print_table(
        [Column("THRESHOLD"), Column("VALUE", right=True), Column("DEFAULT", right=True), Column("MEANING", flexible=20)],
        [
            (
                bound.name,
                shown_threshold(bound.value, bound.unit),
                shown_threshold(bound.default_value, bound.unit),
                bound.description,
            )
            for bound in bounds
        ],
    )  # fmt: skip


def _print_runs(past: list[MonitorRunInfo], now: datetime) -> None:
    output.print_table(
        [
            Column("STARTED"),
            Column("STATUS"),
            Column("TOOK", right=True),
            Column("FOUND", right=True),
            Column("WHAT", flexible=30),
        ],
        [
            (
                output.ago(run.started_at, now),
                output.styled(run.status),
                "-" if run.took is None else output.short(run.took),
                run.findings,
                run.error
                or "; ".join(item["summary"] for item in run.result or () if item["severity"])
                or "-",
            )
            for run in past
        ],
    )


@app.command("run")
def run(ctx: typer.Context, name: Name, as_json: AsJson = False) -> None:
    """Run a monitor now, also a disabled one. Ends with 1 when the check itself fails."""
    session = session_of(ctx)
    find(session, name)
    outcome = session.run(calls.run_monitor(name))
    if as_json:
        output.print_json(outcome)
    elif outcome.status == "asked":
        output.note(f'monitor "{name}" is due; a worker that knows it runs it soon')
    else:
        print(outcome.status)
        for alert in session.run(calls.alerts(monitor=name)) if outcome.status == "firing" else ():
            output.note(f"{alert.severity}: {alert.summary}")
    if outcome.status == "error":
        if not as_json:
            output.print_error(f'monitor "{name}" cannot check', detail=outcome.error)
        raise typer.Exit(1)


@app.command("set")
def set_(
    ctx: typer.Context,
    name: Name,
    thresholds: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="THRESHOLD=VALUE...",
            help="As warning_age=10m, critical_share=20%, bound=50GB; off switches one off, default takes its default.",
            show_default=False,
        ),
    ] = None,
    every: Annotated[str | None, typer.Option(metavar="DURATION", help="How often it runs.")] = None,
    severity: Annotated[
        str | None, typer.Option(metavar="SEVERITY", help="Of findings that name none: info, warning or critical.")
    ] = None,
    hold_for: Annotated[
        str | None, typer.Option(metavar="DURATION", help="How long a condition has to last before it is an alert.")
    ] = None,
    clear_after: Annotated[
        str | None, typer.Option(metavar="DURATION", help="How long it has to be over before the alert is closed.")
    ] = None,
    remind_every: Annotated[
        str | None, typer.Option(metavar="DURATION", help="How often to remind; 0s: never.")
    ] = None,
    timeout: Annotated[str | None, typer.Option(metavar="DURATION", help="The longest time of one run.")] = None,
    errors_allowed: Annotated[
        int | None, typer.Option(metavar="N", help="So many errors in a row are an alert.")
    ] = None,
    channels: Annotated[
        str | None, typer.Option(metavar="NAMES", help="Tell these channels only, as ops,mail; all: every channel.")
    ] = None,
) -> None:  # fmt: skip
    """Change thresholds and settings of a monitor. What is left out stays."""
    session = session_of(ctx)
    find(session, name)
    bounds = {bound.name: bound for bound in session.run(calls.thresholds(name))}
    given = dict(_assignment(text, bounds, name) for text in thresholds or ())
    chosen = None
    if channels is not None:
        chosen = [] if channels == "all" else [part.strip() for part in channels.split(",") if part.strip()]
    settings = (every, severity, hold_for, clear_after, remind_every, timeout, errors_allowed, channels)
    if not given and all(value is None for value in settings):
        raise UsageProblem("nothing to set", hint=f'See "onceward monitor show {name}" for what there is.')
    session.run(
        calls.set_monitor(
            name,
            thresholds=given,
            every=values.duration("--every", every, zero=False),
            severity=None if severity is None else values.one_of("--severity", severity, SEVERITIES),
            hold_for=values.duration("--hold-for", hold_for),
            clear_after=values.duration("--clear-after", clear_after),
            remind_every=values.duration("--remind-every", remind_every),
            timeout=values.duration("--timeout", timeout, zero=False),
            errors_allowed=values.between("--errors-allowed", errors_allowed, 1, 1000),
            channels=chosen,
        )
    )
    output.note(f'monitor "{name}" is set')


def _assignment(text: str, bounds: dict[str, ThresholdInfo], monitor: str) -> tuple[str, float | str | None]:
    name, equals, value = (part.strip() for part in text.partition("="))
    if not equals or not value:
        raise UsageProblem(f"threshold must be NAME=VALUE, got {values.quoted(text)}")
    if name not in bounds:
        raise UsageProblem(
            f'monitor "{monitor}" has no threshold "{shown(name)}"',
            detail=f"Thresholds: {', '.join(bounds) or '(none)'}.",
            hint=values.did_you_mean(name, bounds),
        )
    return name, read_threshold(name, value, bounds[name].unit)


@app.command("enable")
def enable(ctx: typer.Context, name: Name) -> None:
    """Let a disabled monitor run again."""
    session = session_of(ctx)
    changed = session.run(calls.enable_monitor(find(session, name).name))
    output.note(f'monitor "{name}" is enabled' if changed else f'monitor "{name}" was enabled already')


@app.command("disable")
def disable(ctx: typer.Context, name: Name) -> None:
    """Stop a monitor and close its alerts."""
    session = session_of(ctx)
    changed = session.run(calls.disable_monitor(find(session, name).name))
    output.note(f'monitor "{name}" is disabled' if changed else f'monitor "{name}" was disabled already')


@app.command("drop")
def drop(ctx: typer.Context, name: Name) -> None:
    """Remove a monitor that is not built in, and close its alerts."""
    session = session_of(ctx)
    info = find(session, name)
    session.run(calls.drop_monitor(name))
    output.note(f'monitor "{name}" is gone')
    if info.source == "code":
        output.note("hint: If code declares it, it comes back with the next start of a worker.")
