"""Installing: by an ordinary role, and once more over what is there."""

from __future__ import annotations

import psycopg
import pytest
from psycopg import sql as compose

from onceward_apps.proof import store


@pytest.fixture
def installer(onceward_server):
    """A database with the engine, and a role that may act for its owner and no more."""
    with onceward_server.cloned() as database, psycopg.connect(database.dsn, autocommit=True) as admin:
        admin.execute("select 1 from pg_roles where rolname = 'anon'").fetchone() or admin.execute(
            "create role anon nologin"
        )
        admin.execute("create role proof_installer login in role onceward_owner")
        admin.execute(
            compose.SQL("grant create on database {} to proof_installer").format(
                compose.Identifier(database.name)
            )
        )
        yield f"{database.dsn} user=proof_installer"
        admin.execute("drop owned by proof_installer cascade")
        admin.execute("drop role proof_installer")


def test_an_ordinary_role_installs_and_everything_belongs_to_the_engines_owner(installer):
    assert store.install(installer)
    assert not store.install(installer)
    with psycopg.connect(installer) as conn:
        owners = conn.execute(
            "select distinct relowner::regrole::text from pg_class where relnamespace = 'raw_ops'::regnamespace"
            " union select distinct proowner::regrole::text from pg_proc where pronamespace = 'raw_ops'::regnamespace"
        ).fetchall()
        assert owners == [("onceward_owner",)]
        # Afterwards the session is who it was.
        assert conn.execute("select current_user").fetchone() == ("proof_installer",)


def test_a_second_installation_keeps_what_is_there(sql):
    batch = sql.create()
    sql.record(batch)
    sql.conn.execute("comment on schema raw_ops is 'an older one'")

    assert store.install(sql.dsn)

    assert sql.job(batch).state == "queued"
    assert sql.release(batch)["success"]
