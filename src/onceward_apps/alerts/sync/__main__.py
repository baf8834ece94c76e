"""`python -m onceward_apps.alerts.sync look TENANT SOURCE`: the first page of a source, before anything is written."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from typing import Any

import psycopg

from onceward import OncewardError
from onceward.dsn import resolve_dsn
from onceward_apps.alerts.sync.columns import check_columns
from onceward_apps.alerts.sync.connector import open_source, settings_of
from onceward_apps.alerts.sync.model import Misconfigured, Source
from onceward_apps.alerts.sync.targets import MOST_TOLD, mapped


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m onceward_apps.alerts.sync", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    look = commands.add_parser("look", help="read the first page, and write nothing")
    look.add_argument("tenant")
    look.add_argument("source")
    given = parser.parse_args(arguments)
    try:
        for line in asyncio.run(_look(given.tenant, given.source)):
            sys.stdout.write(f"{line}\n")
    except OncewardError as error:
        parts = [("error", error.message), ("detail", error.detail), ("hint", error.hint)]
        sys.stderr.write("".join(f"{name}: {text}\n" for name, text in parts if text))
        return 1
    return 0


async def _look(tenant: str, name: str) -> list[str]:
    source, now = _found(tenant, name)
    settings = settings_of(source)
    # As if it were read for the first time: what it was before is not held against it.
    async with open_source(source, settings, tenant=tenant, now=now) as reader:
        page = await reader.fetch(None)
    check_columns(source, settings, page)
    rows, bad = mapped(page.rows, settings.model_copy(update={"on_bad_row": "skip"}), source.name)
    columns = ", ".join(f"{column} {kind}" for column, kind in sorted(page.columns.items()))
    first = json.dumps(rows[0], ensure_ascii=False) if rows else "none"
    return [
        f"columns    {columns or 'none'}",
        f"first row  {first}",
        *(f"problem    {problem}" for problem in bad[:MOST_TOLD]),
        f"{len(page.rows)} rows in the first page, {len(bad)} of them cannot be used",
    ]


def _found(tenant: str, name: str) -> tuple[Source, Any]:
    with psycopg.connect(resolve_dsn()) as connection:
        row = connection.execute(
            "select s.id, s.name, s.kind, s.target, s.settings, null, '{}'::jsonb, onceward.now()"
            "  from alerts.sync_sources as s join alerts.tenants as t on t.id = s.tenant_id"
            " where t.slug = %s and s.name = %s",
            [tenant, name],
        ).fetchone()
    if row is None:
        raise Misconfigured(
            f'tenant "{tenant}" has no source "{name}"', hint="Add it with alerts.add_sync_source."
        )
    return Source(*row[:-1]), row[-1]


if __name__ == "__main__":
    sys.exit(main())
