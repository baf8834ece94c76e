"""`onceward demo`: a first look."""

from __future__ import annotations

import os

import typer

from onceward.cli.session import session_of


def demo(ctx: typer.Context) -> None:
    """Watch jobs run, fail, retry and come back. Uses the embedded PostgreSQL unless a database is named."""
    from onceward import demo as show

    if dsn := session_of(ctx).dsn:
        # For its worker, too, which is a process of its own.
        os.environ["ONCEWARD_DSN"] = dsn
    raise typer.Exit(show.run())
