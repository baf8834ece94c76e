"""`onceward operator`: people who sign in to the web pages."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated

import typer

from onceward.calls import access
from onceward.cli import output, values
from onceward.cli.framework import AsJson, Noun
from onceward.cli.output import Column
from onceward.cli.session import Session, session_of
from onceward.cli.values import UsageProblem
from onceward.model_web import ROLES, OperatorInfo

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
        str | None,
        typer.Option(
            metavar="ROLE",
            help="viewer, operator or admin; a new operator without one is operator.",
            autocompletion=lambda: list(ROLES),
            show_default=False,
        ),
    ] = None,
    only: Annotated[
        str | None,
        typer.Option(
            "--only-tenant",
            metavar="TENANT",
            help="Sees and touches what belongs to this tenant, nothing else.",
        ),
    ] = None,
    all_tenants: Annotated[
        bool, typer.Option("--all-tenants", help="Is no longer bound to a tenant.")
    ] = False,
    enable: Annotated[bool, typer.Option("--enable", help="May sign in again after disable.")] = False,
) -> None:
    """Add an operator, or change the role and tenant of one; what is not given stays."""
    if role is not None:
        values.one_of("--role", role, ROLES)
    if only is not None and all_tenants:
        raise UsageProblem("--only-tenant and --all-tenants exclude each other")
    session = session_of(ctx)
    # Only for the message: what is changed is decided by the one call.
    before = _named(session, name)
    answer = session.run(access.add_operator(name, role, only, all_tenants=all_tenants, enable=enable))
    after = _named(session, name)
    output.note(
        f'operator "{name}" {answer}: {_rights(before, after)}; "onceward operator link" makes a sign-in link'
    )


def _named(session: Session, name: str) -> OperatorInfo | None:
    return next((found for found in session.run(access.operators()) if found.name == name), None)


def _rights(before: OperatorInfo | None, after: OperatorInfo | None) -> str:
    """What an operator may do; with what that one could before, and what of it is left as it was."""
    if after is None:
        return "gone meanwhile"
    tenant = f'tenant "{after.tenant}" only' if after.tenant else "all tenants"
    if before is None:
        return f"{after.role}, {tenant}"
    was = f'tenant "{before.tenant}" only' if before.tenant else "all tenants"
    pairs = [("role", before.role, after.role), ("sees", was, tenant)]
    if before.disabled_at is not None:
        pairs.append(("access", "disabled", "disabled" if after.disabled_at else "enabled"))
    return ", ".join(
        f"{what} {old} as before" if old == new else f"{what} {old} -> {new}" for what, old, new in pairs
    )


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
    if not re.fullmatch(r"https?://[^/?#@\s]+(/[^?#\s]*)?", address):
        raise UsageProblem(
            f"--address must be a URL such as https://jobs.example.com, got {values.quoted(address)}",
            hint="It is where the pages are served; the link begins with it.",
        )
    secret = secrets.new(secrets.LINK)
    session_of(ctx).run(access.create_link(name, secrets.digest(secret), read))
    print(f"{address.rstrip('/')}/sign-in?link={secret}")
    output.note(f"works once, within {output.short(read)}")


@app.command("disable")
def disable(ctx: typer.Context, name: Name) -> None:
    """End every session of an operator, and let none begin."""
    changed = session_of(ctx).run(access.disable_operator(name))
    output.note(
        f'operator "{name}" is disabled; "onceward operator add {name} --enable" undoes it'
        if changed
        else f'operator "{name}" was disabled already'
    )
