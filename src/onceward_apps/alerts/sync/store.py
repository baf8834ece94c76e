"""One function per SQL function.  Each takes the connection of a transaction, whose tenant is that of the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any
from uuid import UUID

import psycopg
from psycopg.types.json import Jsonb

from onceward_apps.alerts.sync.model import Cursor, Source

Connection = psycopg.AsyncConnection[Any]
# How the names of this package's steps begin.
STEPS = "sync: "


@dataclass(frozen=True, slots=True)
class Written:
    # Somebody else has read on meanwhile; nothing was written.
    moved: bool
    written: int
    deleted: int


@dataclass(frozen=True, slots=True)
class Look:
    """What a run begins with."""

    # The engine's time.
    now: datetime
    sources: list[Source]
    # Steps that earlier attempts of this run have done, in their order.
    done: list[str]


async def look(connection: Connection, function: str, job_id: UUID) -> Look:
    cursor = await connection.execute(
        "select id, name, kind, target, settings, cursor, columns from alerts.sync_sources_of(%s)", [function]
    )
    found = [Source(*row) for row in await cursor.fetchall()]
    cursor = await connection.execute(
        "select onceward.now(), array(select s.name from onceward.steps as s"
        "  where s.job_id = %s and s.state = 'done' and s.name like %s order by s.seq)",
        [job_id, f"{STEPS}%"],
    )
    row = await cursor.fetchone()
    assert row is not None
    return Look(row[0], found, row[1])


async def write_page(
    connection: Connection,
    source: Source,
    *,
    after: Cursor,
    columns: Mapping[str, str],
    rows: Sequence[Mapping[str, Any]],
    job_id: UUID,
) -> Written:
    """Rows and cursor, in the caller's transaction."""
    cursor = await connection.execute(
        "select moved, written, deleted from alerts.write_page(%s, %s, %s, %s, %s, %s)",
        [
            source.id,
            None if source.cursor is None else Jsonb(source.cursor),
            None if after is None else Jsonb(after),
            Jsonb(dict(columns)),
            Jsonb(list(rows)),
            job_id,
        ],
    )
    row = await cursor.fetchone()
    assert row is not None
    return Written(*row)


async def build_profiles(connection: Connection, day: date, before: datetime) -> dict[str, Any]:
    cursor = await connection.execute(
        "select profiles, changed, removed, segments from alerts.build_profiles(%s, %s)", [day, before]
    )
    row = await cursor.fetchone()
    assert row is not None
    profiles, changed, removed, segments = row
    return {"profiles": profiles, "changed": changed, "removed": removed, "segments": segments}
