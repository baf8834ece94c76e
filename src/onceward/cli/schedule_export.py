"""`onceward schedule export`: for databases in which pg_cron ticks instead of a worker of ours."""

from __future__ import annotations

from typing import Annotated

import typer

from onceward.cli import output, values
from onceward.cli.values import UsageProblem

JOB = "onceward-tick"


def export(
    pg_cron: Annotated[bool, typer.Option("--pg-cron", help="Statements for the extension pg_cron.")] = False,
    every: Annotated[
        str, typer.Option(metavar="DURATION", help="How often to look: 1s to 59s, or 1m to 59m.")
    ] = "10s",
    remove: Annotated[bool, typer.Option("--remove", help="The statement that undoes it.")] = False,
) -> None:
    """Print SQL that lets pg_cron tick, where no worker runs all the time (Supabase, say)."""
    if not pg_cron:
        raise UsageProblem("export needs to know for whom", hint="Add --pg-cron.")
    length = values.duration("--every", every, zero=False)
    assert length is not None
    seconds = length.total_seconds()
    if seconds % 1 == 0 and 1 <= seconds <= 59:
        spec = f"{seconds:.0f} seconds"
    elif seconds % 60 == 0 and 60 <= seconds < 3600:
        spec = "* * * * *" if seconds == 60 else f"*/{seconds / 60:.0f} * * * *"
    else:
        raise UsageProblem(
            f"--every must be 1s to 59s, or 1m to 59m, got {every}", hint="pg_cron knows nothing in between."
        )
    if remove:
        print(f"select cron.unschedule('{JOB}');")
        return
    print(f"select cron.schedule('{JOB}', '{spec}', $$select onceward.tick()$$);")
    output.note(
        "One statement serves every schedule, also those made later: the database decides what is due, by zone and policy."
    )
    if spec.endswith("seconds"):
        output.note("hint: Seconds need pg_cron 1.5 or newer; otherwise --every 1m.")
