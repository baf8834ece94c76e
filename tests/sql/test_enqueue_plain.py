"""The short form of enqueue: the same job, or nothing at all and null."""

from __future__ import annotations

import pytest
from psycopg.types.json import Jsonb


def plain(db, task="ocr", payload=None, **options):
    return db.answer("enqueue_plain", task=task, payload=Jsonb({} if payload is None else payload), **options)


def row_of(db, job):
    """A job's row without what no two jobs share."""
    row = db.one("select * from onceward.job_private where id = %s", job)._asdict()
    return {name: value for name, value in row.items() if name not in {"id", "ready_seq", "xmin"}}


@pytest.mark.parametrize("lane", ["default", "mail"])
def test_it_writes_the_row_that_enqueue_writes(db, lane):
    db.answer("declare_lanes", names=["mail"])
    db.clock.advance("1 min")

    short = plain(db, "mail.send", {"n": 1}, lane=lane)
    # An option that is not plain and changes nothing takes the long way.
    full = db.enqueue("mail.send", {"n": 1}, lane=lane, tenant="default")

    assert row_of(db, short) == row_of(db, full)


def test_jobs_of_both_forms_are_claimed_in_the_order_in_which_they_came(db):
    jobs = [plain(db), db.enqueue(tenant="default"), plain(db), db.enqueue()]

    assert [claim.job_id for claim in db.claims(4)] == jobs


@pytest.mark.parametrize(
    ("task", "payload", "options"),
    [
        ("ocr", {}, {"lane": "nowhere"}),
        ("ocr", {}, {"lane": None}),
        ("", {}, {}),
        ("o" * 201, {}, {}),
        ("a task", {}, {}),
        (None, {}, {}),
        ("ocr", [1], {}),
        ("ocr", "text", {}),
        ("ocr", {"n": "x" * 300_000}, {}),
    ],
)
def test_what_is_wrong_writes_nothing_and_gives_null(db, task, payload, options):
    assert plain(db, task, payload, **options) is None
    assert db.value("select count(*) from onceward.job_private") == 0


def test_no_payload_is_wrong_too(db):
    assert db.value("select onceward.enqueue_plain('ocr', null)") is None


def test_a_bounded_lane_is_left_to_enqueue(db):
    db.call("set_bound", lane="default", max_depth=2)

    assert plain(db) is None
    assert db.enqueued().answer == "accepted"


def test_a_lane_with_a_full_audit_is_left_to_enqueue(db):
    db.call("audit_lane", name="default", mode="all")

    assert plain(db) is None
    assert db.enqueued().answer == "accepted"


@pytest.mark.parametrize(("tenant", "fits"), [("acme", False), ("default", False), ("", True), ("*", True)])
def test_a_session_of_a_tenant_is_left_to_enqueue(db, tenant, fits):
    other = db.on(db.connect(tenant=tenant))

    assert (plain(other) is not None) == fits


def test_a_payload_that_comes_compressed_from_a_table_is_counted_in_full(db):
    db.run("create table note (body jsonb)")
    db.run("insert into note select jsonb_build_object('text', repeat('x', 300000))")

    assert db.value("select onceward.enqueue_plain('ocr', body) from note") is None


def test_a_rollback_leaves_no_job(db):
    conn = db.connect(autocommit=False)
    plain(db.on(conn))
    conn.rollback()

    assert db.value("select count(*) from onceward.job_private") == 0
