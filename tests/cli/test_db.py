"""Installing and checking the schema from the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from onceward import install


@pytest.fixture
def empty(onceward_server):
    database = onceward_server.create("cli_empty")
    yield database
    onceward_server.drop(database)


@pytest.fixture
def installed(empty, cli_alone):
    """A database as a user has it, without the testing kit."""
    cli_alone.ok("db", "init", dsn=empty.dsn)
    cli_alone.dsn = empty.dsn
    return empty


def statuses(answer) -> dict[str, str]:
    return {finding["name"]: finding["status"] for finding in answer.json}


def test_init_installs_and_a_second_time_does_nothing(cli_alone, empty):
    before = cli_alone.ok("db", "status", "--json", dsn=empty.dsn).json
    first = cli_alone.ok("db", "init", dsn=empty.dsn)
    second = cli_alone.ok("db", "upgrade", dsn=empty.dsn)
    after = cli_alone.ok("db", "status", "--json", dsn=empty.dsn).json

    assert (before["installed"], before["current"], before["applied"]) == (False, False, [])
    assert before["pending"]
    assert "applied 0001_" in first.err
    assert "schema onceward is current" in second.err
    assert (after["installed"], after["current"], after["pending"]) == (True, True, [])
    assert first.out == second.out == ""


def test_status_says_what_to_do(cli_alone, empty):
    assert '"onceward db init"' in cli_alone.ok("db", "status", dsn=empty.dsn).err
    cli_alone.ok("db", "init", dsn=empty.dsn)
    with psycopg.connect(empty.dsn) as connection:
        connection.execute("update onceward.code_private set digest = 'another'")

    assert '"onceward db upgrade"' in cli_alone.ok("db", "status", dsn=empty.dsn).err
    assert "applied functions, views and grants" in cli_alone.ok("db", "upgrade", dsn=empty.dsn).err


def test_the_printed_sql_installs_everything(cli_alone, empty):
    script = cli_alone.ok("db", "sql").out
    with psycopg.connect(empty.dsn, autocommit=True) as connection:
        connection.execute(script)

    assert cli_alone.ok("db", "status", "--json", dsn=empty.dsn).json["current"] is True
    assert cli_alone.ok("db", "check", dsn=empty.dsn)


def test_the_statement_for_an_administrator_is_one_and_names_role_and_database(cli_alone, empty):
    named = cli_alone.ok("db", "sql", "--roles", "--installer", "joe's", "--database", "shop")
    connected = cli_alone.ok("db", "sql", "--roles", dsn=empty.dsn)

    assert named.out == install.roles_statement("joe's", "shop") + "\n"
    assert "'joe''s'" in named.out
    assert f"'{empty.name}'" in connected.out


def test_check_passes_after_an_installation(cli_alone, installed):
    answer = cli_alone.ok("db", "check", "--json")

    assert set(statuses(answer).values()) == {"ok"}
    assert set(statuses(answer)) == {
        "schema version", "schema code", "roles exist", "ownership", "row-level security", "PUBLIC", "grants",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("damage", "finding", "words"),
    [
        ("update onceward.code_private set digest = 'x'", "schema code", "onceward db upgrade"),
        ("delete from onceward.migration_private", "schema version", "onceward db upgrade"),
        ("insert into onceward.migration_private values (9999, '9999_expand_future.sql')", "schema version", "Upgrade the package"),
        ("alter table onceward.job_private no force row level security", "row-level security", "job_private"),
        ("alter table onceward.archive_default disable row level security", "row-level security", "archive_default"),
        ("alter view onceward.jobs reset (security_invoker)", "row-level security", "jobs"),
        ("grant select on onceward.jobs to public", "PUBLIC", "select on table jobs to PUBLIC"),
        ("grant execute on function onceward.enqueue to public", "PUBLIC", "execute on function enqueue to PUBLIC"),
        ("grant usage on schema onceward to public", "PUBLIC", "usage on schema onceward to PUBLIC"),
        ("create function onceward.extra() returns int language sql as 'select 1'", "PUBLIC", "execute on function extra"),
        ("revoke execute on function onceward.claim from onceward_worker", "grants", "missing: execute on function claim"),
        ("grant delete on onceward.job_private to onceward_producer", "grants", "too many: delete on table job_private"),
        ("alter function onceward.claim owner to current_user", "ownership", "claim"),
        ("alter function onceward.claim reset search_path", "ownership", "search_path not pinned: claim"),
    ],
)  # fmt: skip
def test_check_finds_what_does_not_fit(cli_alone, installed, damage, finding, words):
    with psycopg.connect(installed.dsn, autocommit=True) as connection:
        connection.execute(damage)

    answer = cli_alone("db", "check", "--json")
    table = cli_alone("db", "check")

    assert answer.status == table.status == 1
    assert statuses(answer)[finding] == "fail"
    assert words in " ".join(table.out.split())


def test_check_of_an_empty_database_fails_with_the_way_out(cli_alone, empty):
    answer = cli_alone("db", "check", dsn=empty.dsn)

    assert answer.status == 1
    assert '"onceward db init"' in answer.out


def test_a_role_that_may_not_create_roles_is_told_the_one_statement(cli_alone, onceward_server, db, login):
    # The roles exist on the test server, but this role is not a member of their owner.
    error = cli_alone.refused(1, "db", "init", dsn=login())

    assert "may not create the roles of Onceward" in error
    assert "do $$" in error


def test_the_dsn_is_printed_without_its_password(cli_alone):
    given = "postgresql://ada:sesame@db.example.com:5433/shop?sslmode=require"

    assert cli_alone.ok("db", "dsn", dsn=given).out == given.replace("sesame", "***") + "\n"
    assert cli_alone.ok("db", "dsn", "--show-password", dsn=given).out == given + "\n"


def test_the_dsn_of_libpqs_variables_is_printed_in_full(cli_alone, monkeypatch):
    monkeypatch.setenv("PGHOST", "db.example.com")
    monkeypatch.setenv("PGDATABASE", "shop")
    monkeypatch.setenv("PGPASSWORD", "sesame")

    assert cli_alone.ok("db", "dsn").out == "host=db.example.com dbname=shop password=***\n"
    shown = cli_alone.ok("db", "dsn", "--show-password").out.strip()
    assert conninfo_to_dict(shown) == {"host": "db.example.com", "dbname": "shop", "password": "sesame"}


def test_the_embedded_server_is_stopped_and_started_again(tmp_path):
    env = {**os.environ, "ONCEWARD_HOME": str(tmp_path)}
    for name in ("ONCEWARD_DSN", "PGHOST", "PGHOSTADDR", "PGSERVICE", "PGDATABASE"):
        env.pop(name, None)

    def run(*arguments):
        done = subprocess.run(
            [sys.executable, "-m", "onceward.cli", *arguments],
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done

    assert "no embedded PostgreSQL runs" in run("db", "stop").stderr
    run("db", "init")
    assert "stopped the embedded PostgreSQL" in run("db", "stop").stderr
    assert json.loads(run("db", "status", "--json").stdout)["current"] is True
    run("db", "stop")
    # Printed by the command that starts it again.
    with psycopg.connect(run("db", "dsn").stdout.strip()) as connection:
        assert connection.info.dbname == "onceward"
    run("db", "stop")


@pytest.mark.parametrize("home", ["/proc/onceward", "file"])
def test_a_home_that_cannot_be_written_is_named_with_the_way_out(cli_alone, monkeypatch, tmp_path, home):
    (tmp_path / "file").touch()
    monkeypatch.setenv("ONCEWARD_HOME", str(tmp_path / home))

    error = cli_alone.refused(1, "db", "init")

    assert f'could not use "{tmp_path / home / "pg"}" for the embedded PostgreSQL' in error
    assert "Set ONCEWARD_HOME to a directory that you may write to" in error
