"""`onceward event`: what jobs wait for."""

from __future__ import annotations

from typing import Annotated

import typer

from onceward import calls, jsonsafe
from onceward.cli import output, values
from onceward.cli.framework import AsJson, Noun
from onceward.cli.output import Column
from onceward.cli.session import session_of

app = Noun(help="Emit and list events that jobs wait for.")


@app.command("emit")
def emit(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the event.", show_default=False)],
    payload: Annotated[
        str | None,
        typer.Option(metavar="JSON", help="What those who wait get: JSON, @file or -. Without it: null."),
    ] = None,
    keep: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION", help="How long one who asks later still gets it, as 7d. Without it: 30d."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Emit an event: jobs that wait for it go on. The first one of a name stays."""
    session = session_of(ctx)
    text = None if payload is None else jsonsafe.dumps(values.payload("--payload", payload), what="payload")
    kept = values.duration("--keep", keep, zero=False)
    tenant = None if session.tenant == "*" else session.tenant
    emitted = session.run(calls.emit_event(name, text, tenant=tenant, keep=kept))
    if as_json:
        output.print_json({"name": name, "emitted": emitted})
        return
    output.note(
        f'event "{name}" is emitted' if emitted else f'event "{name}" was emitted before; nothing changed'
    )


@app.command("list")
def list_(
    ctx: typer.Context,
    prefix: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Only names that begin with this.")
    ] = None,
    limit: Annotated[int, typer.Option(metavar="N", help="At most this many.")] = 50,
    as_json: AsJson = False,
) -> None:
    """List events that are kept, newest first."""
    session = session_of(ctx)
    most = values.whole("--limit", limit, least=1, most=100_000)
    tenant = None if session.tenant == "*" else session.tenant
    events = session.run(calls.events(prefix, most, tenant=tenant))
    if not events:
        session.explain_empty()
    if as_json:
        output.print_json(events)
        return
    if not events:
        output.note("no events")
        return
    now = session.run(calls.now())
    tenants = {event.tenant for event in events} != {"default"}
    output.print_table(
        [
            Column("EVENT", flexible=20),
            *([Column("TENANT", optional=True)] if tenants else []),
            Column("EMITTED"),
            Column("KEPT", optional=True),
            Column("PAYLOAD", optional=True, flexible=24),
        ],
        [
            (
                event.name,
                *([event.tenant] if tenants else []),
                output.ago(event.emitted_at, now),
                f"until {output.when(event.expires_at)}",
                "-" if event.payload is None else output.compact_json(event.payload),
            )
            for event in events
        ],
    )
    if len(events) == most:
        output.note("there may be more: raise --limit")
