"""Databases that test after test uses: what the last one wrote is taken away, which costs a third of a fresh clone.

A database is given back only when nothing but rows and sequences differs from the template.  The server's own counters tell:
a row written to a catalogue is DDL, ANALYZE or a large object, and then the database is dropped.  The same happens when
somebody is still connected, or the test has broken its connection.  Rows go by TRUNCATE, so that sizes, statistics and
plans are those of a clone.  The first session of a test is used again, too: a new one reads and plans every function anew,
which takes longer than most tests.  DISCARD ALL takes away what it was told, and its plans.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, LiteralString

import psycopg
from psycopg import sql
from psycopg.rows import namedtuple_row, tuple_row

from onceward.testing import Database, DatabaseServer
from tests.support.engine import Engine

# Each use leaves some dead rows of pg_class behind.
MOST_USES = 30
# How long the connections that a test has closed may take to end.
TRIES, PAUSE = 50, 0.004

# Every connection has to have ended, since its counts are told with its end.
_ALONE: LiteralString = """
select count(*) = 0
  from pg_catalog.pg_stat_get_activity(null) as a
  join pg_catalog.pg_database as d on d.oid = a.datid
 where d.datname = current_database() and a.pid <> pg_backend_pid()
"""

# Whether anything but rows is another than in a clone, and which tables of ours were written to.
_CHANGED: LiteralString = """
with touched as materialized (
  select c.oid, c.oid < 16384 or c.relnamespace = 'pg_catalog'::regnamespace as is_catalogue
    from pg_catalog.pg_class as c
   where c.relkind in ('r', 'm') and not c.relisshared
     and pg_stat_get_tuples_inserted(c.oid) + pg_stat_get_tuples_updated(c.oid) + pg_stat_get_tuples_deleted(c.oid) > 0
)
select exists (select from touched where is_catalogue)
       -- What ANALYZE and VACUUM note of a table without rows is written in place, and counted nowhere else.
       or exists (select from pg_catalog.pg_class as c
                   where c.relkind in ('r', 'm', 'p') and c.oid >= 16384
                     and pg_stat_get_analyze_count(c.oid) + pg_stat_get_autoanalyze_count(c.oid)
                         + pg_stat_get_vacuum_count(c.oid) + pg_stat_get_autovacuum_count(c.oid) > 0)
       or exists (select from pg_catalog.pg_prepared_xacts where database = current_database())
       or exists (select from pg_catalog.pg_db_role_setting as s where s.setdatabase = d.oid)
       or d.datacl is not null,
       array(select oid::regclass::text from touched where not is_catalogue)
  from pg_catalog.pg_database as d where d.datname = current_database()
"""

_SEQUENCES: LiteralString = """
select oid::regclass::text, pg_sequence_last_value(oid) from pg_catalog.pg_class where relkind = 'S'
"""

# Columns that are written; the others are made from them.
_COLUMNS: LiteralString = """
select c.oid::regclass::text, array_agg(a.attname::text order by a.attnum)
  from pg_catalog.pg_class as c join pg_catalog.pg_attribute as a on a.attrelid = c.oid
 where c.relkind = 'r' and c.oid >= 16384 and a.attnum > 0 and not a.attisdropped and a.attgenerated = ''
 group by c.oid
"""


@dataclass(slots=True)
class Reuse:
    """The databases of one test session, one at a time."""

    server: DatabaseServer
    # With its session.
    _free: tuple[Database, psycopg.Connection[Any]] | None = None
    _uses: int = 0
    # Of the template: sequences, and rows as COPY tells them.
    _sequences: dict[str, int | None] = field(default_factory=dict)
    _columns: dict[str, list[str]] = field(default_factory=dict)
    _rows: dict[str, bytes] = field(default_factory=dict)

    @contextlib.contextmanager
    def engine(self) -> Iterator[Engine]:
        """A database as a clone would be, and a session of its own."""
        free, self._free = self._free, None
        if free is None:
            database, first, self._uses = self.server.clone(), None, 0
            if not self._columns:
                self._remember(database)
        else:
            database, first = free
        self._uses += 1
        kept = False
        engine = Engine(database, first)
        try:
            with engine:
                yield engine
                engine.close_others()
                kept = self._uses < MOST_USES and self._cleaned(engine.first)
                if kept:
                    self._free = database, engine.leave_first()
        finally:
            if not kept:
                self.server.drop(database)

    def close(self) -> None:
        if self._free is not None:
            database, first = self._free
            first.close()
            self.server.drop(database)
            self._free = None

    def _remember(self, database: Database) -> None:
        with psycopg.connect(database.dsn, autocommit=True) as conn:
            self._columns.update(conn.execute(_COLUMNS).fetchall())
            self._sequences.update(conn.execute(_SEQUENCES).fetchall())
            for table in self._columns:
                with conn.cursor().copy(self._copy("copy {} ({}) to stdout", table)) as copy:
                    self._rows[table] = b"".join(copy)

    def _copy(self, command: LiteralString, table: str) -> sql.Composed:
        names = sql.SQL(", ").join(map(sql.Identifier, self._columns[table]))
        # As regclass wrote it, with quotes where they are needed.
        return sql.SQL(command).format(sql.SQL(table), names)  # type: ignore[arg-type]  # a name, not a literal

    def _cleaned(self, conn: psycopg.Connection[Any]) -> bool:
        """Whether the database is as it was."""
        if conn.closed:
            return False
        try:
            conn.rollback()
            conn.autocommit = True
            conn.execute("discard all")
            _forgotten(conn)
            with conn.cursor(row_factory=tuple_row) as cursor:
                return _alone(cursor) and self._emptied(cursor)
        except psycopg.OperationalError:
            # The test has ended the session, or stopped the server.
            return False

    def _emptied(self, cursor: psycopg.Cursor[tuple[Any, ...]]) -> bool:
        cursor.execute("select pg_stat_force_next_flush()")
        found = cursor.execute(_CHANGED).fetchone()
        assert found is not None
        has_changed, tables = found
        if has_changed or not set(tables) <= set(self._columns):
            return False
        sequences = dict(cursor.execute(_SEQUENCES).fetchall())
        with cursor.connection.transaction():
            # Neither triggers nor rules: some tables are only appended to.
            cursor.execute("set local session_replication_role = replica")
            if tables:
                cursor.execute(sql.SQL("truncate {}").format(sql.SQL(", ").join(map(sql.SQL, tables))))
            for table in tables:
                if self._rows[table]:
                    with cursor.copy(self._copy("copy {} ({}) from stdin", table)) as copy:
                        copy.write(self._rows[table])
            for name, value in self._sequences.items():
                if sequences[name] != value:
                    cursor.execute("select setval(%s, coalesce(%s, 1), %s)", [name, value, value is not None])
            cursor.execute("select pg_stat_force_next_flush()")
        cursor.execute("select pg_stat_reset()")
        return True


def _forgotten(conn: psycopg.Connection[Any]) -> None:
    """What the driver keeps of a session that begins anew."""
    conn.row_factory = namedtuple_row
    conn.prepare_threshold = 5
    conn._prepared.clear()
    conn._notice_handlers.clear()
    conn._notify_handlers.clear()


def _alone(cursor: psycopg.Cursor[tuple[Any, ...]]) -> bool:
    for _ in range(TRIES):
        if cursor.execute(_ALONE).fetchone() == (True,):
            return True
        cursor.execute("select pg_sleep(%s)", [PAUSE])
    return False
