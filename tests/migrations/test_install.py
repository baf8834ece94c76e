from __future__ import annotations

import psycopg
import pytest

from onceward import install
from onceward.errors import NotInstalled, OncewardError
from onceward.install import Script, require_current, status, upgrade

CODE = "functions, views and grants"


def names(dsn):
    with psycopg.connect(dsn) as connection:
        return status(connection)


def test_an_empty_database_gets_everything(cluster):
    dsn = cluster.database()
    assert names(dsn).installed is False

    done = upgrade(dsn)

    assert done == [*(script.name for script in install.migrations()), CODE]
    assert names(dsn).current
    assert cluster.ask("select job_id is not null from onceward.enqueue('ocr')", dsn)


def test_installing_again_changes_nothing(cluster):
    dsn = cluster.database()
    upgrade(dsn)
    # Every row of the catalogue tells which transaction wrote it.
    fingerprint = "select md5(string_agg(xmin::text || proname, ',' order by oid)) from pg_proc where pronamespace = 'onceward'::regnamespace"
    before = cluster.ask(fingerprint, dsn)

    assert upgrade(dsn) == []
    assert cluster.ask(fingerprint, dsn) == before


def test_an_upgrade_keeps_jobs_and_what_was_configured(cluster):
    dsn = cluster.database()
    upgrade(dsn)
    cluster.ask("select onceward.add_lane('mail', p_max_payload_bytes => 5000)", dsn)
    cluster.ask("select onceward.enqueue('ocr', '{\"n\": 1}', p_lane => 'mail')", dsn)
    cluster.ask("update onceward.code_private set digest = 'of an older version'", dsn)

    assert upgrade(dsn) == [CODE]
    assert cluster.ask("select payload -> 'n' from onceward.jobs where lane = 'mail'", dsn) == 1
    assert cluster.ask("select max_payload_bytes from onceward.lanes where name = 'mail'", dsn) == 5000


def test_an_upgrade_mends_functions_and_grants_that_were_changed_by_hand(cluster):
    dsn = cluster.database()
    upgrade(dsn)
    cluster.ask(
        "create or replace function onceward.caller() returns name language sql as 'select null::name'", dsn
    )
    cluster.ask("grant all on onceward.job_private to onceward_producer", dsn)
    cluster.ask("grant execute on function onceward.admit to public", dsn)
    cluster.ask("alter table onceward.job_private disable row level security", dsn)
    cluster.ask("update onceward.code_private set digest = 'of an older version'", dsn)

    upgrade(dsn)

    assert cluster.ask("select onceward.caller()", dsn) == "postgres"
    assert not cluster.ask(
        "select has_table_privilege('onceward_producer', 'onceward.job_private', 'update')", dsn
    )
    assert not cluster.ask(
        "select has_function_privilege('onceward_auditor', 'onceward.admit(jsonb)', 'execute')", dsn
    )
    assert cluster.ask(
        "select relrowsecurity from pg_class where oid = 'onceward.job_private'::regclass", dsn
    )


def test_a_database_of_a_newer_version_is_refused_and_left_alone(cluster):
    dsn = cluster.database()
    upgrade(dsn)
    cluster.ask("insert into onceward.migration_private values (9999, '9999_expand_the_future.sql')", dsn)
    cluster.ask("update onceward.code_private set digest = 'of a newer version'", dsn)

    with pytest.raises(OncewardError) as refused:
        upgrade(dsn)

    assert "newer" in refused.value.message
    assert "9999_expand_the_future.sql" in (refused.value.detail or "")
    assert names(dsn).newer == ("9999_expand_the_future.sql",)
    assert cluster.ask("select digest from onceward.code_private", dsn) == "of a newer version"


@pytest.mark.parametrize("first", [True, False], ids=["first installation", "upgrade"])
def test_a_migration_that_fails_leaves_nothing_behind_and_is_named(cluster, monkeypatch, first):
    dsn = cluster.database()
    if not first:
        upgrade(dsn)
    before = names(dsn)
    scripts = [
        *install.migrations(),
        Script("0998_expand_fine.sql", "create table onceward.fine ();"),
        Script("0999_expand_bad.sql", "select 1 / 0;"),
    ]
    monkeypatch.setattr(install, "migrations", lambda: scripts)

    with pytest.raises(OncewardError, match=r"0999_expand_bad\.sql.*division by zero"):
        upgrade(dsn)

    monkeypatch.undo()
    assert names(dsn) == before
    assert cluster.ask("select to_regclass('onceward.fine')", dsn) is None
    upgrade(dsn)
    assert names(dsn).current


def test_migrations_are_applied_in_order_and_once(cluster, monkeypatch):
    dsn = cluster.database()
    upgrade(dsn)
    later = [
        Script(
            "0998_expand_a.sql",
            "create table onceward.made_private (n int); insert into onceward.made_private values (1);",
        ),
        Script("0999_expand_b.sql", "insert into onceward.made_private values (2);"),
    ]
    scripts = [*install.migrations(), *later]
    monkeypatch.setattr(install, "migrations", lambda: scripts)

    assert names(dsn).pending == ("0998_expand_a.sql", "0999_expand_b.sql")
    assert upgrade(dsn) == ["0998_expand_a.sql", "0999_expand_b.sql", CODE]
    assert upgrade(dsn) == []
    assert cluster.ask("select array_agg(n) from onceward.made_private", dsn) == [1, 2]
    # A new table is closed like the others.
    assert cluster.ask(
        "select relforcerowsecurity from pg_class where oid = 'onceward.made_private'::regclass", dsn
    )


def test_a_program_tells_when_the_schema_is_missing_or_older_than_itself(cluster, monkeypatch):
    dsn = cluster.database()
    with psycopg.connect(dsn) as connection, pytest.raises(NotInstalled, match="onceward db init"):
        require_current(connection)
    upgrade(dsn)
    with psycopg.connect(dsn) as connection:
        require_current(connection)

    scripts = [*install.migrations(), Script("0999_expand_more.sql", "")]
    monkeypatch.setattr(install, "migrations", lambda: scripts)
    with psycopg.connect(dsn) as connection, pytest.raises(NotInstalled, match=r"0999_expand_more\.sql"):
        require_current(connection)


def test_versions_of_migrations_rise_without_gaps_and_say_what_they_do():
    scripts = install.migrations()

    assert [script.version for script in scripts] == list(range(1, len(scripts) + 1))
    for script in scripts:
        assert script.name.split("_")[1] in {"expand", "contract"}
        assert script.text.startswith("--")
        assert "Locks:" in script.text
