"""Limits on weight: reserved by estimate, settled by what was used."""

from __future__ import annotations

from tests.support.limits import fill, limit, now_of

# ------------------------------------------------------------ weight


def test_a_claim_takes_jobs_in_order_as_far_as_the_weight_goes(db):
    limit(db, weight=10_000, weight_burst=100)
    first = [fill(db, 1, weight=weight)[0] for weight in (30, 60, 50, 10)]

    # The third does not fit, and the fourth does not pass it.
    assert [claim.job_id for claim in db.claims(10)] == first[:2]
    assert round(now_of(db).weight_left) == 10


def test_weight_in_a_window_stays_within_the_limit(db):
    limit(db, weight=1000, weight_period="10 s", weight_burst=200)
    for n in range(30):
        fill(db, 1, weight=17 * n % 190 + 10)
    claimed = []
    for tick in range(200):
        claimed += [(tick / 4, claim.job_id) for claim in db.claims(100)]
        db.clock.advance("250 ms")
    weights = {
        row.id: int(row.uses[0]["weight"]) for row in db.run("select id, uses from onceward.job_private")
    }

    assert len(claimed) == 30
    for start, _ in claimed:
        assert sum(weights[job] for at, job in claimed if start <= at < start + 10.2) <= 1000


def test_a_job_heavier_than_the_limit_gives_at_once_is_refused(db):
    limit(db, weight=1000, weight_burst=100)

    with db.refused("OW031", 'limit "api" never gives 101 at once', "is 100", "weight_burst"):
        fill(db, 1, weight=101)
    fill(db, 1, weight=100)


def test_what_was_not_used_is_given_back(db):
    limit(db, weight=10_000, weight_burst=100)
    fill(db, 2, weight=80)
    (claim,) = db.claims(5)

    db.of_job("settle", claim, limit="api", weight=10)

    assert round(now_of(db).weight_left) == 90
    assert len(db.claims(5)) == 1


def test_what_was_used_above_the_reservation_is_charged(db):
    limit(db, weight=600, weight_period="60 s", weight_burst=100)
    fill(db, 2, weight=10)
    claim, _ = db.claims(5)

    db.of_job("settle", claim, limit="api", weight=310)

    assert round(now_of(db).weight_left) == -220
    fill(db, 1, weight=10)
    db.clock.advance("20 s")
    assert db.claims(5) == []


def test_a_settlement_is_repeated_without_harm_and_can_be_corrected(db):
    limit(db, weight=10_000, weight_burst=100)
    fill(db, 1, weight=50)
    claim = db.claim()

    for weight in (20, 20, 20):
        db.of_job("settle", claim, limit="api", weight=weight)
    assert round(now_of(db).weight_left) == 80
    db.of_job("settle", claim, limit="api", weight=30)
    assert round(now_of(db).weight_left) == 70


def test_a_settlement_never_lifts_the_level_above_the_burst(db):
    limit(db, weight=60_000, weight_period="60 s", weight_burst=100)
    fill(db, 1, weight=90)
    claim = db.claim()
    db.clock.advance("1 min")

    db.of_job("settle", claim, limit="api", weight=0)

    assert now_of(db).weight_left == 100


def test_a_worker_that_lost_its_lease_settles_nothing(db):
    limit(db, weight=10_000, weight_burst=100)
    fill(db, 1, weight=50)
    claim = db.claim(worker="a")
    db.lose("a")

    with db.refused("OW001"):
        db.of_job("settle", claim, limit="api", weight=0)


def test_the_settlement_of_one_attempt_does_not_count_for_the_next(db):
    limit(db, weight=10_000, weight_burst=100)
    fill(db, 1, weight=50)
    claim = db.claim()
    db.of_job("settle", claim, limit="api", weight=20)
    db.snooze(claim, "1 h")
    db.clock.advance("1 h")
    again = db.claim()

    db.of_job("settle", again, limit="api", weight=20)

    assert round(now_of(db).weight_left) == 80


def test_only_a_limit_that_the_job_uses_can_be_settled(db):
    limit(db, weight=10_000)
    claim = db.running()

    with db.refused("OW008", "'api'", "must be one that job"):
        db.of_job("settle", claim, limit="api", weight=1)
