"""Install a system's schema beside the engine's.

A system's `schema.sql`, or the files of its folder `schema` in the order of their names, can be applied any number of times: `create ... if not exists`, `create or replace`.
The digest of what was applied last stands in the comment on its schema, so that a start with nothing new takes no lock.
"""

from __future__ import annotations

import hashlib
from importlib import resources
from importlib.resources.abc import Traversable

import psycopg
from psycopg import sql

# Any number that nobody else uses: two installers of any system go one after the other.
_INSTALLING = 0x6F6E6365776172


def install(dsn: str, system: str, schema: str) -> bool:
    """Apply the schema of `onceward_apps/<system>` unless it is what the database has; whether it was applied.

    The engine must be installed.  Everything happens in one transaction: a crash leaves what was there before.
    """
    text = _read(resources.files("onceward_apps") / system)
    mark = f"Onceward {system}, {hashlib.sha256(text.encode()).hexdigest()[:16]}"
    with psycopg.connect(dsn) as conn:
        if _installed(conn, schema) == mark:
            return False
        conn.execute("select pg_catalog.pg_advisory_xact_lock(%s)", [_INSTALLING])
        # Another installer may have been here while this one waited.
        if _installed(conn, schema) == mark:
            return False
        conn.execute(text.encode())
        conn.execute(
            sql.SQL("comment on schema {} is {}").format(sql.Identifier(schema), sql.Literal(mark)),
        )
    return True


def _read(system: Traversable) -> str:
    folder = system / "schema"
    if not folder.is_dir():
        return (system / "schema.sql").read_text(encoding="utf-8")
    files = sorted(
        (file for file in folder.iterdir() if file.name.endswith(".sql")), key=lambda file: file.name
    )
    return "\n".join(file.read_text(encoding="utf-8") for file in files)


def _installed(conn: psycopg.Connection, schema: str) -> str | None:
    row = conn.execute(
        "select pg_catalog.obj_description(n.oid, 'pg_namespace') from pg_catalog.pg_namespace as n"
        " where n.nspname = %s",
        [schema],
    ).fetchone()
    return row[0] if row else None
