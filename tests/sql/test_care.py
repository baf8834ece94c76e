"""Who looks after dead letters, and what they say: kept with the kind of failure, audited, and of one tenant or of all."""

from __future__ import annotations

import contextlib

import pytest

from tests.support.engine import refused


@contextlib.contextmanager
def acting(db, tenant: str, name: str = "ana"):
    """As an operator of this tenant, in this name."""
    with db.conn.transaction():
        settings = {"onceward.tenant": tenant, "onceward.actor": name, "role": "onceward_operator"}
        for setting, value in settings.items():
            db.run("select set_config(%s, %s, true)", setting, value)
        yield


def kind_of(db, job):
    (row,) = db.run("select task, fingerprint from onceward.dead_letters where id = %s", job)
    return row.task, row.fingerprint


def test_an_assignment_holds_for_the_next_job_that_fails_alike(db):
    task, mark = kind_of(db, db.dead_letter("ocr", {}, "out of paper"))

    with acting(db, "*"):
        assert db.value("select onceward.assign_dead_letters(%s, %s, 'ben')", task, mark) is True
        assert db.value("select onceward.assign_dead_letters(%s, %s, 'ben')", task, mark) is False

    again = db.dead_letter("ocr", {}, "out of paper")
    assert kind_of(db, again) == (task, mark)
    (row,) = db.run("select * from onceward.assignments")
    assert (row.task, row.fingerprint, row.assigned_to, row.assigned_by, row.tenant) == (
        task,
        mark,
        "ben",
        "ana",
        None,
    )
    assert row.assigned_at == db.now()


def test_an_assignment_goes_to_somebody_else_and_is_given_up(db):
    task, mark = kind_of(db, db.dead_letter())
    with acting(db, "*"):
        db.run("select onceward.assign_dead_letters(%s, %s, 'ben')", task, mark)
        db.run("select onceward.assign_dead_letters(%s, %s, ' cleo ')", task, mark)
        assert db.value("select assigned_to from onceward.assignments") == "cleo"
        assert db.value("select onceward.assign_dead_letters(%s, %s, null)", task, mark) is True
        assert db.run("select * from onceward.assignments") == []
        assert db.value("select onceward.assign_dead_letters(%s, %s, '')", task, mark) is False

    changes = db.run(
        "select actor, before, after from onceward.audit_log where kind = 'dead_letter.assigned' order by seq"
    )
    assert [(row.actor, row.before["assigned_to"], row.after["assigned_to"]) for row in changes] == [
        ("ana", None, "ben"), ("ana", "ben", "cleo"), ("ana", "cleo", None),
    ]  # fmt: skip


def test_comments_are_a_thread_and_audited(db):
    job = db.dead_letter()
    task, mark = kind_of(db, job)
    with acting(db, "*"):
        first = db.value(
            "select onceward.comment_dead_letters(%s, %s, ' the bank is down ', %s)", task, mark, job
        )
    with acting(db, "*", "ben"):
        db.run("select onceward.comment_dead_letters(%s, %s, 'up again')", task, mark)

    rows = db.run("select * from onceward.comments order by id")
    assert [(row.author, row.body, row.job_id) for row in rows] == [
        ("ana", "the bank is down", job), ("ben", "up again", None),
    ]  # fmt: skip
    (entry, _) = db.run("select * from onceward.audit_log where kind = 'dead_letter.commented' order by seq")
    assert (entry.actor, entry.job_id, entry.message, entry.meta) == (
        "ana", job, "the bank is down", {"comment": str(first)},
    )  # fmt: skip


def test_a_tenant_neither_sees_nor_changes_what_another_one_or_everybody_says(db):
    for tenant in ("acme", "globex"):
        task, mark = kind_of(db, db.dead_letter("ocr", {}, "no", tenant=tenant))
        with acting(db, tenant, tenant):
            db.run("select onceward.assign_dead_letters(%s, %s, %s)", task, mark, f"{tenant}'s")
            db.run("select onceward.comment_dead_letters(%s, %s, %s)", task, mark, f"said by {tenant}")
    with acting(db, "*", "us"):
        db.run("select onceward.assign_dead_letters(%s, %s, 'us')", task, mark)
        db.run("select onceward.comment_dead_letters(%s, %s, 'said by us')", task, mark)
        assert db.value("select count(*) from onceward.comments") == 3

    with acting(db, "acme"):
        assert [row.body for row in db.run("select body from onceward.comments")] == ["said by acme"]
        assert [row.assigned_to for row in db.run("select assigned_to from onceward.assignments")] == [
            "acme's"
        ]
        db.run("select onceward.assign_dead_letters(%s, %s, null)", task, mark)
    assert {row.assigned_to for row in db.run("select assigned_to from onceward.assignments")} == {
        "globex's",
        "us",
    }


@pytest.mark.parametrize(
    ("statement", "sqlstate", "message"),
    [
        (
            "select onceward.assign_dead_letters('ocr', 'none', 'ben')",
            "OW006",
            'no dead letter of task "ocr" has fingerprint "none"',
        ),
        ("select onceward.comment_dead_letters('ocr', 'none', 'hello')", "OW006", "no dead letter"),
        (
            "select onceward.comment_dead_letters('ocr', {mark}, '  ')",
            "OW008",
            "comment must be 1 to 10000 characters",
        ),
        (
            "select onceward.comment_dead_letters('ocr', {mark}, null)",
            "OW008",
            "comment must be 1 to 10000 characters",
        ),
        (
            "select onceward.comment_dead_letters('ocr', {mark}, 'x', gen_random_uuid())",
            "OW006",
            "does not exist",
        ),
        (
            "select onceward.assign_dead_letters('ocr', {mark}, e'a\\nb')",
            "OW008",
            "to must be 1 to 200 characters",
        ),
    ],
)
def test_a_slip_is_named_and_nothing_is_written(db, statement, sqlstate, message):
    _, mark = kind_of(db, db.dead_letter("ocr"))
    with refused(sqlstate, message), acting(db, "*"):
        db.run(statement.format(mark=f"'{mark}'"))
    assert (
        db.run("select 1 from onceward.comment_private union all select 1 from onceward.assignment_private")
        == []
    )


def test_who_acts_for_nobody_says_nothing(db):
    task, mark = kind_of(db, db.dead_letter())
    with refused("OW011", "belongs to another tenant"), acting(db, ""):
        db.run("select onceward.comment_dead_letters(%s, %s, 'hello')", task, mark)


def test_what_was_said_goes_after_a_year_unless_the_tenant_is_held(db):
    for tenant in ("acme", "globex"):
        task, mark = kind_of(db, db.dead_letter("ocr", {}, "no", tenant=tenant))
        with acting(db, tenant):
            db.run("select onceward.comment_dead_letters(%s, %s, 'hello')", task, mark)
            db.run("select onceward.assign_dead_letters(%s, %s, 'ben')", task, mark)
    db.call("hold_tenant", tenant="acme", reason="case 7")
    db.clock.advance("366 days")
    for kind in ("comments", "assignments"):
        db.call("retain", kind=kind)

    assert [row.tenant for row in db.run("select tenant from onceward.comments")] == ["acme"]
    assert [row.tenant for row in db.run("select tenant from onceward.assignments")] == ["acme"]
