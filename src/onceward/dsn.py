"""Which database a program means that names none."""

from __future__ import annotations

import contextlib
import os

import psycopg
from psycopg.conninfo import conninfo_to_dict

from onceward.errors import InvalidArgument, OncewardError

__all__ = ["resolve_dsn"]

DATABASE = "onceward"
# One of these says that libpq's own variables are meant. PGUSER or PGPASSWORD alone names no server.
LIBPQ_VARIABLES = ("PGHOST", "PGHOSTADDR", "PGSERVICE", "PGDATABASE")


def resolve_dsn(dsn: str | None = None) -> str:
    """The argument, else ONCEWARD_DSN, else libpq's PG* variables, else the embedded server, which is started.

    The answer is empty when the PG* variables decide: psycopg and libpq read them by themselves.
    Raises InvalidArgument when the text is no DSN.
    """
    if named := dsn or os.environ.get("ONCEWARD_DSN"):
        return _readable(named)
    if any(os.environ.get(name) for name in LIBPQ_VARIABLES):
        return ""
    return _embedded_dsn()


def _readable(dsn: str) -> str:
    try:
        conninfo_to_dict(dsn)
    except psycopg.ProgrammingError:
        # libpq repeats what it could not read, password included.
        raise InvalidArgument(
            "cannot read the connection string of the database",
            hint="Write ONCEWARD_DSN or --dsn like postgresql://user@host:5432/database "
            'or "host=… dbname=… user=…".',
        ) from None
    return dsn


def _embedded_dsn() -> str:
    if os.name != "posix":
        raise OncewardError(
            "no PostgreSQL server is named, and this system has no embedded one",
            hint="Set ONCEWARD_DSN to a PostgreSQL server.",
        )
    # Imported here because it needs a POSIX system, and because most programs name a server.
    from onceward.embedded import EmbeddedServer, default_data_dir

    server = EmbeddedServer.start(default_data_dir())
    with psycopg.connect(server.dsn()) as connection:
        found = connection.execute(
            "select from pg_catalog.pg_database where datname = %s", [DATABASE]
        ).fetchone()
    if found is None:
        # Another process may have been faster.
        with contextlib.suppress(psycopg.errors.DuplicateDatabase, psycopg.errors.UniqueViolation):
            server.create_database(DATABASE)
    return server.dsn(DATABASE)
