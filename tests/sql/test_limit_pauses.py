"""A provider that refuses: a pause for everybody, then one probe."""

from __future__ import annotations

from datetime import timedelta

from tests.support.limits import fill, limit, now_of

# ------------------------------------------------------------ pauses


def test_a_paused_limit_lets_nobody_through(db):
    limit(db, requests=100, burst=50)
    fill(db, 5)
    until = db.answer("pause_limit", limit="api", **{"for": "30 s"}, reason="429")

    assert until == db.now() + timedelta(seconds=30)
    assert db.claims(5) == []
    assert (now_of(db).reason, now_of(db).next_room_at) == ("paused: 429", until)
    db.clock.advance("29 s")
    assert db.claims(5) == []


def test_a_shorter_pause_does_not_cut_a_longer_one_short(db):
    limit(db, requests=100)
    long = db.answer("pause_limit", limit="api", **{"for": "1 h"})

    assert db.answer("pause_limit", limit="api", **{"for": "1 s"}) == long


def test_after_a_pause_one_job_probes_and_the_others_follow_when_it_has_ended(db):
    limit(db, requests=1000, burst=50)
    fill(db, 10)
    db.answer("pause_limit", limit="api", **{"for": "30 s"})
    db.clock.advance("30 s")

    (probe,) = db.claims(5)
    assert db.claims(5) == []
    assert now_of(db).reason == "probing after a pause"
    db.complete(probe)

    assert len(db.claims(5)) == 5
    assert now_of(db).paused_until is None


def test_the_others_follow_as_soon_as_the_probe_has_settled(db):
    limit(db, requests=1000, burst=50)
    fill(db, 10)
    db.answer("pause_limit", limit="api", **{"for": "30 s"})
    db.clock.advance("30 s")
    (probe,) = db.claims(5)

    db.of_job("settle", probe, limit="api", weight=0)

    assert len(db.claims(5)) == 5


def test_a_probe_that_is_refused_pauses_for_everybody_again(db):
    limit(db, requests=1000, burst=50)
    fill(db, 10)
    db.answer("pause_limit", limit="api", **{"for": "30 s"})
    db.clock.advance("30 s")
    (probe,) = db.claims(5)

    db.of_job("limited", probe, retry_after="60 s")

    db.clock.advance("59 s")
    assert db.claims(5) == []
    db.clock.advance("1 s")
    assert len(db.claims(5)) == 1


def test_a_killed_probe_does_not_hold_the_limit_back_for_ever(db):
    limit(db, requests=1000, burst=50)
    fill(db, 10)
    db.answer("pause_limit", limit="api", **{"for": "30 s"})
    db.clock.advance("30 s")
    db.claim(worker="a")
    db.lose("a")

    assert len(db.claims(5, worker="b")) == 5


def test_a_resumed_limit_is_open_at_once(db):
    limit(db, requests=1000, burst=50)
    fill(db, 10)
    db.answer("pause_limit", limit="api", **{"for": "30 s"})

    assert db.answer("resume_limit", limit="api") is True
    assert db.answer("resume_limit", limit="api") is False
    assert len(db.claims(5)) == 5


def test_a_refused_job_is_put_off_without_using_up_an_attempt(db):
    limit(db, requests=1000, burst=50)
    limit(db, "other", requests=1000, burst=50)
    fill(db, 1, "api", "other")
    claim = db.claim()

    (answer,) = db.of_job("limited", claim, limit="api", retry_after="20 s", reason="429 Too Many Requests")

    assert (answer.state, answer.run_at) == ("scheduled", db.now() + timedelta(seconds=20))
    assert db.job(claim.job_id).attempt == 0
    assert now_of(db).paused_until == answer.run_at
    assert now_of(db, "other").paused_until is None
    # The reply was lost: the same answer.
    assert db.of_job("limited", claim, limit="api", retry_after="20 s") == [answer]


def test_a_job_without_limits_can_be_refused_as_well(db):
    claim = db.running()

    (answer,) = db.of_job("limited", claim, retry_after="20 s")

    assert answer.state == "scheduled"
