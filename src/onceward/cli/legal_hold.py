"""`onceward legal-hold`: tenants of whom nothing is removed."""

from __future__ import annotations

from typing import Annotated

import typer

from onceward import calls
from onceward.cli import output
from onceward.cli.framework import AsJson, Noun
from onceward.cli.output import Column
from onceward.cli.session import session_of
from onceward.errors import WrongState

app = Noun(help="List, add and release legal holds of tenants.")
Tenant = Annotated[str, typer.Argument(metavar="TENANT", help="Name of the tenant.", show_default=False)]
Reason = Annotated[str, typer.Option(metavar="TEXT", help="Why; required.", show_default=False)]


@app.command("list")
def list_(
    ctx: typer.Context,
    all_of_them: Annotated[bool, typer.Option("--all", help="Also those that were released.")] = False,
    as_json: AsJson = False,
) -> None:
    """List tenants under a legal hold."""
    session = session_of(ctx)
    found = session.run(calls.legal_holds(all_of_them=all_of_them))
    if not found:
        session.explain_empty()
    if as_json:
        output.print_json(found)
        return
    if not found:
        output.note("no legal holds")
        return
    now = session.run(calls.now())
    output.print_table(
        [Column("TENANT"), Column("HELD"), Column("BY"), Column("REASON", flexible=20), Column("RELEASED"), Column("WHY", optional=True)],
        [
            (
                hold.tenant,
                output.ago(hold.held_at, now),
                hold.held_by,
                hold.reason,
                output.ago(hold.released_at, now),
                hold.release_reason or "-",
            )
            for hold in found
        ],
    )  # fmt: skip


@app.command("add")
def add(ctx: typer.Context, tenant: Tenant, reason: Reason) -> None:
    """Put a tenant under a legal hold: from now on, nothing of it is removed. It has one: a second reason is refused."""
    session = session_of(ctx)
    if session.run(calls.hold_tenant(tenant, reason)):
        output.note(f'tenant "{tenant}" is held')
        return
    present = next((hold for hold in session.run(calls.legal_holds()) if hold.tenant == tenant), None)
    if present is not None and present.reason == reason.strip():
        output.note(f'tenant "{tenant}" was held already, for this reason')
        return
    raise WrongState(
        f'tenant "{tenant}" was held already; the reason was not recorded',
        detail=f"Held by {present.held_by} since {output.when(present.held_at)}: {present.reason}"
        if present
        else None,
        hint="A tenant has one hold. Note the other case where you keep your cases, and release the hold when both are over.",
    )


@app.command("release")
def release(ctx: typer.Context, tenant: Tenant, reason: Reason) -> None:
    """Release a hold: what is past its time goes with the next retention."""
    released = session_of(ctx).run(calls.release_tenant(tenant, reason))
    output.note(f'tenant "{tenant}" is released' if released else f'tenant "{tenant}" was not held')
