"""Back-pressure: what an enqueue is answered when more waits than may."""

from __future__ import annotations

import secrets
from datetime import timedelta

import pytest
from psycopg.types.json import Jsonb


def bound(db, **options):
    db.call("set_bound", **{"lane": "default", **options})


def measure(db):
    db.clock.advance("2 s")
    db.promote()


def full(db, **options):
    bound(db, max_depth=2, **options)
    db.enqueue_many("ocr", [{}] * 3)
    measure(db)


def test_below_its_bound_a_lane_accepts(db):
    bound(db, max_depth=3, over="reject")
    db.enqueue_many("ocr", [{}] * 3)
    measure(db)

    answer = db.enqueued()

    assert (answer.answer, answer.until, answer.reason, answer.created) == ("accepted", None, None, True)


def test_above_its_bound_a_lane_accepts_and_says_so(db):
    full(db)

    answer = db.enqueued()

    assert (answer.answer, answer.created) == ("accepted", True)
    assert answer.reason == 'more than 2 jobs are ready in lane "default"'
    assert db.state(answer.job_id) == "ready"


def test_above_its_bound_a_lane_defers(db):
    full(db, over="defer", defer_by="10 min")

    answer = db.enqueued()

    assert (answer.answer, answer.until) == ("deferred", db.now() + timedelta(minutes=10))
    row = db.job(answer.job_id)
    assert (row.state, row.run_at) == ("scheduled", answer.until)
    later = db.enqueued(run_at=db.now() + timedelta(hours=1))
    assert later.until == db.now() + timedelta(hours=1)


def test_above_its_bound_a_lane_rejects(db):
    full(db, over="reject")
    before = db.contents()

    answer = db.enqueued(key="k")
    many = db.enqueue_many("ocr", [{}, {}])

    assert (answer.job_id, answer.created, answer.answer) == (None, False, "rejected")
    assert "more than 2 jobs are ready" in answer.reason
    assert [(row.job_id, row.answer) for row in many] == [(None, "rejected")] * 2
    assert db.contents() == before


def test_the_job_of_a_key_is_still_found(db):
    job = db.enqueue(key="k")
    full(db, over="reject")

    answer = db.enqueued(key="k")

    assert (answer.job_id, answer.answer, answer.reason) == (job, "existing", None)


def test_many_jobs_hear_the_same(db):
    full(db, over="defer")

    answers = db.enqueue_many("ocr", [{}, {}])

    assert [(row.answer, row.until) for row in answers] == [("deferred", db.now() + timedelta(minutes=1))] * 2
    assert {db.state(row.job_id) for row in answers} == {"scheduled"}


def test_what_belongs_to_accepted_work_is_not_turned_away(db):
    claim = db.running(lane="default")
    full(db, over="reject")

    assert db.enqueued(after=[claim.job_id]).answer == "accepted"
    assert len(db.spawn(claim, [{}, {}])) == 2
    assert len(db.workflow({"name": "a"}, {"name": "b", "after": ["a"]})) == 2
    assert db.call("deliver", kind="slack", key="k", content={"text": "hello"})[0].created


def test_the_oldest_counts(db):
    bound(db, max_age="1 min", over="reject")
    db.enqueue(priority=-5)
    db.clock.advance("59 s")
    db.promote()
    assert db.enqueued().answer == "accepted"
    measure(db)

    answer = db.enqueued()

    assert (answer.answer, answer.reason) == (
        "rejected",
        'the oldest ready job has waited longer than 00:01:00 in lane "default"',
    )


def test_bytes_count(db):
    bound(db, max_bytes=3000, over="reject")
    db.enqueue(payload={"text": secrets.token_hex(1000)})
    measure(db)
    assert db.enqueued(payload={"text": secrets.token_hex(1000)}).answer == "accepted"
    measure(db)

    assert db.enqueued().reason == 'ready jobs have more than 3000 bytes of payload in lane "default"'


def test_a_tenant_can_be_bounded(db):
    bound(db, tenant="acme", max_depth=1, over="reject")
    db.enqueue_many("ocr", [{}] * 3, tenant="acme")
    db.enqueue_many("ocr", [{}] * 3, tenant="globex")
    measure(db)

    answer = db.enqueued(tenant="acme")
    assert (answer.answer, answer.reason) == (
        "rejected",
        'more than 1 jobs are ready of tenant "acme" in lane "default"',
    )
    assert db.enqueued(tenant="globex").answer == "accepted"


def test_each_tenant_can_be_bounded(db):
    db.answer("set_limit", name="api", requests=1)
    bound(db, tenant="*", max_depth=2, over="reject")
    for tenant, count in {"acme": 3, "globex": 2, "default": 1}.items():
        db.enqueue_many("ocr", [{}] * count, tenant=tenant)
    # Those with limits count as well.
    db.enqueue_many("ocr", [{}] * 2, uses=Jsonb([{"limit": "api"}]))
    measure(db)

    answers = {tenant: db.enqueued(tenant=tenant).answer for tenant in ("acme", "globex", "default", "new")}

    assert answers == {"acme": "rejected", "globex": "accepted", "default": "rejected", "new": "accepted"}


def test_the_strictest_bound_decides(db):
    bound(db, max_depth=1, over="signal")
    bound(db, tenant="acme", max_depth=1, over="defer")
    db.enqueue_many("ocr", [{}] * 3, tenant="acme")
    measure(db)

    assert db.enqueued(tenant="acme").answer == "deferred"
    assert db.enqueued(tenant="globex").reason is not None


def test_a_lane_that_has_emptied_accepts_again(db):
    full(db, over="reject")
    for claim in db.claims(10):
        db.complete(claim)
    measure(db)

    assert (db.enqueued().answer, db.enqueued().reason) == ("accepted", None)


def test_a_tenant_that_has_emptied_is_accepted_again(db):
    bound(db, tenant="*", max_depth=1, over="reject")
    db.enqueue_many("ocr", [{}] * 3, tenant="acme")
    measure(db)
    assert db.enqueued(tenant="acme").answer == "rejected"
    db.exchange(db.claims(10))
    measure(db)

    assert db.enqueued(tenant="acme").answer == "accepted"


def test_what_nobody_has_measured_for_a_minute_does_not_count(db):
    full(db, over="reject")
    db.clock.advance("61 s")

    assert db.enqueued().answer == "accepted"


def test_a_dropped_bound_does_not_count(db):
    full(db, over="reject")

    assert db.answer("drop_bound", lane="default") is True
    assert db.answer("drop_bound", lane="default") is False
    assert db.enqueued().answer == "accepted"
    assert db.value("select bounded from onceward.lane_private where name = 'default'") is False


def test_a_rejected_slot_of_a_schedule_is_on_record(db):
    full(db, over="reject")
    db.call("add_schedule", name="s", task="ocr", spec="1 minute")
    db.clock.advance("1 min")
    db.promote()
    db.call("tick")

    tick = db.one("select * from onceward.ticks")
    assert (tick.outcome, tick.job_id) == ("failed", None)
    assert "more than 2 jobs are ready" in tick.reason


def test_a_busy_limit_defers_new_work_when_it_says_so(db):
    db.answer("set_limit", name="api", requests=10, period="60 s", over="defer")
    uses = Jsonb([{"limit": "api"}])
    db.enqueue_many("ocr", [{}] * 9, uses=uses)
    measure(db)

    answer = db.enqueued(uses=uses)

    assert answer.answer == "deferred"
    assert answer.reason == 'more than 8 jobs wait for limit "api", 80 % of what one period gives'
    # When what waits now will have passed.
    assert timedelta(seconds=45) < answer.until - db.now() < timedelta(seconds=70)
    assert db.enqueued().answer == "accepted"


def test_a_limit_accepts_unless_it_says_otherwise(db):
    db.answer("set_limit", name="api", requests=10)
    uses = Jsonb([{"limit": "api"}])
    db.enqueue_many("ocr", [{}] * 20, uses=uses)
    measure(db)

    assert db.enqueued(uses=uses).answer == "accepted"


def test_a_limit_whose_backlog_has_gone_accepts_again(db):
    db.answer("set_limit", name="api", requests=10, period="60 s", over="defer")
    uses = Jsonb([{"limit": "api"}])
    jobs = db.enqueue_many("ocr", [{}] * 9, uses=uses)
    measure(db)
    for job in jobs:
        db.cancel(job.job_id)
    measure(db)

    assert db.enqueued(uses=uses).answer == "accepted"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "must have max_depth, max_age or max_bytes"),
        ({"max_depth": -1}, "max_depth must be between"),
        ({"max_age": "0"}, "max_age must be between"),
        ({"max_bytes": -1}, "max_bytes must not be negative"),
        ({"max_depth": 1, "over": "drop"}, "over must be signal, defer or reject"),
        ({"max_depth": 1, "defer_by": "0"}, "defer_by must be between"),
        ({"max_depth": 1, "tenant": "a*"}, "tenant must be"),
    ],
)
def test_a_bound_that_makes_no_sense_is_refused(db, options, words):
    with db.refused("OW008", words):
        bound(db, **options)
    with db.refused("OW002"):
        bound(db, lane="nope", max_depth=1)


def test_tenants_that_do_not_stand_apart_cannot_be_bounded(db):
    db.call("add_lane", name="plain", fair=False)
    with db.refused("OW008", "where tenants do not stand apart"):
        bound(db, lane="plain", tenant="acme", max_depth=1)
