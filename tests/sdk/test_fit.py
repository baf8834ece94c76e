"""A worker on a schema of another version says so when it starts, and works."""

from __future__ import annotations

import secrets

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from onceward import Client, install
from tests.sdk import stage
from tests.sdk.children import process

LAST = install.migrations()[-1].name
OLDER = "delete from onceward.migration_private where version = (select max(version) from onceward.migration_private)"
OTHER_CODE = "update onceward.code_private set digest = 'of another version'"
NEWER = "insert into onceward.migration_private values (9999, '9999_expand_the_future.sql')"
UPGRADE = "onceward db upgrade"


@pytest.fixture
def worker_dsn(onceward_database):
    """Of a login that has the role of a worker and no other."""
    name = f"test_{secrets.token_hex(4)}"
    with psycopg.connect(onceward_database, autocommit=True) as admin:
        admin.execute(f"create role {name} login in role onceward_worker")
        yield make_conninfo(onceward_database, user=name)
        admin.execute(f"drop role {name}")


def said_by_a_worker(dsn, onceward_database):
    """Its log until it has worked."""
    lines = []
    with Client(onceward_database, app=stage.app) as client, process(dsn) as child:
        client.enqueue(stage.fails, {"secret": "x"})
        for line in child.stderr:
            lines.append(line)
            if '"job_failed"' in line:
                return lines
    raise AssertionError("it has not worked")


@pytest.mark.parametrize(
    ("change", "event", "fragments"),
    [
        (OLDER, "schema_older", [LAST, UPGRADE]),
        (f"{OLDER}; {OTHER_CODE}", "schema_older", [LAST, UPGRADE]),
        (OTHER_CODE, "schema_code_differs", [UPGRADE]),
        (f"{NEWER}; {OTHER_CODE}", "schema_newer", ["9999_expand_the_future.sql", "Upgrade the package"]),
    ],
)
def test_a_worker_on_another_schema_warns_once_and_works(
    onceward_database, worker_dsn, change, event, fragments
):
    with psycopg.connect(onceward_database, autocommit=True) as admin:
        admin.execute(change)

    said = said_by_a_worker(worker_dsn, onceward_database)

    (line,) = [line for line in said if '"schema_' in line]
    assert f'"{event}"' in line
    assert '"warning"' in line
    for fragment in fragments:
        assert fragment in line


def test_a_worker_on_its_own_schema_says_nothing_of_it(onceward_database, worker_dsn):
    assert not any('"schema_' in line for line in said_by_a_worker(worker_dsn, onceward_database))


def test_a_worker_that_may_not_ask_for_the_version_works(onceward_database, worker_dsn):
    with psycopg.connect(onceward_database, autocommit=True) as admin:
        admin.execute("revoke select on onceward.migration_private from onceward_worker")

    assert not any('"schema_' in line for line in said_by_a_worker(worker_dsn, onceward_database))
