from __future__ import annotations

import subprocess
import sys

import psycopg
import pytest

from onceward.testing import DatabaseServer

ABANDON = """
import os, signal, sys
from onceward.testing import DatabaseServer
server = DatabaseServer.start()
print(server.embedded.data_dir.parent, server.embedded.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_clone_is_fresh_and_gone_afterwards(onceward_server):
    with onceward_server.cloned() as database:
        with psycopg.connect(database.dsn) as connection:
            connection.execute("select onceward.enqueue('ocr')")
        with onceward_server.cloned() as other, psycopg.connect(other.dsn) as connection:
            assert connection.execute("select count(*) from onceward.jobs").fetchone() == (0,)

    with psycopg.connect(onceward_server.admin_dsn) as connection:
        names = [row[0] for row in connection.execute("select datname from pg_database")]
    assert database.name not in names


def test_a_clone_with_more_in_it_can_be_cloned(onceward_server):
    with onceward_server.cloned() as template:
        with psycopg.connect(template.dsn) as connection:
            connection.execute("create table shop (id int)")
        with onceward_server.cloned(template) as database, psycopg.connect(database.dsn) as connection:
            connection.execute("insert into shop values (1)")
            assert connection.execute("select count(*) from onceward.lanes").fetchone() == (1,)
        with onceward_server.cloned(template) as database, psycopg.connect(database.dsn) as connection:
            assert connection.execute("select count(*) from shop").fetchone() == (0,)


def test_a_clone_has_partitions_for_today_and_workers_add_none(onceward_server):
    """Days are most of the files of a database, and a clone is a copy of files."""
    with onceward_server.cloned() as database, psycopg.connect(database.dsn) as connection:
        names = [
            name
            for (name,) in connection.execute(
                "select c.relname from pg_inherits as i join pg_class as c on c.oid = i.inhrelid "
                " where i.inhparent = 'onceward.archive_private'::regclass order by 1"
            )
        ]
        assert connection.execute("select onceward.ensure_partitions()").fetchone() == (0,)
        today = connection.execute("select to_char(now() at time zone 'UTC', 'YYYYMMDD')").fetchone()
    # Yesterday, today and tomorrow, and the default one.
    assert len(names) == 4
    assert names[1] == f"archive_{today[0]}"


def test_nobody_vacuums_beside_a_test(onceward_server):
    """What autovacuum does in any database of the server is a transaction that seals wait for."""
    if onceward_server.embedded is None:
        pytest.skip("a server that was there before the tests has its own settings")
    with psycopg.connect(onceward_server.admin_dsn) as connection:
        assert connection.execute("show autovacuum_naptime").fetchone() == ("1d",)


def test_a_clock_far_beyond_the_partitions_leaves_nothing_behind(onceward_server):
    """Ids keep the machine's time; what has a time of its own goes to a default partition."""
    with onceward_server.cloned() as database, psycopg.connect(database.dsn, autocommit=True) as connection:
        database.clock.advance("40 days")
        connection.execute("select onceward.pause_lane('default', 'a test')")

        found = connection.execute(
            "select count(*), min(at) > now() + interval '39 days' from onceward.audit_log"
        )
        assert found.fetchone() == (1, True)
        assert connection.execute("select count(*) from onceward.audit_default").fetchone() == (1,)


def test_a_clone_is_dropped_although_somebody_is_still_connected(onceward_server):
    with onceward_server.cloned() as database:
        connection = psycopg.connect(database.dsn)
    with pytest.raises(psycopg.OperationalError):
        connection.execute("select 1")
    connection.close()


def test_a_running_server_can_be_used_instead(onceward_server, monkeypatch):
    monkeypatch.setenv("ONCEWARD_TEST_DSN", onceward_server.admin_dsn)
    with DatabaseServer.from_environment() as server:
        with server.cloned() as database, psycopg.connect(database.dsn) as connection:
            assert connection.execute("select count(*) from onceward.lanes").fetchone() == (1,)
        template = server.template.name

    with psycopg.connect(onceward_server.admin_dsn) as connection:
        assert connection.execute("select from pg_database where datname = %s", [template]).fetchone() is None


@pytest.mark.slow
def test_a_server_ends_with_its_session(monkeypatch):
    with DatabaseServer.start() as server:
        assert server.embedded is not None
        place = server.embedded.data_dir.parent
        assert server.embedded.pid is not None
    assert server.embedded.pid is None
    assert not place.exists()


@pytest.mark.slow
def test_the_server_of_a_killed_session_is_removed_by_the_next_one():
    killed = subprocess.run([sys.executable, "-c", ABANDON], capture_output=True, text=True, check=False)
    place = killed.stdout.split()[0]

    with DatabaseServer.start(), pytest.raises(FileNotFoundError):
        open(place).close()  # noqa: PTH123 - the path is all there is
