"""The connector: reads what is new of every source of a function, page by page, each with its cursor in one transaction.

A page is fetched outside of any transaction, and then its rows and the cursor after it are committed together, as one step
of the run.  A crash before the commit repeats the page; a crash after it goes on with the next one.  Rows are upserted and
cursors are compared before they are set, so repeating changes nothing, and two runs at once do not undo each other.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any

from pydantic import ValidationError

from onceward import LeaseLost, OncewardError, logs
from onceward.errors import RateLimited, shown
from onceward_apps.alerts.functions import Context, Result, Tenant
from onceward_apps.alerts.sync import store
from onceward_apps.alerts.sync.access import Access
from onceward_apps.alerts.sync.bigquery import BigQuery, BigQuerySettings, GoogleWarehouse
from onceward_apps.alerts.sync.columns import check_columns
from onceward_apps.alerts.sync.files import CsvFiles, CsvSettings, FileSettings, ParquetFiles
from onceward_apps.alerts.sync.http import HttpApi, HttpSettings
from onceward_apps.alerts.sync.model import Misconfigured, Reader, Source, SourceError
from onceward_apps.alerts.sync.store import STEPS, Connection
from onceward_apps.alerts.sync.targets import MOST_TOLD, Settings, mapped

log = logs.get("onceward_apps.alerts.sync")
# Of one source in one run; the next run goes on.
MOST_PAGES = 500
# Steps are named after it.
LONGEST_NAME = 100
KINDS: dict[str, type[Settings]] = {
    "csv": CsvSettings,
    "parquet": FileSettings,
    "http": HttpSettings,
    "bigquery": BigQuerySettings,
}


class SourcesFailed(OncewardError):
    """Some sources could not be read; the others were."""


@dataclass(slots=True)
class Tally:
    """What one run did with one source."""

    pages: int = 0
    rows: int = 0
    written: int = 0
    deleted: int = 0
    # There is more than one run may read.
    more: bool = False
    # Another run reads this source, and goes on with it.
    elsewhere: bool = False
    new_columns: list[str] = field(default_factory=list)
    left_out: int = 0
    # What was wrong with the first rows that were left out.
    problems: list[str] = field(default_factory=list)

    def add(self, page: Mapping[str, Any]) -> None:
        self.pages += 1
        self.rows += page["rows"]
        self.written += page["written"]
        self.deleted += page["deleted"]
        self.elsewhere = self.elsewhere or page["moved"]
        self.new_columns = sorted({*self.new_columns, *page["new_columns"]})
        self.left_out += page["left_out"]
        self.problems = [*self.problems, *page["problems"]][:MOST_TOLD]

    def answer(self) -> dict[str, Any]:
        """What is always told, and of the rest what there is."""
        told = {"pages": self.pages, "rows": self.rows, "written": self.written, "deleted": self.deleted}
        rest = {
            "more": self.more,
            "elsewhere": self.elsewhere,
            "new_columns": self.new_columns,
            "left_out": self.left_out,
            "problems": self.problems,
        }
        return {**told, **{name: value for name, value in rest.items() if value}}


async def sync(context: Context, tenant: Tenant, function: str) -> Result:
    """Read what is new of every source of this function.  One that fails does not keep the others from being read.

    Raises RateLimited when that is all that went wrong, so that waiting uses up no attempt, and SourcesFailed otherwise.
    """
    looked: list[store.Look] = []

    async def look(connection: Connection) -> int:
        looked.append(await store.look(connection, function, context.job.id))
        return len(looked[0].sources)

    # Under a name of its own in every attempt, so that settings that were mended count.
    await context.transaction(f"{STEPS}sources, claim {context.job.epoch}", look)
    (found,) = looked
    tallies = await _done_before(context, found.done)
    opening = partial(open_source, tenant=tenant.slug, now=found.now)
    failures: dict[str, Exception] = {}
    for source in found.sources:
        tally = tallies.setdefault(source.name, Tally())
        try:
            await _sync_one(context, source, tally, opening)
        except LeaseLost:
            raise
        except Exception as error:
            if not isinstance(error, OncewardError):
                # Ours, not the source's: with its traceback, and the other sources still get their turn.
                log.exception("sync_source_broke", tenant=tenant.slug, source=source.name)
            failures[source.name] = error
            log.warning("sync_source_failed", tenant=tenant.slug, source=source.name, error=str(error))
    if failures:
        raise _together(failures, len(found.sources))
    return {"sources": {name: tally.answer() for name, tally in tallies.items()}}


def open_source(source: Source, settings: Settings, *, tenant: str, now: datetime) -> Reader:
    access = Access.from_environ(os.environ)
    match settings:
        case CsvSettings():
            return CsvFiles(settings, access, tenant)
        case FileSettings():
            return ParquetFiles(settings, access, tenant)
        case HttpSettings():
            return HttpApi(settings, access, now=now)
        case BigQuerySettings():
            return BigQuery(settings, GoogleWarehouse(settings), now=now)
    raise Misconfigured(f'kind "{source.kind}" is not known', hint=f"Kinds: {', '.join(KINDS)}.")


def settings_of(source: Source) -> Settings:
    """Raises Misconfigured, which names the setting."""
    if not source.name.isprintable() or not 1 <= len(source.name) <= LONGEST_NAME:
        raise Misconfigured(
            f"name of a source must be 1 to {LONGEST_NAME} printable characters, got {shown(source.name)!r}"
        )
    if source.kind not in KINDS:
        raise Misconfigured(
            f'kind of source "{source.name}" must be one of {", ".join(KINDS)}, got "{source.kind}"'
        )
    try:
        return KINDS[source.kind].model_validate({**source.settings, "target": source.target})
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise Misconfigured(
            f'settings of source "{source.name}" cannot be used: {where}{": " if where else ""}{first["msg"]}',
            hint="Change them in alerts.sync_sources; the next run takes them.",
        ) from None


async def _sync_one(context: Context, source: Source, tally: Tally, opening: partial[Reader]) -> None:
    settings = settings_of(source)
    async with opening(source, settings) as reader:
        while not tally.elsewhere:
            if tally.pages >= MOST_PAGES:
                tally.more = True
                return
            page = await reader.fetch(source.cursor)
            columns, new = check_columns(source, settings, page)
            rows, bad = mapped(page.rows, settings, source.name)
            told = {
                "source": source.name,
                "rows": len(page.rows),
                "new_columns": new,
                "left_out": len(bad),
                "problems": bad[:MOST_TOLD],
            }

            async def write(
                connection: Connection, source: Source = source, after: Any = page.cursor, told: Any = told,
                columns: Any = columns, rows: Any = rows,
            ) -> dict[str, Any]:  # fmt: skip
                done = await store.write_page(
                    connection, source, after=after, columns=columns, rows=rows, job_id=context.job.id
                )
                return {**told, "moved": done.moved, "written": done.written, "deleted": done.deleted}

            tally.add(await context.transaction(f"{STEPS}{source.name}, page {tally.pages + 1}", write))
            source = replace(source, cursor=page.cursor, columns=columns)
            if not page.more:
                return


async def _done_before(context: Context, steps: Sequence[str]) -> dict[str, Tally]:
    """What earlier attempts of this run have committed.  Every step is asked for, as the engine expects."""
    tallies: dict[str, Tally] = {}

    async def never(connection: Connection) -> Any:
        raise AssertionError("the step is done")

    for name in steps:
        result = await context.transaction(name, never)
        if isinstance(result, dict):
            tallies.setdefault(result["source"], Tally()).add(result)
    return tallies


def _together(failures: Mapping[str, Exception], all_sources: int) -> OncewardError:
    waits = [error.retry_after for error in failures.values() if isinstance(error, RateLimited)]
    names = ", ".join(f'"{name}"' for name in failures)
    if len(waits) == len(failures):
        return RateLimited(f"the source {names} asks to wait", retry_after=max(waits))
    # Without those that only wait: they are read again by the next attempt anyway.
    name, first = next(
        (name, error) for name, error in failures.items() if not isinstance(error, RateLimited)
    )
    message = first.message if isinstance(first, OncewardError) else f"{type(first).__name__}: {first}"
    return SourcesFailed(
        f'could not read source "{name}": {message}',
        detail=f"{len(failures)} of {all_sources} sources failed: {names}.  The others were read.",
        hint=first.hint if isinstance(first, SourceError) else None,
    )
