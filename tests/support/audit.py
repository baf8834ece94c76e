"""The audit log in tests: filling it, verifying it with the package, and breaking it as only a superuser can."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import psycopg

from onceward.audit import Verification, verify
from onceward.calls import Call
from tests.support.engine import Engine


def runner(conn: psycopg.Connection[Any]):
    """Runs calls on one connection, in whatever transaction it is."""

    def run(call: Call[Any]) -> Any:
        with conn.cursor(row_factory=psycopg.rows.tuple_row) as cursor:
            cursor.execute("select set_config('onceward.tenant', '*', false)")
            return call.parse(cursor.execute(call.sql, call.params).fetchall())

    return run


def verified(db: Engine, **options: Any) -> Verification:
    return verify(runner(db.conn), **options)


def kinds(db: Engine, *, after: int = 0) -> list[str]:
    return [
        row.kind for row in db.run("select kind from onceward.audit_log where seq > %s order by seq", after)
    ]


def written(db: Engine, act: Callable[[], object]) -> list[str]:
    """The kinds of the entries that an act has written."""
    before = last_seq(db)
    act()
    return kinds(db, after=before)


def last_seq(db: Engine) -> int:
    return db.value("select coalesce(max(seq), 0) from onceward.audit_log")


def entry(db: Engine) -> Any:
    """The newest one."""
    return db.one("select * from onceward.audit_log order by seq desc limit 1")


def fill(db: Engine, count: int, *, tenant: str = "acme") -> None:
    db.run(
        "select onceward.record_event('note', 'number ' || n, 'thing', n::text, null, jsonb_build_object('n', n), "
        "p_tenant => %s) from generate_series(1, %s) as n",
        tenant, count,
    )  # fmt: skip


def seal(db: Engine, **options: Any) -> Any:
    (row,) = db.call("seal", **options)
    return row


@contextlib.contextmanager
def tampering(db: Engine) -> Iterator[Engine]:
    """As a superuser who switches triggers off; everything is undone at the end."""
    with db.conn.transaction(force_rollback=True):
        db.run("set local session_replication_role = replica")
        yield db
