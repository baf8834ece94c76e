"""`onceward job explain` and `onceward lane explain`: why is it not running?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from onceward import calls
from onceward.cli import output, values
from onceward.cli.framework import AsJson, Id
from onceward.cli.output import Column
from onceward.cli.session import session_of
from onceward.errors import UnknownJob
from onceward.model import Explanation


def explain_job(ctx: typer.Context, job: Id, as_json: AsJson = False) -> None:
    """Say why a job is not running, or what became of it, and what to do."""
    session = session_of(ctx)
    wanted = values.job_id(job)
    reasons = session.run(calls.explain(wanted))
    if reasons[0].reason == "unknown":
        session.explain_empty()
        raise UnknownJob(
            f"job {wanted} does not exist",
            detail="It was never committed, or this role may not see it.",
            hint='Look for it with "onceward job list".',
        )
    if as_json:
        output.print_json({"id": wanted, "reasons": reasons})
    else:
        print_reasons(reasons)


def print_reasons(reasons: Sequence[Explanation]) -> None:
    """The answer, what the job would meet next, and after each what to do."""
    for reason in reasons:
        output.print_wrapped(reason.sentence, indent=2)
        if reason.next_step:
            output.print_wrapped(f"Next: {reason.next_step}", indent=4, style="dim")


def explain_lane(
    ctx: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(metavar="LANE", help="Name of the lane; without it, all.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say in one line what a lane waits for, or each lane."""
    session = session_of(ctx)
    call = calls.explain_lane(name)
    lanes = session.run(call) if name is None else session.run_in_lane(name, call)
    if as_json:
        output.print_json(lanes)
        return
    output.print_table(
        [Column("LANE"), Column("STATUS"), Column("WHY", flexible=40)],
        [(lane.lane, output.styled(lane.reason), lane.sentence) for lane in lanes],
    )
    for step in dict.fromkeys(lane.next_step for lane in lanes if lane.next_step):
        output.note(f"hint: {step}")
