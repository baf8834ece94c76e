"""`onceward token`: how programs prove who they are over HTTP."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

import typer

from onceward import calls
from onceward.calls import access
from onceward.cli import output, values
from onceward.cli.framework import AsJson, Noun
from onceward.cli.output import Column
from onceward.cli.session import session_of
from onceward.cli.values import UsageProblem
from onceward.model_web import SCOPES

app = Noun(help="Create, list and revoke tokens for programs.")


@app.command("create")
def create(
    ctx: typer.Context,
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Whose it is, to find it again.", show_default=False)
    ],
    scope: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SCOPES",
            help="read, enqueue, operate; repeat it or use commas.",
            autocompletion=lambda: list(SCOPES),
        ),
    ] = None,
    only: Annotated[
        str | None,
        typer.Option("--only-tenant", metavar="TENANT", help="Counts for this tenant, and no other."),
    ] = None,
    life: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="How long it can be used. Without it: until revoked."),
    ] = None,
) -> None:
    """Create a token and print it. It is shown this once."""
    from onceward.web import secrets

    scopes = values.many_of("--scope", scope, SCOPES)
    if not scopes:
        raise UsageProblem("--scope is missing", hint=f"Some of: {', '.join(SCOPES)}.")
    secret = secrets.new(secrets.TOKEN)
    read = values.duration("--life", life, zero=False) if life is not None else None
    call = access.create_token(name, secrets.digest(secret), scopes, tenant=only, life=read)
    token_id = session_of(ctx).run(call)
    print(secret)
    output.note(f"token {token_id}; keep it safe, it is not shown again")


@app.command("list")
def list_(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List tokens. Secrets are not stored, so none are shown."""
    session = session_of(ctx)
    found = session.run(access.tokens())
    if as_json:
        output.print_json(found)
        return
    if not found:
        output.note('no tokens; create one with "onceward token create"')
        return
    now = session.run(calls.now())
    output.print_table(
        [
            Column("ID"),
            Column("NAME", flexible=16),
            Column("SCOPES"),
            Column("TENANT"),
            Column("LAST USED"),
            Column("EXPIRES"),
            Column("REVOKED"),
        ],
        [
            (
                token.id,
                token.name,
                ",".join(token.scopes),
                token.tenant or "all",
                output.ago(token.seen_at, now),
                output.ago(token.expires_at, now),
                output.ago(token.revoked_at, now),
            )
            for token in found
        ],
    )


@app.command("revoke")
def revoke(
    ctx: typer.Context,
    token: Annotated[str, typer.Argument(metavar="ID", help="Id of the token.", show_default=False)],
) -> None:
    """Let a token be used no more."""
    try:
        token_id = UUID(token)
    except ValueError:
        raise UsageProblem(
            f"the id of a token is a UUID, got {values.quoted(token)}", hint='See "onceward token list".'
        ) from None
    changed = session_of(ctx).run(access.revoke_token(token_id))
    output.note("the token is revoked" if changed else "the token was revoked already")
