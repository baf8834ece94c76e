from __future__ import annotations

from uuid import UUID

import pytest

NOBODY = UUID("00000000-0000-4000-8000-000000000000")


def outcomes(rows):
    return [row.outcome for row in rows]


def test_finishing_and_claiming_happen_in_one_call(db):
    first = db.running()
    second = db.enqueue()

    (row,) = db.exchange([first], lanes=["default"], max=1, results=[{"pages": 3}])

    assert (row.outcome, row.job_id, row.epoch) == ("claimed", second, 1)
    assert (db.state(first.job_id), db.job(first.job_id).result) == ("done", {"pages": 3})


def test_an_exchange_only_finishes_when_there_is_no_room(db):
    claim = db.running()
    waiting = db.enqueue()

    assert db.exchange([claim], lanes=["default"], max=0) == []
    assert (db.state(claim.job_id), db.state(waiting)) == ("done", "ready")


def test_a_finish_that_came_too_late_is_told_and_the_others_count(db):
    late, fine = db.running(worker="a"), db.running(worker="b")
    db.heartbeat("b")
    db.run("update onceward.worker_private set expires_at = onceward.now() where id = %s", db.worker("a"))
    db.rescue()

    (row,) = db.exchange([late, fine], worker="b")

    assert (row.outcome, row.job_id, row.epoch) == ("lost", late.job_id, late.epoch)
    assert (db.state(late.job_id), db.state(fine.job_id)) == ("ready", "done")


def test_repeating_an_exchange_whose_reply_was_lost_loses_nothing(db):
    claims = [db.running() for _ in range(3)]

    assert db.exchange(claims, results=[{"n": 1}, None, {"n": 3}]) == []
    assert db.exchange(claims, results=[{"n": 1}, None, {"n": 3}]) == []
    assert [db.job(claim.job_id).result for claim in claims] == [{"n": 1}, None, {"n": 3}]


def test_a_job_named_twice_is_finished_once(db):
    claim = db.running()

    assert db.exchange([claim, claim]) == []
    assert db.state(claim.job_id) == "done"


def test_a_wrong_epoch_is_a_loss(db):
    claim = db.running()

    assert outcomes(db.exchange([claim._replace(epoch=99)])) == ["lost"]
    assert db.state(claim.job_id) == "running"


def test_an_expired_worker_finishes_what_nobody_took_but_claims_nothing(db):
    db.worker("a", lease="30 s")
    claim = db.running()
    db.enqueue()
    db.clock.advance("30 s")

    rows = db.exchange([claim], lanes=["default"], max=5)

    assert outcomes(rows) == ["expired"]
    assert db.state(claim.job_id) == "done"


def test_an_unknown_worker_claims_nothing(db):
    db.enqueue()

    (row,) = db.call("exchange", worker_id=NOBODY, lanes=["default"], max=1)

    assert row.outcome == "expired"


def test_each_lane_has_its_own_room(db):
    db.answer("declare_lanes", names=["a", "b", "c"])
    for lane in "abc":
        db.enqueue_many("ocr", [{}] * 5, lane=lane)

    rows = db.exchange(lanes=["a", "b", "c"], limits=[2, 0, 4], max=5)

    assert [row.lane for row in rows] == ["a", "a", "c", "c", "c"]


@pytest.mark.parametrize("first", ["paused", "nowhere", None])
def test_a_lane_keeps_its_own_room_behind_one_that_gives_nothing(db, first):
    for lane in ("paused", "mail"):
        db.answer("add_lane", name=lane)
        db.enqueue_many("ocr", [{}] * 3, lane=lane)
    db.answer("pause_lane", name="paused")

    rows = db.exchange(lanes=[first, "mail"], limits=[3, 2], max=9)

    assert [row.lane for row in rows] == ["mail"] * 2


def test_an_exchange_without_lanes_claims_nothing(db):
    db.enqueue()

    assert db.exchange(lanes=None, max=5) == []
    assert db.exchange(lanes=[], max=5) == []


def test_floors_bound_the_search_from_below(db):
    jobs = [db.enqueue() for _ in range(5)]
    seqs = dict(db.run("select id, ready_seq from onceward.job_private"))
    floors = {"default": {"0": seqs[jobs[2]]}}

    rows = db.exchange(lanes=["default"], max=10, floors=floors)

    assert [row.job_id for row in rows] == jobs[3:]
    assert [row.ready_seq for row in rows] == [seqs[job] for job in jobs[3:]]


def test_floors_go_by_priority_and_keep_its_order(db):
    low, high = db.enqueue(priority=1), db.enqueue(priority=9)

    rows = db.exchange(lanes=["default"], max=10, floors={"default": {"1": 0, "9": 0}})

    assert [row.job_id for row in rows] == [high, low]


def test_a_lane_without_floors_is_searched_from_the_beginning(db):
    job = db.enqueue()

    (row,) = db.exchange(lanes=["default"], max=10, floors={"other": {"0": 5}})

    assert row.job_id == job


def test_too_large_a_result_finishes_none_of_the_set(db):
    big, small = db.running(), db.running()

    with db.refused("OW004", "262144", str(big.job_id)):
        db.exchange([big, small], results=[{"x": "y" * 300_000}, None])
    assert (db.state(big.job_id), db.state(small.job_id)) == ("running", "running")


def test_finishing_admits_the_next_of_a_concurrency_key_in_the_same_call(db):
    first, second = (db.enqueue(concurrency_key="k") for _ in range(2))
    claim = db.claim()
    assert (claim.job_id, db.state(second)) == (first, "blocked")

    (row,) = db.exchange([claim], lanes=["default"], max=1)

    assert row.job_id == second


@pytest.mark.parametrize("sleep", [True, False])
def test_a_worker_says_that_it_falls_asleep_only_when_there_is_nothing(db, sleep):
    db.exchange(lanes=["default"], max=1, sleep=sleep)

    asleep = db.value("select asleep_until > onceward.now() from onceward.worker_private")
    assert asleep is (True if sleep else None)


def test_a_worker_that_is_busy_again_is_not_woken(db):
    db.exchange(lanes=["default"], max=1, sleep=True)
    db.enqueue()

    db.exchange(lanes=["default"], max=1)

    assert db.value("select asleep_until from onceward.worker_private") is None


def test_the_mark_of_a_sleeper_is_renewed_twice_a_minute_and_not_at_every_poll(db):
    db.clock.pin()
    left = "select asleep_until - onceward.now() from onceward.worker_private"
    marks = []
    for _ in range(3):
        db.heartbeat()
        db.exchange(lanes=["default"], max=1, sleep=True)
        marks.append(db.value(left))
        db.clock.advance("20 s")

    assert [mark.total_seconds() for mark in marks] == [60, 40, 60]
