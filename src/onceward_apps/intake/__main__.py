"""`python -m onceward_apps.intake`: install, work, look, make a link or a token."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta
from typing import Annotated, Any, LiteralString
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
Account = Annotated[UUID, typer.Argument(help="The id of an account, as `people` lists it.")]
Minutes = Annotated[int, typer.Option(min=1, max=1440, help="How long it lasts.")]


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
        asyncio.run(_sample(dsn))
    typer.echo("schema intake: " + ("installed" if applied else "up to date"))


async def _sample(dsn: str) -> None:
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
def people() -> None:
    """List accounts and the profiles that they have access to, as JSON lines, the newest profiles first."""
    for row in _served(
        "select a.account_id, a.access, p.id as profile_id, p.display_name, p.plan_type from intake.user_profiles as p "
        "cross join lateral (select p.account_owner_id, 'owner' union all "
        "select g.user_id, g.access_level from intake.profile_access as g where g.profile_id = p.id and g.revoked_at is null) "
        "as a (account_id, access) order by p.created_at desc, p.id, a.access = 'owner' desc, a.account_id limit 100"
    ):
        typer.echo(json.dumps(row, default=str))


@cli.command()
def link(
    user: Account,
    address: Annotated[str, typer.Option(help="Where the pages are.")] = "http://localhost:8080",
    minutes: Minutes = 15,
) -> None:
    """A link that signs a person in to their pages, once."""
    _check_account(user)
    made = tokens.issue_link(Settings.from_environ(), user, lasts=timedelta(minutes=minutes))
    typer.echo(f"{address.rstrip('/')}/records/enter?token={made}")


@cli.command()
def token(user: Account, minutes: Minutes = 15) -> None:
    """A bearer token of a person, for the functions below /functions/v1."""
    _check_account(user)
    typer.echo(tokens.issue(Settings.from_environ(), user, lasts=timedelta(minutes=minutes)))


def _check_account(user: UUID) -> None:
    known = _served(
        "select from intake.user_profiles where account_owner_id = %s union all "
        "select from intake.profile_access where user_id = %s and revoked_at is null limit 1",
        user, user,
    )  # fmt: skip
    if not known:
        typer.echo(f"error: account {user} does not exist, or has no profile", err=True)
        typer.echo('hint: List accounts with "python -m onceward_apps.intake people".', err=True)
        raise typer.Exit(1)


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


def _served(statement: LiteralString, *params: object) -> list[store.Row]:
    """What the service role reads: tables of people show themselves to nobody else."""

    async def read() -> list[store.Row]:
        database = store.Database(resolve_dsn())
        try:
            async with database.serving() as connection:
                return await store.rows(connection, statement, *params)
        finally:
            await database.close()

    return asyncio.run(read())


def _print(statement: Any) -> None:
    with psycopg.connect(resolve_dsn(), row_factory=dict_row) as connection:
        for row in connection.execute(statement):
            typer.echo(json.dumps(row, default=str))


if __name__ == "__main__":
    cli()
