"""Databases of our own tests are used again: only when the next test cannot tell."""

from __future__ import annotations

import psycopg
import pytest
from psycopg import sql
from psycopg.rows import dict_row

from tests.support.reuse import MOST_USES, Reuse


@pytest.fixture
def reuse(onceward_server):
    reuse = Reuse(onceward_server)
    yield reuse
    reuse.close()


def everything(db):
    """The rows of all tables, what sequences give next, and what the server knows of the tables."""
    tables = db.run(
        "select c.oid::regclass::text as name, pg_relation_size(c.oid) as size, "
        # Of tables that have rows in the template, the server may have counted them by now.
        "       case when pg_relation_size(c.oid) = 0 then (c.relpages, c.reltuples)::text end as known, "
        "       pg_stat_get_tuples_inserted(c.oid) as written from pg_class as c "
        " where c.relkind = 'r' and c.relnamespace::regnamespace::text in ('onceward', 'onceward_testing') order by 1"
    )
    rows = {table.name: db.run(f"select t::text from {table.name} as t order by 1") for table in tables}
    return tables, rows, db.run("select sequencename, last_value from pg_sequences order by 1")


def test_the_next_test_finds_a_database_as_it_was(reuse):
    with reuse.engine() as db:
        dsn, before = db.dsn, everything(db)
        db.done()
        db.dead_letter("charge", {"card": "old"})
        db.call("add_lane", name="mail")
        db.call("pause_lane", name="default")
        db.call("set_retention", kind="audit", keep="30 days")
        db.call("seal")
        db.clock.advance("3 days")
        db.run("delete from onceward.threshold_private")
        rolled_back = db.connect(autocommit=False)
        rolled_back.execute("select onceward.enqueue('ocr')")
        rolled_back.rollback()
        assert everything(db) != before

    with reuse.engine() as db:
        assert db.dsn == dsn
        assert everything(db) == before


def test_the_next_test_finds_a_session_that_knows_nothing(reuse):
    with reuse.engine() as db:
        pid = db.value("select pg_backend_pid()")
        heard = []
        db.conn.add_notice_handler(heard.append)
        db.conn.add_notify_handler(heard.append)
        db.conn.row_factory = dict_row
        for statement in (
            "set onceward.tenant = 'acme'",
            "set enable_seqscan = off",
            "listen onceward",
            "prepare mine as select 1",
            "declare mine cursor with hold for select 1",
            "select pg_advisory_lock(1)",
            "select nextval('onceward.ready_seq')",
            "set role onceward_worker",
        ):
            db.conn.execute(statement)
        for _ in range(8):
            db.conn.execute("select 7")

    with reuse.engine() as db:
        assert db.value("select pg_backend_pid()") == pid
        assert db.value("select current_setting('onceward.tenant', true)") in {None, ""}
        assert db.value("select current_user = session_user")
        assert db.value("show enable_seqscan") == "on"
        assert (
            db.run("select * from pg_prepared_statements")
            == db.run("select * from pg_cursors where name = 'mine'")
            == []
        )
        assert db.run("select pg_listening_channels()") == []
        assert (
            db.value("select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()")
            == 0
        )
        with db.refused("55000", "currval"):
            db.run("select currval('onceward.ready_seq')")
        db.run("do $$ begin raise notice 'loud'; end $$")
        assert heard == []
        for _ in range(8):
            db.conn.execute("select 7")


@pytest.mark.parametrize(
    "statement",
    [
        "create table public.t ()",
        "create or replace function onceward.now() returns timestamptz language sql stable as 'select now()'",
        "drop function onceward.tidy(integer)",
        "analyze onceward.job_private",
        "vacuum onceward.job_private",
        "select onceward.enqueue('ocr'); analyze onceward.job_private",
        "truncate onceward.job_private",
        "create temporary table t ()",
        "select lo_create(0)",
        "comment on table onceward.job_private is 'mine'",
        "grant select on onceward.job_private to public",
        "do $$ begin execute format('alter database %I set work_mem = 1000', current_database()); end $$",
        "do $$ begin execute format('grant create on database %I to public', current_database()); end $$",
        "select pg_terminate_backend(pg_backend_pid())",
    ],
)
def test_more_than_rows_ends_a_database(reuse, statement):
    with reuse.engine() as db:
        dsn = db.dsn
        if "terminate" in statement:
            with pytest.raises(psycopg.OperationalError):
                db.run(statement)
        else:
            db.run(statement)

    with reuse.engine() as db:
        assert db.dsn != dsn
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        psycopg.connect(dsn)


def test_somebody_who_is_still_connected_ends_a_database(reuse):
    with reuse.engine() as db:
        dsn = db.dsn
        other = psycopg.connect(dsn)
    with reuse.engine() as db:
        assert db.dsn != dsn
    other.close()


def test_a_test_that_fails_ends_its_database(reuse):
    with pytest.raises(ZeroDivisionError), reuse.engine() as db:
        dsn = db.dsn
        raise ZeroDivisionError
    with reuse.engine() as db:
        assert db.dsn != dsn


def test_a_database_is_not_used_for_ever_and_none_is_left(reuse, onceward_server):
    names = set()
    for _ in range(MOST_USES + 1):
        with reuse.engine() as db:
            names.add(db.value("select current_database()"))
            db.run("update onceward_testing.clock set pinned = statement_timestamp()")
    assert len(names) == 2
    reuse.close()

    with psycopg.connect(onceward_server.admin_dsn) as connection:
        left = connection.execute(
            sql.SQL("select count(*) from pg_database where datname = any (%s)"), [list(names)]
        ).fetchone()
    assert left == (0,)
