"""The whole installation as one script, for those who install with another tool."""

from __future__ import annotations

import subprocess

import psycopg
import pytest
from psycopg.rows import dict_row

from onceward.install import install_sql, upgrade
from tools.snapshot import describe


def described(dsn):
    with psycopg.connect(dsn, row_factory=dict_row) as connection:
        # Bodies too: the description leaves them out.
        bodies = connection.execute(
            "select string_agg(proname || md5(prosrc || coalesce(pg_get_function_sqlbody(oid), '')), ',' order by proname) as all from pg_proc "
            " where pronamespace = 'onceward'::regnamespace"
        ).fetchone()
        comments = connection.execute(
            "select array_agg(d.description order by d.description) as all from pg_description as d "
            " where d.objoid in (select oid from pg_proc where pronamespace = 'onceward'::regnamespace "
            "                     union all select oid from pg_class where relnamespace = 'onceward'::regnamespace)"
        ).fetchone()
        ledger = connection.execute(
            "select array_agg(name) as all, (select digest from onceward.code_private) from onceward.migration_private"
        ).fetchone()
        return describe(connection), bodies, comments, ledger


@pytest.mark.parametrize("tool", ["psql", "psycopg"])
def test_the_script_installs_the_same_as_the_command(cluster, tool):
    by_command, by_script = cluster.database(), cluster.database()
    upgrade(by_command)

    if tool == "psql":
        command = [
            cluster.psql(),
            "--no-psqlrc",
            "--quiet",
            "--set",
            "ON_ERROR_STOP=1",
            "--dbname",
            by_script,
        ]
        subprocess.run(command, input=install_sql(), text=True, check=True, capture_output=True)
    else:
        cluster.ask(install_sql(), by_script)

    assert described(by_script) == described(by_command)
    assert upgrade(by_script) == []


def test_the_script_can_be_run_by_an_owner_of_the_database_who_may_create_roles(cluster):
    dsn = cluster.database(cluster.role("creator", "createrole"))

    cluster.ask(install_sql(), dsn)

    assert upgrade(dsn) == []
    assert cluster.ask("select created from onceward.enqueue('ocr')", dsn)


def test_a_script_that_is_run_where_it_was_run_before_changes_nothing(cluster):
    dsn = cluster.database()
    cluster.ask(install_sql(), dsn)
    before = described(dsn)

    with pytest.raises(psycopg.Error):
        cluster.ask(install_sql(), dsn)

    assert described(dsn) == before


def test_the_script_leaves_the_session_as_it_was(cluster):
    with psycopg.connect(cluster.database(), autocommit=True) as connection:
        connection.execute(install_sql())

        assert connection.execute(
            "select current_user::text, current_setting('check_function_bodies')"
        ).fetchone() == ("postgres", "on")
