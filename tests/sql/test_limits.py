"""Limits: what is shared is never exceeded, and waiting costs no attempt."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.support.engine import refused
from tests.support.limits import fill, limit, now_of


def times_of_claims(db, seconds, step=0.25):
    """When each job could be claimed, looking at it all the time, in seconds."""
    found = []
    for tick in range(int(seconds / step)):
        found += [tick * step] * len(db.claims(1000))
        db.clock.advance(timedelta(seconds=step))
    return found


def most_in_a_window(times, period):
    return max(sum(start <= time < start + period for time in times) for start in times)


# ------------------------------------------------------------ requests per time


def test_a_claim_takes_no_more_than_the_limit_has_room_for(db):
    limit(db, requests=100, burst=5)
    fill(db, 20)

    assert len(db.claims(50)) == 5
    assert db.claims(50) == []


@pytest.mark.parametrize(
    ("requests", "period", "burst"),
    [(1, 10, None), (2, 10, None), (10, 10, 1), (10, 10, 10), (100, 10, None), (100, 10, 50), (7, 3, 3)],
)
def test_no_window_of_one_period_holds_more_than_the_limit(db, requests, period, burst):
    limit(db, requests=requests, period=timedelta(seconds=period), burst=burst)
    fill(db, requests * 6)
    allowance = db.value(
        "select extract(epoch from allowance)::float from onceward.limits where name = 'api'"
    )

    times = times_of_claims(db, period * 5)

    # Also when a claimed job begins as late as it may, and the next ones at once.
    assert most_in_a_window(times, period + allowance) <= requests
    assert len(times) >= requests


def test_nearly_all_of_a_limit_is_used(db):
    limit(db, requests=500, period="60 s")
    fill(db, 3000)
    times_of_claims(db, 10, step=1)

    taken = len(times_of_claims(db, 240, step=1))

    assert 0.95 * 2000 <= taken <= 2000


def test_what_is_not_used_does_not_add_up_beyond_the_burst(db):
    limit(db, requests=100, burst=5)
    db.clock.advance("1 day")
    fill(db, 20)

    assert len(db.claims(50)) == 5


def test_a_job_without_room_waits_and_uses_up_no_attempt(db):
    limit(db, requests=1, period="1 min")
    first, second = fill(db, 2)
    db.claim()
    assert db.claims(5) == []

    row = db.job(second)
    assert (row.state, row.attempt, row.epoch) == ("ready", 0, 0)
    assert db.job(first).state == "running"


def test_the_next_room_is_known(db):
    limit(db, requests=1, period="1 min")
    fill(db, 2)
    db.claim()

    room = now_of(db)

    assert room.reason == "no requests left"
    db.clock.pin(room.next_room_at - timedelta(seconds=1))
    assert db.claims(1) == []
    db.clock.pin(room.next_room_at)
    assert len(db.claims(1)) == 1


def test_a_line_without_room_does_not_stop_the_others(db):
    limit(db, requests=1)
    fill(db, 10, priority=100)
    plain = [db.enqueue() for _ in range(3)]

    assert len(db.claims(2)) == 2
    assert {claim.job_id for claim in db.claims(10)} <= set(plain)


def test_a_job_needs_room_in_all_of_its_limits(db):
    limit(db, "wide", requests=1000, burst=100)
    limit(db, "narrow", requests=100, burst=2)
    fill(db, 10, "wide", "narrow")

    assert len(db.claims(50)) == 2
    assert round(now_of(db, "wide").requests_left) == 98


def test_two_kinds_of_jobs_share_one_limit(db):
    limit(db, requests=100, burst=4)
    limit(db, "other", requests=100, burst=50)
    fill(db, 10)
    fill(db, 10, "api", "other")

    assert len(db.claims(50)) == 4


def test_each_key_has_a_bucket_of_its_own(db):
    limit(db, requests=100, burst=2, per_key=True)
    fill(db, 5, key="a")
    fill(db, 5, key="b")

    assert len(db.claims(50)) == 4


def test_the_key_is_the_tenant_unless_another_is_named(db):
    limit(db, requests=100, burst=2, per_key=True)
    for tenant in ("acme", "globex"):
        fill(db, 5, tenant=tenant)

    claims = db.claims(50)

    assert sorted(claim.tenant for claim in claims) == ["acme", "acme", "globex", "globex"]
    assert {row.key for row in db.run("select key from onceward.limits where name = 'api'")} == {
        "acme",
        "globex",
    }


def test_a_dropped_limit_holds_nobody_back(db):
    limit(db, requests=1)
    fill(db, 5)
    db.claim()
    db.call("drop_limit", name="api")

    assert len(db.claims(50)) == 4


def test_a_retry_and_a_requeued_job_need_room_again(db):
    limit(db, requests=2, period="1 min", burst=2)
    fill(db, 2)
    failed, dead = db.claims(2)
    db.fail(failed, retry_after="0")
    db.fail(dead, permanent=True)
    db.requeue(dead.job_id)
    db.promote()

    assert db.claims(5) == []
    db.clock.advance("3 min")
    assert {claim.job_id for claim in db.claims(5)} == {failed.job_id, dead.job_id}


def test_a_cancelled_job_that_is_requeued_keeps_its_limits(db):
    limit(db, requests=1)
    job, _ = fill(db, 2)
    db.cancel(job)
    db.requeue(job)

    assert len(db.claims(5)) == 1
    assert db.claims(5) == []


# ------------------------------------------------------------ declaring


def test_providers_are_seeded(db):
    rows = db.run("select name, requests, period from onceward.limits order by name")

    assert [(row.name, row.requests, row.period) for row in rows] == [
        ("anthropic", 400, timedelta(minutes=1)),
        ("google-vision", 1800, timedelta(minutes=1)),
        ("openai", 500, timedelta(minutes=1)),
    ]
    seeded = db.run("select rate, burst from onceward.limit_private order by name")
    for name, requests in (("anthropic", 400), ("google-vision", 1800), ("openai", 500)):
        limit(db, name, requests=requests)
    # As the functions compute it.
    for old, new in zip(
        seeded, db.run("select rate, burst from onceward.limit_private order by name"), strict=True
    ):
        assert tuple(old) == pytest.approx(tuple(new))


def test_code_changes_what_it_declared_and_leaves_alone_what_a_person_set(db):
    def declare(**options):
        return db.answer("declare_limits", limits=Jsonb([{"name": "api", **options}]))

    assert declare(requests=10) == 1
    assert declare(requests=10) == 0
    assert declare(requests=20) == 1
    assert limit(db, requests=30) is True
    assert declare(requests=20) == 0
    assert db.value("select requests from onceward.limits where name = 'api'") == 30


def test_a_changed_limit_counts_at_once(db):
    limit(db, requests=100, burst=2)
    fill(db, 20)
    db.claims(10)
    limit(db, requests=100, burst=10)
    db.clock.advance("1 h")

    assert len(db.claims(20)) == 10


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "must have requests, weight or slots"),
        ({"requests": 0}, "requests must be between"),
        ({"requests": 5, "period": "0"}, "period must be between"),
        ({"requests": 5, "burst": 6}, "burst must be between 1 and the limit (5)"),
        ({"weight": 5, "weight_burst": 6}, "weight_burst must be between"),
        ({"slots": 0}, "slots must be between"),
        ({"requests": 5, "allowance": "-1 s"}, "allowance must be between"),
        ({"requests": 5, "threshold": -1}, "threshold must be"),
        ({"requests": 5, "over": "drop"}, "over must be accept or defer"),
    ],
)
def test_a_limit_that_makes_no_sense_is_refused(db, options, words):
    with db.refused("OW008", words):
        limit(db, **options)


@pytest.mark.parametrize(
    ("given", "state", "words"),
    [
        ([{"limit": "nope"}], "OW030", 'limit "nope" does not exist'),
        ([], "OW008", "must be a list of 1 to 8 limits"),
        ({}, "OW008", "must be a list"),
        (["api"], "OW008", "must be objects with limit"),
        ([{"limit": "api", "tokens": 1}], "OW008", "must be objects with limit"),
        ([{"limit": "api"}, {"limit": "api"}], "OW008", "must name each limit once"),
        ([{"limit": "api", "weight": -1}], "OW008", "must have a weight"),
        ([{"limit": "api", "weight": "many"}], "OW008", "must have a weight"),
        ([{"limit": "api", "key": "k"}], "OW008", "which is not per key"),
    ],
)
def test_a_use_that_makes_no_sense_is_refused(db, given, state, words):
    limit(db, requests=5)
    with db.refused(state, words):
        db.enqueue(uses=Jsonb(given))
    with db.refused(state, words):
        db.enqueue_many("ocr", [{}], uses=Jsonb(given))


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        ("drop_limit", {"name": "nope"}),
        ("pause_limit", {"limit": "nope", "for": "1 s"}),
        ("resume_limit", {"limit": "nope"}),
        ("acquire", {"limit": "nope"}),
        ("limit_now", {"limit": "nope"}),
    ],
)
def test_an_unknown_limit_is_named(db, function, arguments):
    with db.refused("OW030", 'limit "nope" does not exist', "Known limits: anthropic"):
        db.call(function, **arguments)


def test_many_jobs_may_each_have_their_own_uses(db):
    limit(db, weight=10_000, weight_burst=100)
    given = [[{"limit": "api", "weight": weight}] for weight in (60, 30, 30)]

    db.enqueue_many("ocr", [{"n": n} for n in range(3)], uses=Jsonb(given))

    assert [claim.payload["n"] for claim in db.claims(5)] == [0, 1]


def test_jobs_of_workflows_children_and_schedules_have_limits_as_well(db):
    limit(db, requests=10, burst=1)
    given = [{"limit": "api"}]
    db.workflow({"name": "a", "uses": given}, {"name": "b", "uses": given})
    assert len(db.claims(5)) == 1
    db.clock.advance("1 h")
    (parent,) = db.claims(5)
    db.spawn(parent, [{}, {}], uses=Jsonb(given))
    assert db.claims(5) == []
    db.clock.advance("1 h")
    assert len(db.claims(5)) == 1
    db.call("add_schedule", name="s", task="ocr", spec="1 hour", uses=Jsonb(given))
    db.call("run_schedule_now", name="s")
    assert db.claims(5) == []


# ------------------------------------------------------------ several at once


def test_a_bucket_that_somebody_else_has_is_not_waited_for(db):
    limit(db, requests=100, burst=10)
    fill(db, 5)
    other = db.connect(autocommit=False)
    db.worker("b")
    assert len(db.on(other).claims(2, worker="b")) == 2
    plain = db.enqueue()

    assert [claim.job_id for claim in db.claims(5)] == [plain]

    other.rollback()
    assert len(db.claims(5)) == 5


def test_a_limit_is_read_as_the_tenant_may(db):
    limit(db, requests=100, per_key=True)
    for tenant in ("acme", "globex"):
        fill(db, 1, tenant=tenant)
    db.claims(5)
    seen = db.on(db.connect(role="onceward_producer", tenant="acme"))

    assert [row.key for row in seen.run("select key from onceward.limits where name = 'api'")] == ["acme"]
    with refused("OW011"):
        seen.call("limit_now", limit="api", key="globex")


@pytest.mark.race
def test_of_many_who_declare_a_limit_at_once_one_creates_it(db):
    declare = 'select onceward.declare_limits(\'[{"name": "api", "requests": 10}]\')'
    with psycopg.connect(db.dsn) as first:
        assert first.execute(declare).fetchone() == (1,)
        with ThreadPoolExecutor(4) as pool:
            others = [pool.submit(declare_once, db.dsn, declare) for _ in range(4)]
            while db.value("select count(*) from pg_locks where not granted") < 4:
                pass
            first.commit()
            assert [other.result(30) for other in others] == [0, 0, 0, 0]


def declare_once(dsn: str, declare: str) -> int:
    with psycopg.connect(dsn, autocommit=True) as conn:
        row = conn.execute(declare).fetchone()
        assert row is not None
        return row[0]
