"""Limits on how many run at once: a slot is free however a job stops running, and holds end by themselves."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.support.limits import fill, limit, now_of

# ------------------------------------------------------------ slots

ENDS = {
    "complete": lambda db, claim: db.complete(claim),
    "exchange": lambda db, claim: db.exchange([claim]),
    "fail": lambda db, claim: db.fail(claim),
    "dead letter": lambda db, claim: db.fail(claim, permanent=True),
    "snooze": lambda db, claim: db.snooze(claim),
    "sleep": lambda db, claim: db.sleep(claim),
    "wait for an event": lambda db, claim: db.wait_event(claim),
    "join": lambda db, claim: db.join(claim, [db.enqueue(lane="side")]),
    "cancel": lambda db, claim: db.cancel(claim.job_id, epoch=claim.epoch),
    "limited": lambda db, claim: (db.of_job("limited", claim), db.call("resume_limit", limit="api")),
    "killed worker": lambda db, claim: db.lose("a"),
    "retired worker": lambda db, claim: db.call("retire_worker", worker_id=db.worker("a")),
    "job is gone": lambda db, claim: db.run("delete from onceward.job_private where id = %s", claim.job_id),
}


@pytest.mark.parametrize("end", list(ENDS.values()), ids=list(ENDS))
def test_a_slot_is_free_again_however_the_job_stops_running(db, end):
    db.call("add_lane", name="side")
    limit(db, slots=1)
    fill(db, 3)
    claim = db.claim(worker="a")
    assert db.claims(5, worker="b") == []
    assert now_of(db).slots_held == 1

    end(db, claim)

    assert len(db.claims(5, worker="c")) == 1
    assert db.claims(5, worker="c") == []
    assert now_of(db).slots_held == 1
    assert db.value("select count(*) from onceward.hold_private") == 1


def test_never_more_jobs_run_than_there_are_slots(db):
    limit(db, slots=3)
    fill(db, 20)
    running = db.claims(10)
    assert len(running) == 3
    for _ in range(17):
        rows = db.exchange([running.pop(0)], lanes=["default"], max=10)
        claimed = [row for row in rows if row.outcome == "claimed"]
        assert len(claimed) == 1
        running += claimed
        assert db.value("select count(*) from onceward.jobs where state = 'running'") == 3


# ------------------------------------------------------------ direct use


def test_a_limit_is_acquired_directly(db):
    limit(db, requests=100, burst=2)

    holds = [db.call("acquire", limit="api")[0] for _ in range(3)]

    assert [hold.hold_id is not None for hold in holds] == [True, True, False]
    assert (holds[2].reason, holds[2].wait > timedelta(0)) == ("no requests left", True)
    db.clock.advance(holds[2].wait)
    assert db.call("acquire", limit="api")[0].hold_id is not None


def test_direct_use_and_jobs_share_the_limit(db):
    limit(db, requests=100, burst=4)
    fill(db, 10)
    db.call("acquire", limit="api", requests=3)

    assert len(db.claims(10)) == 1


def test_a_directly_acquired_slot_is_free_after_its_lease(db):
    limit(db, slots=1)
    hold = db.call("acquire", limit="api", lease="10 s")[0]
    assert db.call("acquire", limit="api")[0].hold_id is None

    db.clock.advance("10 s")

    assert db.call("acquire", limit="api")[0].hold_id is not None
    with db.refused("OW032", str(hold.hold_id)):
        db.call("settle_hold", hold_id=hold.hold_id, weight=1)


def test_a_directly_acquired_slot_is_given_back(db):
    limit(db, slots=1)
    hold = db.call("acquire", limit="api")[0].hold_id

    assert db.answer("release_hold", hold_id=hold) is True
    assert db.answer("release_hold", hold_id=hold) is False
    assert db.call("acquire", limit="api")[0].hold_id is not None


def test_what_was_acquired_directly_is_settled_once(db):
    limit(db, weight=10_000, weight_burst=100)
    hold = db.call("acquire", limit="api", weight=80)[0].hold_id

    for _ in range(2):
        db.call("settle_hold", hold_id=hold, weight=30)

    assert round(now_of(db).weight_left) == 70


def test_holds_past_their_lease_are_tidied_away(db):
    limit(db, slots=5)
    db.call("acquire", limit="api", lease="10 s")
    db.clock.advance("11 s")

    assert db.answer("tidy") == 1
    assert db.value("select count(*) from onceward.hold_private") == 0
