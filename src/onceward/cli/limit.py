"""`onceward limit`: shared capacity, and what is left of it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Annotated, get_args

import typer

from onceward import calls
from onceward.cli import output, values
from onceward.cli.framework import AsJson, Noun
from onceward.cli.output import Column
from onceward.cli.session import Session, session_of
from onceward.errors import UnknownLimit, shown
from onceward.model_limits import Limit, LimitInfo, LimitOver

app = Noun(help="List, show, set, pause, resume and drop limits.")
Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the limit.", show_default=False)]
Key = Annotated[
    str, typer.Option(metavar="KEY", help="Of a limit that is per key: which one.", show_default=False)
]


def find(session: Session, name: str) -> list[LimitInfo]:
    """The buckets of this limit that the role may see."""
    found = session.run(calls.limits(name))
    if not found:
        known = sorted({info.name for info in session.run(calls.limits())})
        raise UnknownLimit(
            f'limit "{shown(name)}" does not exist',
            detail=f"Known limits: {', '.join(known[:20])}." if known else None,
            hint=values.join_hints(values.did_you_mean(name, known), 'See "onceward limit list".'),
        )
    return found


@app.command("list")
def list_(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List limits with what is left of each."""
    session = session_of(ctx)
    known = session.run(calls.limits())
    if as_json:
        output.print_json(known)
        return
    if not known:
        output.note("no limits")
        return
    _print_buckets(known, session.run(calls.now()))


def _print_buckets(known: list[LimitInfo], now: datetime) -> None:
    output.print_table(
        [
            Column("LIMIT"),
            Column("KEY", optional=True),
            Column("REQUESTS"),
            Column("WEIGHT"),
            Column("SLOTS"),
            Column("ROOM"),
            Column("WHY NOT", flexible=16),
        ],
        [
            (
                info.name,
                info.key or "-",
                _left(info.requests_left, info.requests, info.period),
                _left(info.weight_left, info.weight, info.weight_period),
                "-" if info.slots is None else f"{info.slots_held or 0} of {info.slots} held",
                _room(info, now),
                info.reason or "-",
            )
            for info in known
        ],
    )


def _left(left: float | None, limit: int | None, period: object) -> str:
    if limit is None or not isinstance(period, timedelta):
        return "-"
    per = f"{limit:,} per {output.short(period)}"
    return per if left is None else f"{per}, {max(0, left):,.0f} now"


def _room(info: LimitInfo, now: datetime) -> str:
    if info.reason is None:
        return "now"
    return "when a slot is free" if info.next_room_at is None else output.ago(info.next_room_at, now)


@app.command("show")
def show(ctx: typer.Context, name: Name, as_json: AsJson = False) -> None:
    """Show a limit and what is left of it, for each key."""
    session = session_of(ctx)
    found = find(session, name)
    if as_json:
        output.print_json(found)
        return
    now = session.run(calls.now())
    info = found[0]
    output.print_fields(
        [
            ("limit", info.name),
            ("requests", _full(info.requests, info.period, info.burst)),
            ("weight", _full(info.weight, info.weight_period, info.weight_burst)),
            ("slots", info.slots),
            ("per key", "yes" if info.per_key else "no"),
            ("start", f"within {output.short(info.allowance)} of the claim"),
            ("above", f"{info.threshold:.0%}: {info.over}"),
            ("source", info.source),
            ("changed", f"{output.when_and_ago(info.changed_at, now)} by {info.changed_by}"),
        ]
    )
    output.heading("Now")
    _print_buckets(found, now)


def _full(limit: int | None, period: object, burst: float | None) -> str | None:
    return None if limit is None else f"{_left(None, limit, period)}, at most {burst or 0:,.0f} at once"


@app.command("set")
def set_(
    ctx: typer.Context,
    name: Name,
    requests: Annotated[int | None, typer.Option(metavar="N", help="Requests per period.")] = None,
    per: Annotated[str, typer.Option(metavar="DURATION", help="The period, as 1s, 1m or 1d.")] = "1m",
    weight: Annotated[
        int | None, typer.Option("--weight", "--tokens", metavar="N", help="Weight, as tokens, per period.")
    ] = None,
    weight_per: Annotated[
        str | None,
        typer.Option("--weight-per", "--tokens-per", metavar="DURATION", help="Its period. Else: --per."),
    ] = None,
    slots: Annotated[int | None, typer.Option(metavar="N", help="How many may run at once.")] = None,
    burst: Annotated[
        int | None, typer.Option(metavar="N", help="Requests given at once. Else: a fiftieth.")
    ] = None,
    weight_burst: Annotated[
        int | None,
        typer.Option(
            "--weight-burst", "--tokens-burst", metavar="N", help="Weight given at once. Else: 3 %."
        ),
    ] = None,
    allowance: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION", help="How soon a claimed job begins. Else: 2 % of the period, at least 100ms."
        ),
    ] = None,
    per_key: Annotated[bool, typer.Option("--per-key", help="A bucket for each key.")] = False,
    threshold: Annotated[
        int, typer.Option(metavar="PERCENT", help="How much of a period's work may wait before --over.")
    ] = 80,
    over: Annotated[
        str, typer.Option(metavar="WHAT", help="What happens to new work above that: accept or defer.")
    ] = "accept",
) -> None:
    """Create or replace a limit. Code leaves it alone from then on."""
    limit = Limit(
        name,
        requests=requests,
        per=values.duration("--per", per, zero=False) or timedelta(minutes=1),
        tokens=weight,
        tokens_per=values.duration("--weight-per", weight_per, zero=False),
        slots=slots,
        burst=burst,
        tokens_burst=weight_burst,
        allowance=values.duration("--allowance", allowance),
        per_key=per_key,
        threshold=values.whole("--threshold", threshold, least=0, most=10_000) / 100,
        over="defer" if values.one_of("--over", over, get_args(LimitOver)) == "defer" else "accept",
    )
    changed = session_of(ctx).run(calls.set_limit(limit))
    output.note(f'limit "{name}" is set' if changed else f'limit "{name}" was so already; nothing changed')


@app.command("pause")
def pause(
    ctx: typer.Context,
    name: Name,
    duration: Annotated[str, typer.Argument(metavar="DURATION", help="For how long, as 30s or 5m.")],
    key: Key = "",
    reason: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Why; shown to everyone who looks.")
    ] = None,
) -> None:
    """Let nobody use a limit for some time."""
    session = session_of(ctx)
    find(session, name)
    span = values.duration("DURATION", duration, zero=False)
    assert span is not None
    until = session.run(calls.pause_limit(name, span, key, reason))
    output.note(f'limit "{name}" is paused until {output.when(until)}')


@app.command("resume")
def resume(ctx: typer.Context, name: Name, key: Key = "") -> None:
    """End the pause of a limit."""
    session = session_of(ctx)
    find(session, name)
    changed = session.run(calls.resume_limit(name, key))
    output.note(f'limit "{name}" is open' if changed else f'limit "{name}" was not paused')


@app.command("drop")
def drop(ctx: typer.Context, name: Name) -> None:
    """Remove a limit. Jobs that wait for it are not held back any more."""
    session = session_of(ctx)
    find(session, name)
    session.run(calls.drop_limit(name))
    output.note(f'limit "{name}" is gone')
