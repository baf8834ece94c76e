"""A whole lane in one line; and that explaining reads no more than it needs."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.support.engine import refused


@pytest.fixture
def staffed(db):
    """A worker of the default lane that knows the tasks of these tests."""
    db.worker("a", tasks=["ocr", "child"], concurrency=1)
    return db


def lane(db, name: str = "default"):
    (row,) = db.call("explain_lane", lane=name)
    return row


def test_an_idle_lane_and_when_its_next_job_is_due(staffed):
    assert (lane(staffed).reason, lane(staffed).sentence) == ("idle", "Nothing is ready.")
    at = staffed.now() + timedelta(hours=5)
    staffed.enqueue(run_at=at)

    row = lane(staffed)

    assert (row.reason, row.until) == ("idle", at)
    assert "the next job is due at" in row.sentence


def test_a_paused_lane_in_one_line(staffed):
    staffed.enqueue()
    staffed.call("pause_lane", name="default", reason="deploy")

    row = lane(staffed)

    assert row.reason == "lane_paused"
    assert "by postgres: deploy; 1 job is ready" in row.sentence


def test_a_lane_without_workers_in_one_line(db):
    assert lane(db).sentence == "No live worker serves it; nothing is ready."
    assert lane(db).reason == "no_worker"


def test_a_lane_whose_jobs_nobody_knows(staffed):
    staffed.enqueue("sing")

    row = lane(staffed)

    assert row.reason == "no_worker_for_task"
    assert row.sentence.startswith('No live worker of the lane knows task "sing"; 1 job is ready')


def test_a_busy_lane_and_one_that_keeps_up(staffed):
    claim = staffed.running()
    assert lane(staffed).reason == "working"
    staffed.enqueue_many("ocr", [{}] * 2)
    staffed.enqueue("sing")

    row = lane(staffed)

    assert row.reason == "busy"
    assert row.sentence.startswith("3 jobs are ready, the oldest due at")
    assert "runs 1 of 1 at once, mostly 1 ocr." in row.sentence
    assert row.sentence.endswith("1 job is of tasks that no worker of the lane knows: sing.")
    staffed.complete(claim)
    assert lane(staffed).reason == "working"


def test_a_full_lane_in_one_line(staffed):
    staffed.call("add_lane", name="default", max_running=2)
    staffed.enqueue_many("ocr", [{}] * 5)
    staffed.claims(10)

    row = lane(staffed)

    assert row.reason == "lane_full"
    assert row.sentence.startswith("Full: 2 of at most 2 run; 3 jobs are ready")
    assert row.detail["max_running"] == 2
    staffed.call("add_lane", name="default", max_running=1)
    assert lane(staffed).sentence.startswith("Full: 2 of at most 1 run")


def test_all_lanes_come_in_order(staffed):
    staffed.call("add_lane", name="mail")

    assert [row.lane for row in staffed.call("explain_lane")] == ["default", "mail"]


def test_a_lane_that_does_not_exist(staffed):
    with refused("OW002", 'lane "nope" does not exist'):
        lane(staffed, "nope")


def test_a_lane_shows_the_jobs_of_the_own_tenant(staffed):
    staffed.enqueue_many("ocr", [{}] * 3, tenant="acme")
    staffed.enqueue("private_task_of_acme", tenant="acme")
    staffed.enqueue(tenant="globex")

    (row,) = staffed.on(staffed.connect(role="onceward_producer", tenant="globex")).call(
        "explain_lane", lane="default"
    )

    assert row.detail["ready"] == 1
    assert "acme" not in str(row)
    (row,) = staffed.on(staffed.connect(role="onceward_operator", tenant="*")).call(
        "explain_lane", lane="default"
    )
    assert row.detail["ready"] == 5


# ------------------------------------------------------------ bounded


@pytest.mark.parametrize(
    ("a", "b", "distance"),
    [
        ("", "", 0),
        ("abc", "", 3),
        ("", "abc", 3),
        ("kitten", "sitting", 3),
        ("flaw", "lawn", 2),
        ("ü", "u", 1),
    ],
)
def test_edit_distance(db, a, b, distance):
    assert db.answer("edit_distance", a=a, b=b) == distance


def test_the_place_in_a_long_lane_is_read_from_the_index(db):
    """Also with the statistics of an empty table."""
    db.run("alter table onceward.job_private set (autovacuum_enabled = off)")
    db.worker("a", tasks=["ocr"])
    first = db.enqueue()
    db.run(
        "select count(*) from onceward.enqueue_many('ocr', array(select '{}'::jsonb from generate_series(1, 20000)))"
    )
    db.run("select pg_stat_force_next_flush()")
    before = db.one(
        "select seq_tup_read, idx_tup_fetch from pg_stat_all_tables where relname = 'job_private'"
    )

    assert db.call("explain", job_id=first)[0].detail["ahead"] == 0

    db.run("select pg_stat_force_next_flush()")
    after = db.one("select seq_tup_read, idx_tup_fetch from pg_stat_all_tables where relname = 'job_private'")
    assert after.seq_tup_read == before.seq_tup_read
    assert after.idx_tup_fetch - before.idx_tup_fetch < 100
