from __future__ import annotations

from datetime import timedelta

import pytest
from psycopg.types.json import Jsonb


def waits(db, policy, attempts):
    """The wait after each attempt, in seconds."""
    return [
        db.value("select extract(epoch from onceward.retry_wait(%s, %s))::float", Jsonb(policy), attempt)
        for attempt in attempts
    ]


def test_listed_waits_are_taken_in_turn_and_the_last_one_repeats(db):
    assert waits(db, {"waits": [5, 30, 300]}, [1, 2, 3, 4, 50]) == [5, 30, 300, 300, 300]


def test_exponential_waits_grow_by_the_factor_up_to_the_cap(db):
    policy = {"base": 5, "factor": 3, "cap": 100, "jitter": False}

    assert waits(db, policy, [1, 2, 3, 4, 5]) == [5, 15, 45, 100, 100]


def test_a_factor_of_one_repeats_the_base(db):
    assert waits(db, {"base": 7, "factor": 1, "jitter": False}, [1, 10, 1000]) == [7, 7, 7]


@pytest.mark.parametrize("attempt", [100, 1000, 2_147_483_647])
@pytest.mark.parametrize("factor", [1, 1.0000001, 3, 100])
def test_high_attempt_numbers_do_not_overflow(db, attempt, factor):
    (wait,) = waits(db, {"base": 5, "factor": factor, "cap": 3600, "jitter": False}, [attempt])

    assert 5 <= wait <= 3600


@pytest.mark.parametrize("policy", [{"base": 0}, {"cap": 0}, {"waits": [0]}])
def test_a_wait_of_nothing_is_possible(db, policy):
    assert waits(db, policy, [1, 5]) == [0, 0]


def test_jitter_draws_from_nothing_to_the_whole_wait(db):
    drawn = waits(db, {"base": 100, "factor": 1, "cap": 100}, [1] * 200)

    assert 0 <= min(drawn) < 25
    assert 75 < max(drawn) <= 100


def test_listed_waits_are_exact_unless_jitter_is_asked_for(db):
    assert set(waits(db, {"waits": [100]}, [1] * 20)) == {100}
    assert len(set(waits(db, {"waits": [100], "jitter": True}, [1] * 20))) > 1


def test_without_a_policy_waits_start_within_five_seconds_and_end_within_an_hour(db):
    drawn = [
        db.value("select extract(epoch from onceward.retry_wait(null, %s))::float", n)
        for n in [1] * 50 + [100] * 50
    ]

    assert min(drawn[:50]) >= 0
    assert max(drawn[:50]) <= 5
    assert 5 < max(drawn[50:]) <= 3600


def test_the_policy_travels_with_the_job(db):
    claim = db.running(retry={"waits": [60, 120]}, max_attempts=3)

    first = db.fail(claim)
    assert (first.state, first.retry_at) == ("scheduled", db.now() + timedelta(seconds=60))
    db.clock.advance("60 s")
    second = db.fail(db.claim())
    assert second.retry_at == db.now() + timedelta(seconds=120)
    db.clock.advance("120 s")
    assert db.fail(db.claim()).state == "dead_letter"


def test_a_job_is_not_claimed_before_its_retry_is_due(db):
    db.fail(db.running(retry={"waits": [60]}))

    db.clock.advance("59 s")
    assert db.claims(1) == []
    db.clock.advance("1 s")
    assert db.claim().attempt == 2


def test_the_most_attempts_allowed_are_made_and_no_more(db):
    job = db.enqueue(max_attempts=4, retry={"waits": [0]})
    states = [db.fail(db.claim()).state for _ in range(4)]

    assert states == ["scheduled", "scheduled", "scheduled", "dead_letter"]
    assert [attempt.attempt for attempt in db.attempts(job)] == [1, 2, 3, 4]


def test_a_permanent_failure_skips_the_remaining_attempts(db):
    answer = db.fail(db.running(max_attempts=8), permanent=True)

    assert (answer.state, answer.retry_at) == ("dead_letter", None)


@pytest.mark.parametrize(
    ("asked", "waits_seconds"), [("90 s", 90), ("0", 0), ("-5 s", 0), ("100 years", 365.25 * 86400)]
)
def test_a_server_that_says_when_to_come_back_is_obeyed_within_bounds(db, asked, waits_seconds):
    answer = db.fail(db.running(retry={"waits": [1]}), retry_after=asked)

    wait = db.value("select %s::timestamptz - onceward.now()", answer.retry_at)
    assert abs(wait.total_seconds() - waits_seconds) <= 86400 * (waits_seconds > 86400)


def test_the_last_error_stays_with_the_job_while_it_waits_and_after_it_succeeds(db):
    claim = db.running(retry={"waits": [0]})
    db.fail(claim, "no route to host", error_type="ConnectionError", category="network")

    assert db.job(claim.job_id).last_error["message"] == "no route to host"
    db.complete(db.claim())
    row = db.job(claim.job_id)
    assert (row.state, row.last_error["type"], row.attempt) == ("done", "ConnectionError", 2)
