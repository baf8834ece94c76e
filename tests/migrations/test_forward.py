"""Migrations only go forward: one that is out is never edited, and a database of any earlier version comes along."""

from __future__ import annotations

import hashlib
from pathlib import Path

import psycopg
import pytest

from onceward import install

# The beginning of each digest.  To change a table, write the next migration; then add its line here.
OUT = {
    "0001_expand_engine.sql": "b9c8ab03e1c46854",
    "0002_expand_steps.sql": "499f1c5b53153caf",
    "0003_expand_deliveries.sql": "1be9942d0a1d167b",
    "0004_expand_schedules.sql": "fb094646f7b0c04a",
    "0005_expand_run_keys.sql": "f51cd3006754acb3",
    "0006_expand_limits.sql": "683f5a1aca04fbdf",
    "0007_expand_audit.sql": "fbdf8f39dc5c2deb",
    "0008_expand_monitors.sql": "8086046d5dee3c44",
    "0009_expand_web.sql": "c8ef1fca52e1ff95",
    "0010_expand_care.sql": "4e7807ec20e0a6ca",
    "0011_expand_lane_cap.sql": "a7ef7f6142c5125e",
    "0012_expand_key_indexes.sql": "be81cf1c68473558",
    "0013_expand_claimed.sql": "05a8ca84f6d8e0eb",
    "0014_expand_live_keys.sql": "8fe3f05889f9e731",
}


# What the installer itself calls.
LEAST = "create function onceward.ensure_partitions(integer default 14) returns integer language sql as 'select 0'"


def test_a_migration_that_is_out_is_not_edited():
    found = {
        script.name: hashlib.sha256(script.text.encode()).hexdigest()[:16] for script in install.migrations()
    }
    assert found == OUT


@pytest.fixture
def first_version(cluster, monkeypatch):
    """A database with the first migration and next to no functions."""
    dsn = cluster.database()
    everything = install.migrations()
    with monkeypatch.context() as then:
        then.setattr(install, "migrations", lambda: everything[:1])
        then.setattr(install, "code", lambda: [install.Script("least.sql", LEAST)])
        install.upgrade(dsn)
    return dsn


def test_a_job_that_waited_for_its_key_is_looked_at_after_the_upgrade(first_version):
    with psycopg.connect(first_version, autocommit=True) as conn:
        conn.execute(
            "insert into onceward.job_private (id, tenant, lane, task, state, priority, max_attempts, created_at, run_at, payload,"
            " concurrency_key, concurrency_limit, admit_pending)"
            " select gen_random_uuid(), 'default', 'default', 't', 'blocked', 0, 8, now(), now(), '{}', k, 1, p"
            " from (values ('new', true), ('new', true), ('seen', null)) as v (k, p)"
        )
        install.upgrade(first_version)

        asked = conn.execute("select tenant, concurrency_key from onceward.admission_private").fetchall()
        assert asked == [("default", "new")]
        assert conn.execute("select promoted from onceward.promote()").fetchone() == (1,)


def test_an_upgrade_gets_past_the_functions_of_the_version_before(cluster, monkeypatch):
    dsn = cluster.database()
    everything = install.migrations()
    before = Path(__file__).with_name("functions_0005.sql").read_text()
    with monkeypatch.context() as then:
        then.setattr(install, "migrations", lambda: everything[:5])
        then.setattr(install, "code", lambda: [install.Script("before.sql", before)])
        install.upgrade(dsn)

    install.upgrade(dsn)

    with psycopg.connect(dsn) as conn:
        assert conn.execute("select created from onceward.enqueue('t')").fetchone() == (True,)
