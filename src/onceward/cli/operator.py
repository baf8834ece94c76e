"""`onceward operator`: people who sign in to the web pages."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import typer

from onceward.calls import access
from onceward.cli import output, values
from onceward.cli.framework import AsJson, Noun
from onceward.cli.output import Column
from onceward.cli.session import session_of
from onceward.model_web import ROLES

app = Noun(help="Add operators of the web pages, and let them sign in.")
Name = Annotated[
    str,
    typer.Argument(metavar="NAME", help="Name; with single sign-on, the email address.", show_default=False),
]


@app.command("add")
def add(
    ctx: typer.Context,
    name: Name,
    role: Annotated[
        str,
        typer.Option(metavar="ROLE", help="viewer, operator or admin.", autocompletion=lambda: list(ROLES)),
    ] = "operator",
    only: Annotated[
        str | None,
        typer.Option(
            "--only-tenant",
            metavar="TENANT",
            help="Sees and touches what belongs to this tenant, nothing else.",
        ),
    ] = None,
) -> None:
    """Add an operator, or change the role and tenant of one."""
    values.one_of("--role", role, ROLES)
    answer = session_of(ctx).run(access.add_operator(name, role, only))
    output.note(f'operator "{name}" {answer}; "onceward operator link" makes a sign-in link')


@app.command("list")
def list_(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List operators."""
    session = session_of(ctx)
    found = session.run(access.operators())
    if as_json:
        output.print_json(found)
        return
    if not found:
        output.note('nobody can sign in; add somebody with "onceward operator add"')
        return
    from onceward import calls

    now = session.run(calls.now())
    output.print_table(
        [
            Column("OPERATOR"),
            Column("ROLE"),
            Column("TENANT"),
            Column("SESSIONS", right=True),
            Column("LAST SEEN"),
            Column("DISABLED"),
        ],
        [
            (
                operator.name,
                operator.role,
                operator.tenant or "all",
                operator.sessions,
                output.ago(operator.seen_at, now),
                output.ago(operator.disabled_at, now),
            )
            for operator in found
        ],
    )


@app.command("link")
def link(
    ctx: typer.Context,
    name: Name,
    life: Annotated[str, typer.Option(metavar="DURATION", help="How long it can be used.")] = "15m",
    address: Annotated[
        str, typer.Option(metavar="URL", help="Where the pages are served.")
    ] = "http://localhost:8080",
) -> None:
    """Print a link by which an operator signs in, once."""
    from onceward.web import secrets

    read = values.duration("--life", life, zero=False)
    assert isinstance(read, timedelta)
    secret = secrets.new(secrets.LINK)
    session_of(ctx).run(access.create_link(name, secrets.digest(secret), read))
    print(f"{address.rstrip('/')}/sign-in?link={secret}")
    output.note(f"works once, within {output.short(read)}")


@app.command("disable")
def disable(ctx: typer.Context, name: Name) -> None:
    """End every session of an operator, and let none begin."""
    changed = session_of(ctx).run(access.disable_operator(name))
    output.note(f'operator "{name}" is disabled' if changed else f'operator "{name}" was disabled already')
