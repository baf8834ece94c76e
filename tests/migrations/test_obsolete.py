"""Functions of an earlier version do not stay behind."""

from __future__ import annotations

import psycopg

from onceward import install


def test_a_function_that_this_version_does_not_have_is_dropped(onceward_database):
    with psycopg.connect(onceward_database, autocommit=True) as conn:
        conn.execute(
            "create function onceward.snooze(p_job_id uuid, p_epoch bigint, p_delay interval) returns int language sql as 'select 1'"
        )
        conn.execute("alter function onceward.snooze(uuid, bigint, interval) owner to onceward_owner")
        conn.execute("update onceward.code_private set digest = 'older'")
    install.upgrade(onceward_database)
    with psycopg.connect(onceward_database) as conn:
        assert conn.execute("select count(*) from pg_proc where proname = 'snooze'").fetchone() == (1,)
