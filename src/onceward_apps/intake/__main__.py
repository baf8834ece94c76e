"""`python -m onceward_apps.intake`: install, work, look, make a link."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from typing import Annotated, Any
from uuid import UUID

import psycopg
import typer
from psycopg.rows import dict_row

from onceward.dsn import resolve_dsn
from onceward.install import upgrade
from onceward.worker import WorkerSettings, run_worker
from onceward_apps.intake import samples, store, tokens
from onceward_apps.intake.settings import Settings, WorkerEnvironment

cli = typer.Typer(help="Health-file intake: install, work, look.", no_args_is_help=True, add_completion=False)


@cli.command()
def install(
    *,
    sample: Annotated[
        bool, typer.Option("--sample/--no-sample", help="Also a family to try it with.")
    ] = False,
) -> None:
    """Install the engine and the schema intake, or bring them up to date."""
    dsn = resolve_dsn()
    upgrade(dsn)
    applied = store.install(dsn)
    if sample:
        asyncio.run(_people(dsn))
    typer.echo("schema intake: " + ("installed" if applied else "up to date"))


async def _people(dsn: str) -> None:
    database = store.Database(dsn)
    await samples.people(database)
    await database.close()


@cli.command()
def worker() -> None:
    """Work with the documented settings: WORKER_CONCURRENCY, QUEUE_POLL_INTERVAL, HEALTH_CHECK_PORT, LOG_LEVEL, …"""
    environment = WorkerEnvironment.from_environ()
    dsn = resolve_dsn()
    with psycopg.connect(dsn, autocommit=True) as connection:
        for key, value in environment.configuration.items():
            connection.execute("select intake.configure(%s, to_jsonb(%s::integer))", [key, value])
    settings = WorkerSettings(
        dsn=dsn,
        concurrency=environment.concurrency,
        poll=environment.poll,
        health_port=environment.health_port,
        log_format="json",
        name=environment.name,
    )
    raise typer.Exit(run_worker("onceward_apps.intake.deployed:app", settings))


@cli.command()
def link(
    user: Annotated[UUID, typer.Argument(help="The id of an account.")],
    address: Annotated[str, typer.Option(help="Where the pages are.")] = "http://localhost:8080",
    minutes: Annotated[int, typer.Option(min=1, max=1440)] = 15,
) -> None:
    """A link that signs a person in to their pages."""
    token = tokens.issue(Settings.from_environ(), user, lasts=timedelta(minutes=minutes))
    typer.echo(f"{address.rstrip('/')}/records/enter?token={token}")


@cli.command()
def jobs() -> None:
    """List jobs as JSON lines, the newest first."""
    _print("select * from intake.job_queue order by created_at desc limit 100")


@cli.command()
def limits() -> None:
    """List providers' limits as JSON lines."""
    _print("select * from intake.api_rate_limits order by provider_name, api_endpoint")


@cli.command()
def levels() -> None:
    """List targets and whether they are met, as JSON lines."""
    _print("select * from intake.service_levels()")


def _print(statement: Any) -> None:
    with psycopg.connect(resolve_dsn(), row_factory=dict_row) as connection:
        for row in connection.execute(statement):
            typer.echo(json.dumps(row, default=str))


if __name__ == "__main__":
    cli()
