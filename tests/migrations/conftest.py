from __future__ import annotations

import contextlib
import os
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from onceward.testing import Database, DatabaseServer

ROLES = ("onceward_owner", "onceward_producer", "onceward_worker", "onceward_operator", "onceward_auditor")


class Cluster:
    """A server of its own, because roles belong to the whole server; between tests it is as new."""

    def __init__(self, server: DatabaseServer) -> None:
        self._server = server
        self._count = 0
        self._databases: list[Database] = []
        self._roles: list[str] = []
        self.version = int(self.ask("show server_version_num") or 0) // 10000

    def ask(self, statement: str, dsn: str | None = None):
        """The first column of the first row, as the administrator (or whom the DSN names)."""
        with psycopg.connect(dsn or self._server.admin_dsn, autocommit=True) as connection:
            cursor = connection.execute(statement)
            row = cursor.fetchone() if cursor.description else None
            return row[0] if row else None

    def role(self, name: str, options: str = "") -> str:
        self.ask(f"create role {sql.Identifier(name).as_string(None)} login {options}")
        self._roles.append(name)
        return name

    def database(self, owner: str | None = None) -> str:
        """The DSN of a new database, for the role that owns it."""
        self._count += 1
        database = self._server.create(str(self._count), owner=owner)
        self._databases.append(database)
        return self.as_(owner, database.dsn) if owner else database.dsn

    def as_(self, role: str, dsn: str) -> str:
        return make_conninfo(dsn, user=role)

    def as_administrator(self, dsn: str) -> str:
        return make_conninfo(dsn, user="postgres")

    def psql(self) -> Path:
        assert self._server.embedded is not None
        return self._server.embedded.bin_dir / "psql"

    def clean(self) -> None:
        for database in self._databases:
            self._server.drop(database)
        self._databases.clear()
        with psycopg.connect(self._server.admin_dsn, autocommit=True) as connection:
            # Granted by one another: whoever granted goes last.
            for _ in range(2):
                for role in (*ROLES, *self._roles):
                    with contextlib.suppress(
                        psycopg.errors.UndefinedObject, psycopg.errors.DependentObjectsStillExist
                    ):
                        connection.execute(sql.SQL("drop owned by {}").format(sql.Identifier(role)))
                        connection.execute(sql.SQL("drop role {}").format(sql.Identifier(role)))
        self._roles.clear()


@pytest.fixture(scope="session")
def own_server():
    programs = os.environ.get("ONCEWARD_TEST_PG_BIN")
    with DatabaseServer.start(bin_dir=Path(programs) if programs else None) as server:
        yield server


@pytest.fixture
def cluster(own_server):
    cluster = Cluster(own_server)
    yield cluster
    cluster.clean()
