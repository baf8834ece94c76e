from __future__ import annotations

import psycopg
import pytest


def test_a_worker_gets_jobs_of_the_lanes_it_asks_for_only(db):
    db.answer("add_lane", name="mail")
    mail = db.enqueue(lane="mail")
    db.enqueue(lane="default")

    (claim,) = db.claims(10, lanes=["mail"])

    assert (claim.job_id, claim.lane) == (mail, "mail")


def test_lanes_are_emptied_in_the_order_given(db):
    db.answer("declare_lanes", names=["a", "b"])
    in_b = db.enqueue(lane="b", priority=100)
    in_a = db.enqueue(lane="a")

    assert [claim.job_id for claim in db.claims(2, lanes=["a", "b"])] == [in_a, in_b]


def test_a_lane_named_twice_gives_each_job_once(db):
    jobs = {db.enqueue() for _ in range(3)}

    claims = db.claims(10, lanes=["default", "default"])

    assert {claim.job_id for claim in claims} == jobs
    assert len(claims) == 3


@pytest.mark.parametrize("name", [".", "..", "...", "a b", "", "x" * 101])
def test_a_lane_that_no_address_could_name_is_refused(db, name):
    with db.refused("OW008", "lane"):
        db.call("add_lane", name=name)


def test_adding_a_lane_again_changes_nothing_unless_it_names_caps(db):
    assert db.answer("add_lane", name="mail") is True
    assert db.answer("add_lane", name="mail") is False
    assert db.answer("add_lane", name="mail", max_result_bytes=2048) is True

    lane = db.one("select * from onceward.lanes where name = 'mail'")
    assert (lane.max_payload_bytes, lane.max_result_bytes) == (262144, 2048)


def test_lanes_declared_by_an_application_are_created_once(db):
    assert db.answer("declare_lanes", names=["default", "mail", "ocr"]) == 2
    assert db.answer("declare_lanes", names=["default", "mail", "ocr"]) == 0
    assert db.answer("declare_lanes", names=[]) == 0


def test_within_a_transaction_what_it_declared_before_counts_until_it_is_rolled_back(db):
    declare = "select onceward.declare_lanes(array['mail'])"
    with psycopg.connect(db.dsn) as conn:
        assert conn.execute(declare).fetchone() == (1,)
        assert conn.execute(declare).fetchone() == (1,)
        conn.rollback()
        with conn.transaction(force_rollback=True):
            assert conn.execute(declare).fetchone() == (1,)
        assert conn.execute(declare).fetchone() == (1,)
        conn.commit()
        assert conn.execute(declare).fetchone() == (0,)


def test_nothing_is_claimed_from_a_paused_lane(db):
    job = db.enqueue()

    assert db.answer("pause_lane", name="default", reason="printer on fire") is True
    assert db.claims(10) == []
    assert db.exchange(lanes=["default"], max=10) == []
    assert db.answer("resume_lane", name="default") is True
    assert db.claim().job_id == job


def test_pausing_says_who_and_why_and_keeps_the_first_reason(db):
    db.answer("pause_lane", name="default", reason="printer on fire")
    assert db.answer("pause_lane", name="default", reason="something else") is False

    lane = db.one("select * from onceward.lanes where name = 'default'")
    assert (lane.paused, lane.pause_reason, lane.paused_at) == (True, "printer on fire", db.now())
    assert lane.paused_by == db.value("select session_user")

    db.answer("resume_lane", name="default")
    assert db.answer("resume_lane", name="default") is False
    lane = db.one("select * from onceward.lanes where name = 'default'")
    assert (lane.paused, lane.paused_by, lane.pause_reason) == (False, None, None)


def test_running_jobs_of_a_paused_lane_go_on(db):
    claim = db.running()

    db.answer("pause_lane", name="default")

    db.complete(claim)
    assert db.state(claim.job_id) == "done"


def test_jobs_may_be_enqueued_into_a_paused_lane(db):
    db.answer("pause_lane", name="default")

    assert db.state(db.enqueue()) == "ready"


def test_a_lane_counts_its_jobs_by_state(db):
    db.done()
    db.dead_letter()
    db.running()
    first = db.enqueue()
    db.clock.advance("1 min")
    db.enqueue()
    db.enqueue(concurrency_key="k")
    db.run("select onceward.enqueue('ocr', p_run_at => onceward.now() + '1 h')")

    lane = db.one("select * from onceward.lanes where name = 'default'")
    counts = (lane.ready, lane.running, lane.scheduled, lane.blocked, lane.dead_letter)
    assert counts == (2, 1, 1, 1, 1)
    assert lane.oldest_ready_at == db.job(first).created_at


def test_an_empty_lane_counts_zero(db):
    db.answer("add_lane", name="mail")

    lane = db.one("select * from onceward.lanes where name = 'mail'")
    assert (lane.ready, lane.running, lane.scheduled, lane.blocked, lane.dead_letter) == (0, 0, 0, 0, 0)


def test_results_are_capped_by_lane_and_the_job_goes_on_running(db):
    db.answer("add_lane", name="tiny", max_result_bytes=1200)
    claim = db.running(lane="tiny")

    with db.refused("OW004", "at most 1200 bytes", str(claim.job_id), "reference"):
        db.complete(claim, {"x": "y" * 2000})
    assert db.state(claim.job_id) == "running"
    db.complete(claim, {"x": "y" * 1000})
    assert db.job(claim.job_id).result == {"x": "y" * 1000}
