"""`onceward retention`: how long each kind of data is kept."""

from __future__ import annotations

from typing import Annotated

import typer

from onceward import calls
from onceward.cli import output, values
from onceward.cli.framework import AsJson, Noun
from onceward.cli.output import Column
from onceward.cli.session import Session, session_of
from onceward.model_monitors import Removed

app = Noun(help="Show and set how long data is kept, and remove what is past it.")


def _known(session: Session, kind: str) -> str:
    return values.one_of("KIND", kind, [info.kind for info in session.run(calls.retention())])


@app.command("show")
def show(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Show how long each kind of data is kept, and what the last run removed."""
    session = session_of(ctx)
    known = session.run(calls.retention())
    if as_json:
        output.print_json(known)
        return
    now = session.run(calls.now())
    output.print_table(
        [
            Column("KIND"),
            Column("KEEP", right=True),
            Column("DEFAULT", right=True),
            Column("LAST RUN"),
            Column("REMOVED", right=True),
            Column("WHAT", flexible=20),
            Column("NOTE", optional=True, flexible=20),
        ],
        [
            (
                info.kind,
                "for ever" if info.keep is None else output.short(info.keep) if info.keep else "0s",
                "for ever"
                if info.default_keep is None
                else output.short(info.default_keep)
                if info.default_keep
                else "0s",
                output.ago(info.last_run_at, now),
                "-" if info.last_removed is None else f"{info.last_removed:,}",
                info.description,
                info.last_note or "-",
            )
            for info in known
        ],
    )


@app.command("set")
def set_(
    ctx: typer.Context,
    kind: Annotated[
        str, typer.Argument(metavar="KIND", help="Kind of data, as archive.", show_default=False)
    ],
    keep: Annotated[
        str,
        typer.Argument(metavar="KEEP", help="How long, as 30d; forever: not removed.", show_default=False),
    ],
) -> None:
    """Set how long a kind of data is kept."""
    session = session_of(ctx)
    _known(session, kind)
    span = None if keep == "forever" else values.duration("KEEP", keep)
    session.run(calls.set_retention(kind, span))
    output.note(f"{kind}: kept {'for ever' if span is None else f'for {keep}'}")


@app.command("run")
def run(
    ctx: typer.Context,
    kind: Annotated[
        str | None, typer.Argument(metavar="[KIND]", help="Only this kind of data.", show_default=False)
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what the next run would remove.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Remove what is past its time now, and say what. Workers do this every hour."""
    session = session_of(ctx)
    kinds = [_known(session, kind)] if kind else [info.kind for info in session.run(calls.retention())]
    removed = [_whole(session, name, dry_run=dry_run) for name in kinds]
    if as_json:
        output.print_json(removed)
        return
    output.print_table(
        [Column("KIND"), Column("OLDER THAN"), Column("ROWS", right=True), Column("DAYS", right=True), Column("NOTE", flexible=20)],
        [
            (item.kind, output.when(item.before), f"{item.row_count:,}", len(item.partitions), item.note or "-")
            for item in removed
        ],
    )  # fmt: skip
    total = output.counted(sum(item.row_count for item in removed), "row")
    output.note(f"{total} would go" if dry_run else f"{total} removed")
    if dry_run and any(item.more for item in removed):
        output.note("there is more: a run removes a part at a time, until nothing is left")


def _whole(session: Session, kind: str, *, dry_run: bool) -> Removed:
    """Each part in a transaction of its own, so that nobody waits long for a lock."""
    (first,) = session.run(calls.retain(kind, dry_run=dry_run))
    rows, partitions, last = first.row_count, list(first.partitions), first
    while last.more and not dry_run and (last.row_count or last.partitions):
        (last,) = session.run(calls.retain(kind))
        rows += last.row_count
        partitions += last.partitions
    return Removed(kind, first.before, rows, partitions, last.more, last.note)
