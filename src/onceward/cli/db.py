"""`onceward db`: install, upgrade and check the schema."""

from __future__ import annotations

from typing import Annotated

import psycopg
import typer

from onceward import doctor_schema, install
from onceward.cli import output
from onceward.cli.doctor import print_findings
from onceward.cli.framework import AsJson, Noun
from onceward.cli.session import Session, session_of
from onceward.cli.values import UsageProblem
from onceward.connecting import describe, in_full, masked

app = Noun(help="Install, upgrade and check the schema.")


@app.command("init")
def init(ctx: typer.Context) -> None:
    """Install the schema onceward; does nothing when it is there."""
    _apply(session_of(ctx), "installed")


@app.command("upgrade")
def upgrade(ctx: typer.Context) -> None:
    """Bring the schema to this version; installs it when it is missing."""
    _apply(session_of(ctx), "upgraded")


def _apply(session: Session, done: str) -> None:
    where = describe(session.conninfo)
    applied = install.upgrade(
        session.conninfo,
        on_wait=lambda whom: output.note(f"waiting for open transactions to end: {whom}"),
    )
    for name in applied:
        output.note(f"applied {name}")
    output.note(f"schema onceward {done} in {where}" if applied else f"schema onceward is current in {where}")


@app.command("status")
def status(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Show which version is installed, and what an upgrade would do."""
    session = session_of(ctx)
    try:
        now = install.status(session.connection)
    except psycopg.errors.InsufficientPrivilege as error:
        raise session.refused(error) from error
    if as_json:
        output.print_json(
            {
                "database": session.reach.database,
                "installed": now.installed,
                "current": now.current,
                "applied": now.applied,
                "pending": now.pending,
                "code_is_current": now.code_is_current,
                "newer": now.newer,
            }
        )
        return
    output.print_fields(
        [
            ("database", describe(session.conninfo)),
            ("installed", "yes" if now.installed else "no"),
            ("applied", ", ".join(now.applied) or "-"),
            ("pending", ", ".join(now.pending) or "-"),
            ("newer", ", ".join(now.newer) or None),
            ("code", "current" if now.code_is_current else "differs" if now.installed else "-"),
        ]
    )
    if now.newer:
        output.note("hint: The database is newer than this package. Upgrade the package.")
    elif not now.installed:
        output.note('hint: Install it with "onceward db init".')
    elif not now.current:
        output.note('hint: Upgrade it with "onceward db upgrade".')


@app.command("sql")
def sql(
    ctx: typer.Context,
    roles: Annotated[
        bool,
        typer.Option("--roles", help="Only the one statement for an administrator: it creates the roles."),
    ] = False,
    installer: Annotated[
        str | None,
        typer.Option(metavar="ROLE", help="With --roles: who will install. Without it: the connected role."),
    ] = None,
    database: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="With --roles: where. Without it: the connected database."),
    ] = None,
) -> None:
    """Print the SQL that installs everything, for another migration tool."""
    if not roles:
        if installer or database:
            raise UsageProblem("--installer and --database go with --roles", hint="Add --roles.")
        print(install.install_sql(), end="")
        return
    if installer is None or database is None:
        here = session_of(ctx).reach
        installer, database = installer or here.user, database or here.database
    print(install.roles_statement(installer, database))


@app.command("dsn")
def dsn(
    ctx: typer.Context,
    show_password: Annotated[
        bool, typer.Option("--show-password", help="Print the password, too, for another program to read.")
    ] = False,
) -> None:
    """Print the DSN of the database in use, for psql and other programs. Starts the embedded server if need be."""
    found = in_full(session_of(ctx).named)
    print(found if show_password else masked(found))


@app.command("stop")
def stop() -> None:
    """Stop the embedded PostgreSQL of this machine. Its data stay; the next command starts it again."""
    from onceward.embedded import EmbeddedServer, default_data_dir

    folder = default_data_dir()
    if not (folder / "postmaster.pid").exists():
        output.note(f"no embedded PostgreSQL runs in {folder}")
        return
    EmbeddedServer.start(folder).stop()
    output.note(f"stopped the embedded PostgreSQL in {folder}")


@app.command("check")
def check(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Check that what is installed fits: version, roles, grants and row-level security. Exit status 1 if not."""
    findings = doctor_schema.check(session_of(ctx))
    print_findings(findings, as_json=as_json)
