"""Rubbish into every function that anybody may call: it works, or is refused with one of our errors.

Nothing of PostgreSQL's own (a violated constraint, a number out of range, a cast inside a function) comes out.
"""

from __future__ import annotations

import random

import psycopg
import pytest

from onceward.errors import BY_SQLSTATE

AN_ID = "01900000-0000-7000-8000-000000000000"
RUBBISH = {
    "text": [None, "", "x", "a\nb", "é☃", "x" * 5000, "*", "default", AN_ID, "-1"],
    "uuid": [None, AN_ID, "00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"],
    "jsonb": [None, "null", "1", '"x"', "[]", "[1]", "{}", '{"a": 1}', "[{}]", '[{"name": 1}]', "[null]",
              '{"waits": "x"}', '{"default": {"0": "x"}}'],
    "integer": [None, 0, -1, 1, 2**31 - 1, -(2**31)],
    "bigint": [None, 0, -1, 1, 2**63 - 1, -(2**63)],
    "boolean": [None, True, False],
    "interval": [None, "0", "-1 day", "1 second", "100000 years"],
    "timestamp with time zone": [None, "infinity", "-infinity", "2026-11-16", "294276-01-01", "4713-01-01 BC"],
    "date": [None, "infinity", "-infinity", "2026-11-16"],
    "bytea": [None, b"", b"x" * 32],
}  # fmt: skip
CALLS_OF_EACH = 30
pytestmark = pytest.mark.slow


def some(dice: random.Random, kind: str):
    values = RUBBISH.get(kind.removesuffix("[]"), [None])
    if kind.endswith("[]"):
        return dice.choice(
            [None, [], [None], [dice.choice(values)], [dice.choice(values), dice.choice(values)]]
        )
    return dice.choice(values)


@pytest.fixture
def sensible(db):
    """A job that runs, and arguments that fit it: rubbish gets further in good company."""
    job = db.enqueue("charge", {"order": 1})
    claimed = db.claim()
    return {
        "p_worker_id": db.worker(),
        "p_job_id": job,
        "p_epoch": claimed.epoch,
        "p_lane": "default",
        "p_task": "charge",
    }


def callable_functions(db):
    return db.run(
        "select p.proname, p.pronargs - p.pronargdefaults as needed, p.proargnames[:p.pronargs] as names, "
        "       p.proargtypes::oid[]::regtype[]::text[] as kinds "
        "  from pg_proc as p "
        " where p.pronamespace = 'onceward'::regnamespace and p.prokind = 'f' "
        "   and exists (select from aclexplode(p.proacl) as a where a.grantee::regrole::text ~ '_(producer|worker|operator|auditor)$') "
        " order by p.proname"
    )


def test_no_function_lets_an_error_of_its_inside_out(db, sensible):
    dice = random.Random("rubbish")
    conn = db.connect(tenant="*")
    functions = callable_functions(db)
    leaks = {}
    for function in functions:
        for _ in range(CALLS_OF_EACH):
            parameters = list(zip(function.names or [], function.kinds, strict=True))
            used = [p for i, p in enumerate(parameters) if i < function.needed or dice.random() < 0.35]
            spoilt = dice.choice(used) if used else None
            values = [
                sensible[name]
                if name in sensible and (name, kind) != spoilt and dice.random() < 0.7
                else some(dice, kind)
                for name, kind in used
            ]
            arguments = ", ".join(f"{name} => %s::{kind}" for name, kind in used)
            try:
                with conn.transaction(force_rollback=True):
                    conn.execute(f"select * from onceward.{function.proname}({arguments})", values)
            except psycopg.Error as error:
                if error.sqlstate not in BY_SQLSTATE:
                    leaks.setdefault(
                        (function.proname, str(error).splitlines()[0]), dict(zip(used, values, strict=True))
                    )

    assert len(functions) > 100
    assert leaks == {}


def test_a_job_that_lies_before_or_after_all_time_is_looked_for(db):
    job = db.enqueue("charge")

    found = db.run("select id from onceward.find_jobs(p_since => '-infinity', p_until => 'infinity')")
    none = db.run("select id from onceward.find_jobs(p_since => '294276-01-01')")

    assert [row.id for row in found] == [job]
    assert none == []
