"""`onceward lane set`, `share` and `bounds`: whose turn it is in a lane, how much runs at once, and how much may wait."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, get_args

import typer

from onceward import calls
from onceward.cli import output, values
from onceward.cli.framework import AsJson
from onceward.cli.output import Column
from onceward.cli.session import session_of
from onceward.cli.values import UsageProblem
from onceward.model_limits import BoundInfo, BoundOver

Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the lane.", show_default=False)]
MaxRunning = Annotated[
    int | None,
    typer.Option(metavar="N", help="Jobs that run at once, over all workers; 0: any number."),
]
Whose = Annotated[
    str,
    typer.Option(
        "--of",
        metavar="TENANT",
        help="Bound this tenant in the lane, or each tenant (*). Else: the whole lane.",
    ),
]


def set_(
    ctx: typer.Context,
    name: Name,
    fair: Annotated[
        bool | None, typer.Option("--fair/--not-fair", help="Whether tenants take turns.")
    ] = None,
    max_wait: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION", help="How long a job may be passed over for higher priorities; 0s: for ever."
        ),
    ] = None,
    max_running: MaxRunning = None,
    max_depth: Annotated[int | None, typer.Option(metavar="N", help="Bound: ready jobs.")] = None,
    max_age: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Bound: age of the oldest ready job.")
    ] = None,
    max_bytes: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Bound: payloads of ready jobs, as 64MiB.")
    ] = None,
    over: Annotated[
        str, typer.Option(metavar="WHAT", help="Above the bound, enqueue answers: signal, defer or reject.")
    ] = "signal",
    defer_by: Annotated[str, typer.Option(metavar="DURATION", help="How long --over defer puts off.")] = "1m",
    whose: Whose = "",
    no_bound: Annotated[bool, typer.Option("--no-bound", help="Remove the bound.")] = False,
) -> None:
    """Say whose turn it is in a lane, how much of it runs at once, and how much may wait."""
    session = session_of(ctx)
    wait = values.duration("--max-wait", max_wait)
    age = values.duration("--max-age", max_age, zero=False)
    size = values.size("--max-bytes", max_bytes)
    values.one_of("--over", over, get_args(BoundOver))
    bounded = max_depth is not None or age is not None or size is not None
    if bounded and no_bound:
        raise UsageProblem("--no-bound cannot be given with a bound")
    is_rule = fair is not None or wait is not None or max_running is not None
    if not bounded and not no_bound and not is_rule:
        raise UsageProblem("nothing to set", hint='See "onceward lane set --help".')
    # An unknown lane is a slip here, and not a lane to be made.
    session.explain_empty(lane=name)
    if is_rule:
        session.run(calls.add_lane(name, fair=fair, max_wait=wait, max_running=max_running))
    if bounded:
        session.run(
            calls.set_bound(
                name,
                max_depth=max_depth,
                max_age=age,
                max_bytes=size,
                over=over,
                tenant=whose,
                defer_by=values.duration("--defer-by", defer_by, zero=False) or timedelta(minutes=1),
            )
        )
    if no_bound and not session.run(calls.drop_bound(name, whose)):
        output.note(f'lane "{name}" had no such bound')
    output.note(f'lane "{name}" is set')


def share(
    ctx: typer.Context,
    name: Name,
    tenant: Annotated[str, typer.Argument(metavar="TENANT", help="Whose turns.", show_default=False)],
    turns: Annotated[
        int, typer.Argument(metavar="N", help="Turns, where others get one.", show_default=False)
    ],
) -> None:
    """Give a tenant more turns in a lane than the others have."""
    session_of(ctx).run_in_lane(name, calls.set_share(name, tenant, turns))
    output.note(f'tenant "{tenant}" has {output.counted(turns, "turn")} in lane "{name}"')


def bounds(
    ctx: typer.Context,
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Only of this lane.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List bounds with what was measured last, and the shares of tenants."""
    session = session_of(ctx)
    found, shares = session.run(calls.bounds(name)), session.run(calls.shares(name))
    if as_json:
        output.print_json({"bounds": found, "shares": shares})
        return
    now = session.run(calls.now())
    if not found and not shares:
        session.explain_empty(lane=name)
        output.note("no bounds")
    if found:
        output.print_table(
            [
                Column("LANE"),
                Column("TENANT"),
                Column("BOUND"),
                Column("ABOVE"),
                Column("READY", right=True),
                Column("OLDEST"),
                Column("REASON", flexible=16),
            ],
            [
                (
                    info.lane,
                    (info.measured_tenant or info.tenant) or "-",
                    _bound(info),
                    info.over if info.over != "defer" else f"defer {output.short(info.defer_by)}",
                    "-" if info.depth is None else info.depth,
                    output.ago(info.oldest_at, now),
                    info.reason or "-",
                )
                for info in found
            ],
        )
    if shares:
        output.heading("Shares")
        output.print_table(
            [Column("LANE"), Column("TENANT"), Column("TURNS", right=True)],
            [(info.lane, info.tenant, info.share) for info in shares],
        )


def _bound(info: BoundInfo) -> str:
    parts = [
        None if info.max_depth is None else f"{info.max_depth:,} jobs",
        None if info.max_age is None else output.short(info.max_age),
        None if info.max_bytes is None else f"{info.max_bytes:,} bytes",
    ]
    return ", ".join(part for part in parts if part)
