"""Installing and upgrading the schema: migrations once, in order; functions, views and grants every time."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING

import psycopg
from psycopg import sql

from onceward.connecting import connect
from onceward.errors import NotInstalled, OncewardError

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

# An upgrade comes while programs work.  Whoever waits for a lock has everybody wait behind it, so it gives way after this time
# (before PostgreSQL looks for a deadlock, whose victim might be a program), and tries again, for so many seconds.
_GIVE_WAY = "set local lock_timeout = '500ms'"
_PATIENCE, _SHORTEST_PAUSE, _LONGEST_PAUSE = 60.0, 0.2, 3.0
_BUSY = (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected)
# Serialises migrators of one database.  Transaction-scoped, so it works through a pooler.
_LOCK = "select pg_advisory_xact_lock(hashtext('onceward.install'))"

_LEDGER = """
create table if not exists onceward.migration_private (
  version    integer primary key,
  name       text not null,
  applied_at timestamptz not null default statement_timestamp()
);
create table if not exists onceward.code_private (
  only_row   boolean primary key default true check (only_row),
  digest     text not null,
  applied_at timestamptz not null default statement_timestamp()
);
"""


@dataclass(frozen=True, slots=True)
class Script:
    name: str
    text: str

    @property
    def version(self) -> int:
        return int(self.name.split("_", 1)[0])


@dataclass(frozen=True, slots=True)
class Status:
    """What is installed, and what an upgrade would do."""

    installed: bool
    applied: tuple[str, ...]
    pending: tuple[str, ...]
    code_is_current: bool
    newer: tuple[str, ...]

    @property
    def current(self) -> bool:
        return self.installed and not self.pending and self.code_is_current


def migrations() -> list[Script]:
    return _scripts("migrations")


def code() -> list[Script]:
    """Functions, views and grants: replaced on every upgrade."""
    last = [
        Script(name, _root().joinpath(name).read_text())
        for name in ("obsolete.sql", "rows.sql", "grants.sql")
    ]
    return [*_scripts("functions"), *_scripts("views"), *last]


def digest() -> str:
    text = "\n".join(script.name + "\n" + script.text for script in code())
    return hashlib.sha256(text.encode()).hexdigest()


def roles_statement(installer: str, database: str) -> str:
    """The one statement an administrator runs when the installing role may not create roles."""
    text = _root().joinpath("roles.sql").read_text()
    statement = "\n".join(line for line in text.splitlines() if not line.startswith("--"))
    return (
        statement.replace(
            "coalesce(nullif(current_setting('onceward.installer', true), ''), current_user)",
            _literal(installer),
        )
        .replace("current_database()", _literal(database))
        .strip()
        + ";"
    )


def install_sql() -> str:
    """Everything as one script, for those who install with another tool."""
    parts = [
        f"-- roles.sql\n{_root().joinpath('roles.sql').read_text()};",
        "set role onceward_owner;",
        "create schema if not exists onceward;",
        _LEDGER,
        "set local check_function_bodies = off;",
    ]
    for script in migrations():
        parts.append(f"-- migrations/{script.name}\n{script.text}")
        parts.append(
            f"insert into onceward.migration_private (version, name) values ({script.version}, {_literal(script.name)});"
        )
    parts += [f"-- {script.name}\n{script.text}" for script in code()]
    parts.append(f"insert into onceward.code_private (digest) values ({_literal(digest())});")
    parts.append("select onceward.ensure_partitions();")
    parts.append("reset role;")
    return "begin;\n" + "\n".join(parts) + "\ncommit;\n"


def status(conn: psycopg.Connection[tuple[object, ...]]) -> Status:
    if not _installed(conn):
        return Status(False, (), tuple(m.name for m in migrations()), False, ())
    applied = [
        str(row[0]) for row in conn.execute("select name from onceward.migration_private order by version")
    ]
    row = conn.execute("select digest from onceward.code_private").fetchone()
    return status_of(applied, None if row is None else str(row[0]))


def status_of(applied: Sequence[str], found: str | None) -> Status:
    """Of a database with these migrations, and code of this digest."""
    known = [m.name for m in migrations()]
    return Status(
        installed=True,
        applied=tuple(applied),
        pending=tuple(name for name in known if name not in applied),
        code_is_current=found == digest(),
        newer=tuple(name for name in applied if name not in known),
    )


def upgrade(
    dsn: str, *, days_ahead: int | None = None, on_wait: Callable[[str], None] | None = None
) -> list[str]:
    """Install or upgrade; returns what was applied.  Two at once apply once.  All or nothing.

    `days_ahead` is how many days get their partitions now; the engine's own number when it is None.  `on_wait` is told, once,
    for whom an upgrade waits.
    """
    # Roles are shared by the whole server and created in their own transaction: a failure there must be told apart.
    with connect(dsn, autocommit=True) as conn:
        _check_server(conn)
        _ensure_roles(conn)
    end, pause = time.monotonic() + _PATIENCE, _SHORTEST_PAUSE
    while True:
        try:
            return _upgraded(dsn, days_ahead)
        except OncewardError as error:
            if not isinstance(error.__cause__, _BUSY):
                raise
            whom = _open_transactions(dsn)
            if time.monotonic() + pause > end:
                raise OncewardError(
                    f"could not upgrade within {_PATIENCE:g} s: other sessions keep what has to be changed",
                    detail=f"Open transactions: {whom}.",
                    hint="Nothing was changed. End these transactions, or try again at a quieter time.",
                ) from error
        if on_wait is not None:
            on_wait(whom)
            on_wait = None
        time.sleep(pause)
        pause = min(pause * 1.5, _LONGEST_PAUSE)


def _upgraded(dsn: str, days_ahead: int | None) -> list[str]:
    done: list[str] = []
    with connect(dsn) as conn:
        conn.execute(_LOCK)
        # Checked under the lock: a migrator that waited finds everything done.
        if _installed(conn):
            now = status(conn)
            if now.newer:
                raise OncewardError(
                    "the database is newer than this version of Onceward",
                    detail=f"It has {', '.join(now.newer)}, which this version does not know.",
                    hint="Upgrade the package; migrations only go forward.",
                )
            if now.current:
                return done
        conn.execute(_GIVE_WAY)
        conn.execute("set local role onceward_owner")
        conn.execute("set local check_function_bodies = off")
        conn.execute("create schema if not exists onceward")
        conn.execute(_LEDGER)
        applied = {row[0] for row in conn.execute("select version from onceward.migration_private")}
        for script in migrations():
            if script.version not in applied:
                _run(conn, script)
                conn.execute(
                    "insert into onceward.migration_private (version, name) values (%s, %s)",
                    (script.version, script.name),
                )
                done.append(script.name)
        for script in code():
            _run(conn, script)
        conn.execute(
            "insert into onceward.code_private (digest) values (%s) on conflict (only_row) do update "
            "set digest = excluded.digest, applied_at = statement_timestamp()",
            (digest(),),
        )
        if days_ahead is None:
            conn.execute("select onceward.ensure_partitions()")
        else:
            conn.execute("select onceward.ensure_partitions(%s)", (days_ahead,))
        done.append("functions, views and grants")
    return done


def require_current(conn: psycopg.Connection[tuple[object, ...]]) -> None:
    """Raise NotInstalled unless the schema fits this code."""
    now = status(conn)
    if not now.installed:
        raise NotInstalled(hint='Install it with "onceward db init".')
    if now.pending:
        raise NotInstalled(
            "the schema onceward is older than this version of Onceward",
            detail=f"Not applied: {', '.join(now.pending)}.",
            hint='Upgrade it with "onceward db upgrade".',
        )


def _open_transactions(dsn: str) -> str:
    """Those of this database that may be in the way, the oldest first, as far as this role may see them."""
    with connect(dsn, autocommit=True) as conn:
        rows = conn.execute(
            "select a.pid, coalesce(nullif(a.application_name, ''), a.usename, '?'), "
            "       extract(epoch from statement_timestamp() - a.xact_start)::integer "
            "  from pg_stat_activity as a "
            " where a.datname = current_database() and a.pid <> pg_backend_pid() and a.xact_start is not null "
            " order by a.xact_start nulls last limit 5"
        ).fetchall()
    return (
        ", ".join(
            f"process {pid} ({name}{'' if age is None else f', for {age} s'})" for pid, name, age in rows
        )
        or "none any more"
    )


def _installed(conn: psycopg.Connection[tuple[object, ...]]) -> bool:
    row = conn.execute("select to_regclass('onceward.migration_private') is not null").fetchone()
    return bool(row and row[0])


def _check_server(conn: psycopg.Connection[tuple[object, ...]]) -> None:
    if conn.info.server_version < 150000:
        raise OncewardError(
            f"PostgreSQL 15 or later is needed, got {conn.info.server_version // 10000}",
            hint="Upgrade the server, or leave ONCEWARD_DSN unset to use the embedded PostgreSQL.",
        )


def _ensure_roles(conn: psycopg.Connection[tuple[object, ...]]) -> None:
    row = conn.execute(
        "select count(*) = 5, current_user::text, current_database()::text, "
        "       bool_or(rolname = 'onceward_owner' and pg_has_role(current_user, oid, 'usage')), "
        "       has_database_privilege(current_database(), 'create') "
        "  from pg_roles where rolname in ('onceward_owner', 'onceward_producer', 'onceward_worker', "
        "                                  'onceward_operator', 'onceward_auditor')"
    ).fetchone()
    assert row is not None
    complete, user, database, is_member, _ = row
    may_create = bool(
        is_member
        and (
            conn.execute(
                "select has_database_privilege('onceward_owner', current_database(), 'create')"
            ).fetchone()
            or [False]
        )[0]
    )
    if complete and is_member and may_create:
        return
    try:
        conn.execute(_root().joinpath("roles.sql").read_text())
    except psycopg.errors.InsufficientPrivilege as error:
        raise OncewardError(
            f'role "{user}" may not create the roles of Onceward',
            detail=str(error.diag.message_primary),
            hint="An administrator has to run this one statement; then call again:\n"
            + roles_statement(str(user), str(database)),
        ) from error


def _run(conn: psycopg.Connection[tuple[object, ...]], script: Script) -> None:
    try:
        conn.execute(script.text)
    except psycopg.Error as error:
        raise OncewardError(
            f"could not apply {script.name}: {error.diag.message_primary}",
            detail=error.diag.message_detail,
            hint="Nothing was changed.",
        ) from error


def _root() -> Traversable:
    return resources.files("onceward").joinpath("sql")


def _scripts(folder: str) -> list[Script]:
    files = (f for f in _root().joinpath(folder).iterdir() if f.name.endswith(".sql"))
    return [Script(f.name, f.read_text()) for f in sorted(files, key=lambda f: f.name)]


def _literal(value: str) -> str:
    return sql.Literal(value).as_string(None)
