"""The schema: applied any number of times, and every object described."""

from __future__ import annotations

import pytest

from onceward_apps.kit import schema


@pytest.fixture
def onceward_database(onceward_server):
    """Without the schema."""
    with onceward_server.cloned() as database:
        yield database.dsn


def test_installing_twice_changes_nothing(onceward_kit):
    assert schema.install(onceward_kit.dsn, "alerts", "alerts") is True
    assert schema.install(onceward_kit.dsn, "alerts", "alerts") is False
    conn = onceward_kit.connect()
    # As after an upgrade: other text in the files, the same objects.
    conn.execute("comment on schema alerts is 'older'")
    assert schema.install(onceward_kit.dsn, "alerts", "alerts") is True


def test_every_table_and_view_says_what_it_is(onceward_kit):
    schema.install(onceward_kit.dsn, "alerts", "alerts")
    silent = (
        onceward_kit.connect()
        .execute(
            "select relname from pg_class where relnamespace = 'alerts'::regnamespace and relkind in ('r', 'v')"
            "   and obj_description(oid, 'pg_class') is null"
        )
        .fetchall()
    )
    assert silent == []


def test_functions_with_the_owners_rights_look_names_up_nowhere_else(onceward_kit):
    schema.install(onceward_kit.dsn, "alerts", "alerts")
    loose = (
        onceward_kit.connect()
        .execute(
            "select p.oid::regprocedure::text from pg_proc as p where p.pronamespace = 'alerts'::regnamespace and p.prosecdef"
            "   and not coalesce(p.proconfig @> array['search_path=pg_catalog, pg_temp'], false)"
        )
        .fetchall()
    )
    assert loose == []
