"""`python -m onceward_apps.alerts install | sample | tenant | functions | drill`: the schema, companies to look at, one of your own."""

from __future__ import annotations

import argparse
import asyncio
import sys

import psycopg

from onceward.dsn import resolve_dsn
from onceward.errors import OncewardError
from onceward.install import upgrade
from onceward_apps.alerts import sample, store
from onceward_apps.alerts.drill import drill
from onceward_apps.alerts.jobs import known


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m onceward_apps.alerts", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("install", help="the schema, unless it is there")
    commands.add_parser("sample", help="two companies with five weeks of metrics")
    commands.add_parser("functions", help="the functions that are registered")
    commands.add_parser("drill", help="call it twenty times, kill it in the middle, count what came of it")
    tenant = commands.add_parser("tenant", help="add a tenant, or change it")
    tenant.add_argument("slug")
    tenant.add_argument("name")
    tenant.add_argument("--zone", default="UTC", help="the time zone in which its days begin")
    tenant.add_argument(
        "--notify", action="append", default=[], help="who hears of alerts, by email; may be repeated"
    )
    given = parser.parse_args(arguments)
    if given.command == "functions":
        for function in known().values():
            sys.stdout.write(f"{function.name:<30}{function.every or 'on event':<10}{function.summary}\n")
        return 0
    dsn = resolve_dsn(None)
    upgrade(dsn)
    applied = store.install(dsn)
    sys.stdout.write("schema alerts is installed\n" if applied else "schema alerts is up to date\n")
    if given.command == "drill":
        return _drill(dsn)
    if given.command == "sample":
        sys.stdout.write(f"{sample.fill(dsn, known())} sample companies are new\n")
    if given.command == "tenant":
        with psycopg.connect(dsn) as connection:
            connection.execute(
                "select alerts.add_tenant(%s, %s, %s, %s)", [given.slug, given.name, given.zone, given.notify]
            )
        sys.stdout.write(f'tenant "{given.slug}" is set\n')
    if given.command in {"sample", "tenant"}:
        asyncio.run(_plan(dsn))
    return 0


def _drill(dsn: str) -> int:
    try:
        well = drill(dsn, lambda line: sys.stdout.write(line + "\n") and sys.stdout.flush())
    except OncewardError as error:
        sys.stderr.write(f"error: {error.message}\n" + (f"hint: {error.hint}\n" if error.hint else ""))
        return 1
    return 0 if well else 1


async def _plan(dsn: str) -> None:
    async with await psycopg.AsyncConnection.connect(dsn) as connection:
        await store.plan(connection, known())


if __name__ == "__main__":
    sys.exit(main())
