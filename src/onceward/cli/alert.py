"""`onceward alert`: what is wrong now, who looks after it, and what is not told for a while."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated
from uuid import UUID

import typer

from onceward import calls
from onceward.cli import output, values
from onceward.cli.actions import act_on_each
from onceward.cli.framework import AsJson, Noun
from onceward.cli.monitor import find as find_monitor
from onceward.cli.output import Column
from onceward.cli.session import Session, session_of
from onceward.cli.values import UsageProblem
from onceward.errors import UnknownAlert
from onceward.model_monitors import AlertInfo, told_words

app = Noun(help="List, show, acknowledge, silence and close alerts.")
Id = Annotated[str, typer.Argument(metavar="ID", help="Id of the alert.", show_default=False)]
Ids = Annotated[list[str], typer.Argument(metavar="ID...", help="Ids of alerts.", show_default=False)]
NotAll = Annotated[str | None, typer.Option(metavar="NAME", help="Only alerts of this monitor.")]


def find(session: Session, alert_id: UUID) -> AlertInfo:
    found = session.run(calls.alert(alert_id))
    if found is None:
        session.explain_empty()
        raise UnknownAlert(f"alert {alert_id} does not exist", hint='See "onceward alert list --all".')
    return found


def _tenant(session: Session) -> str | None:
    return None if session.tenant == "*" else session.tenant


@app.command("list")
def list_(
    ctx: typer.Context,
    monitor: NotAll = None,
    all_of_them: Annotated[bool, typer.Option("--all", help="Also those that are closed.")] = False,
    limit: Annotated[int, typer.Option(metavar="N", help="At most this many.")] = 100,
    as_json: AsJson = False,
) -> None:
    """List alerts that are open, the worst first."""
    session = session_of(ctx)
    states = ("open", "acknowledged", "closed") if all_of_them else ("open", "acknowledged")
    values.whole("--limit", limit, least=1, most=100_000)
    if monitor is not None:
        find_monitor(session, monitor)
    found = session.run(calls.alerts(states=states, monitor=monitor, tenant=_tenant(session), limit=limit))
    if not found:
        session.explain_empty()
    if as_json:
        output.print_json(found)
        return
    if not found:
        output.note("no alerts")
        return
    now = session.run(calls.now())
    output.print_table(
        [
            Column("ID"),
            Column("STATE"),
            Column("SEVERITY"),
            Column("MONITOR"),
            Column("SINCE"),
            Column("SUMMARY", flexible=30),
            Column("TENANT", optional=True),
            Column("TOLD", optional=True),
            Column("SILENCED", optional=True),
        ],
        [
            (
                alert.id,
                output.styled(alert.state),
                output.styled(alert.severity),
                alert.monitor,
                output.ago(alert.first_seen_at, now),
                alert.summary,
                alert.tenant or "-",
                "yes" if alert.notified else "no channel" if alert.has_channel is False else "no",
                "-" if alert.silenced_until is None else output.ago(alert.silenced_until, now),
            )
            for alert in found
        ],
    )


@app.command("show")
def show(ctx: typer.Context, alert: Id, as_json: AsJson = False) -> None:
    """Show one alert: since when, how bad, who looks after it, how it ended."""
    session = session_of(ctx)
    found = find(session, values.alert_id(alert))
    if as_json:
        output.print_json(found)
        return
    now = session.run(calls.now())
    closed = f"{output.when_and_ago(found.closed_at, now)} by {found.closed_by}: {found.close_note}"
    acked = f"{output.when_and_ago(found.acked_at, now)} by {found.acked_by}" + (
        f": {found.ack_note}" if found.ack_note else ""
    )
    output.print_fields(
        [
            ("alert", found.id),
            ("state", output.styled(found.state)),
            ("severity", output.styled(found.severity)),
            ("worst", found.worst if found.worst != found.severity else None),
            ("monitor", found.monitor),
            ("condition", found.key),
            ("tenant", found.tenant),
            ("summary", found.summary),
            ("value", None if found.value is None else f"{found.value:,g}"),
            ("detail", None if found.detail is None else output.compact_json(found.detail)),
            ("since", output.when_and_ago(found.first_seen_at, now)),
            ("last seen", f"{output.when_and_ago(found.last_seen_at, now)}, {output.counted(found.seen, 'time')}"),
            ("told", told_words(found)),
            ("silenced", found.silenced_until and f"until {output.when_and_ago(found.silenced_until, now)}"),
            ("acknowledged", acked if found.acked_at else None),
            ("closed", closed if found.closed_at else None),
        ]
    )  # fmt: skip
    if found.has_channel is False:
        output.note(
            'hint: Add a channel with "onceward channel add"; it is told at the next run of the monitor.'
        )
    if found.closed_at is None:
        output.note(f'hint: What to do is in docs/operations/runbook.md under "{found.monitor}".')


@app.command("ack")
def ack(
    ctx: typer.Context,
    alerts: Ids,
    note: Annotated[str | None, typer.Option(metavar="TEXT", help="What is being done.")] = None,
    as_json: AsJson = False,
) -> None:
    """Say that somebody looks after alerts: no more reminders, unless they become worse."""
    act_on_each(
        session_of(ctx),
        [values.alert_id(alert) for alert in alerts],
        lambda alert: calls.ack_alert(alert, note),
        state="acknowledged",
        as_json=as_json,
    )


@app.command("close")
def close(
    ctx: typer.Context,
    alerts: Ids,
    note: Annotated[str, typer.Option(metavar="TEXT", help="Why; required.", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """Close alerts by hand. A condition that still holds opens a new one."""
    act_on_each(
        session_of(ctx),
        [values.alert_id(alert) for alert in alerts],
        lambda alert: calls.close_alert(alert, note),
        state="closed",
        as_json=as_json,
    )


@app.command("silence")
def silence(
    ctx: typer.Context,
    for_: Annotated[str, typer.Option("--for", metavar="DURATION", help="How long, as 2h.", show_default=False)],
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Why; required.", show_default=False)],
    alert: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="Only this alert.", show_default=False)
    ] = None,
    monitor: NotAll = None,
    key: Annotated[str | None, typer.Option(metavar="KEY", help="Only this condition.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="All alerts (of the tenant, if one is named).")] = False,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Do not tell of alerts for a while. They are recorded, and told when they outlast the silence."""
    session = session_of(ctx)
    tenant = _tenant(session)
    if alert is None and monitor is None and key is None and tenant is None and not everything:
        raise UsageProblem(
            "which alerts?", hint="Name an alert, --monitor, --key or --tenant; --all for all of them."
        )
    span = values.duration("--for", for_, zero=False)
    assert span is not None
    if monitor is not None:
        find_monitor(session, monitor)
    until = values.later("--for", session.run(calls.now()), max(span, timedelta(seconds=1)))
    made = session.run(
        calls.silence_alerts(
            until,
            reason,
            alert_id=None if alert is None else find(session, values.alert_id(alert)).id,
            monitor=monitor,
            tenant=tenant,
            key=key,
        )
    )
    if as_json:
        output.print_json({"id": made, "until": until})
    else:
        print(made)
        output.note(f"silent until {output.when(until)}")


@app.command("silences")
def silences(
    ctx: typer.Context,
    all_of_them: Annotated[bool, typer.Option("--all", help="Also those that are over.")] = False,
    as_json: AsJson = False,
) -> None:
    """List what is not told for a while."""
    session = session_of(ctx)
    found = session.run(calls.silences(all_of_them=all_of_them))
    if as_json:
        output.print_json(found)
        return
    if not found:
        output.note("no silences")
        return
    now = session.run(calls.now())
    output.print_table(
        [
            Column("ID"),
            Column("UNTIL"),
            Column("WHAT", flexible=20),
            Column("BY"),
            Column("REASON", flexible=20),
        ],
        [
            (
                item.id,
                output.ago(item.until, now),
                ", ".join(
                    f"{name} {value}"
                    for name, value in (
                        ("alert", item.alert_id),
                        ("monitor", item.monitor),
                        ("tenant", item.tenant),
                        ("key", item.key),
                    )
                    if value is not None
                )
                or "everything",
                item.created_by,
                item.reason,
            )
            for item in found
        ],
    )


@app.command("unsilence")
def unsilence(
    ctx: typer.Context,
    silence: Annotated[str, typer.Argument(metavar="ID", help="Id of the silence.", show_default=False)],
) -> None:
    """End a silence early."""
    ended = session_of(ctx).run(calls.end_silence(values.silence_id(silence)))
    output.note("the silence is over" if ended else "the silence was over already")
