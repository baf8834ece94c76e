"""`onceward lane`: the lines that jobs wait in."""

from __future__ import annotations

from typing import Annotated

import typer

from onceward import calls
from onceward.cli import output, values
from onceward.cli.explain import explain_lane
from onceward.cli.framework import AsJson, Noun
from onceward.cli.lane_set import MaxRunning, bounds, set_, share
from onceward.cli.output import Column
from onceward.cli.session import session_of

app = Noun(help="List, explain, add, set, pause and resume lanes.")
Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the lane.", show_default=False)]


@app.command("list")
def list_(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List lanes with what waits in them."""
    session = session_of(ctx)
    call = calls.lanes() if session.tenant in {None, "*"} else calls.lanes_of_tenant(session.tenant or "")
    lanes = session.run(call)
    if as_json:
        output.print_json(lanes)
        return
    now = session.run(calls.now())
    output.print_table(
        [
            Column("LANE"),
            Column("STATUS"),
            Column("READY", right=True),
            Column("RUNNING", right=True),
            Column("AT MOST", right=True, optional=True),
            Column("SCHEDULED", right=True),
            Column("BLOCKED", right=True),
            Column("DEAD", right=True),
            Column("OLDEST READY"),
            Column("AUDIT", optional=True),
            Column("PAUSED BY", optional=True),
            Column("REASON", optional=True, flexible=16),
        ],
        [
            (
                lane.name,
                output.styled("paused" if lane.paused else "open"),
                lane.ready,
                lane.running,
                "-" if lane.max_running is None else lane.max_running,
                lane.scheduled,
                lane.blocked,
                lane.dead_letter,
                output.ago(lane.oldest_ready_at, now),
                lane.audit,
                lane.paused_by or "-",
                lane.pause_reason or "-",
            )
            for lane in lanes
        ],
    )


app.command("explain")(explain_lane)


@app.command("add")
def add(
    ctx: typer.Context,
    name: Name,
    max_payload: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Largest payload, as 512KiB or 1MiB. New lanes: 256KiB."),
    ] = None,
    max_result: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Largest result, as 512KiB or 1MiB. New lanes: 256KiB.")
    ] = None,
    max_running: MaxRunning = None,
) -> None:
    """Create a lane, or change the caps of one."""
    changed = session_of(ctx).run(
        calls.add_lane(
            name,
            max_payload_bytes=values.size("--max-payload", max_payload, least=1024),
            max_result_bytes=values.size("--max-result", max_result, least=1024),
            max_running=max_running,
        )
    )
    output.note(f'lane "{name}" is set up' if changed else f'lane "{name}" exists already; nothing changed')


@app.command("pause")
def pause(
    ctx: typer.Context,
    name: Name,
    reason: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Why; shown to everyone who looks.")
    ] = None,
) -> None:
    """Stop claims from a lane. Running jobs go on."""
    changed = session_of(ctx).run_in_lane(name, calls.pause_lane(name, reason))
    output.note(f'lane "{name}" is paused' if changed else f'lane "{name}" was paused already')


@app.command("resume")
def resume(ctx: typer.Context, name: Name) -> None:
    """Let workers claim from a paused lane again."""
    changed = session_of(ctx).run_in_lane(name, calls.resume_lane(name))
    output.note(f'lane "{name}" is open' if changed else f'lane "{name}" was not paused')


app.command("set")(set_)
app.command("share")(share)
app.command("bounds")(bounds)


@app.command("audit")
def audit(
    ctx: typer.Context,
    name: Name,
    mode: Annotated[
        str,
        typer.Argument(
            metavar="MODE", help="ends: the ends of jobs; all: every transition.", show_default=False
        ),
    ],
) -> None:
    """Choose what of a lane goes into the audit log. What people do is always there."""
    chosen = values.one_of("MODE", mode, ("ends", "all"))
    changed = session_of(ctx).run_in_lane(name, calls.audit_lane(name, chosen))
    output.note(
        f'the audit log has {"every transition" if chosen == "all" else "the ends of jobs"} of lane "{name}"'
        if changed
        else f'lane "{name}" had it so already; nothing changed'
    )
