"""Whose row it is: the session says for whom it acts, and functions refuse to touch another tenant's job."""

from __future__ import annotations

import pytest

from tests.support.engine import refused


@pytest.fixture
def as_(db):
    """The contract as seen by a role and tenant."""
    return lambda role, tenant=None: db.on(db.connect(role=f"onceward_{role}", tenant=tenant))


def test_a_job_belongs_to_the_tenant_of_the_session(db, as_):
    job = as_("producer", "acme").enqueue()

    assert db.job(job).tenant == "acme"


def test_a_session_without_a_tenant_enqueues_for_the_default_or_a_named_one(db, as_):
    producer = as_("producer")

    assert db.job(producer.enqueue()).tenant == "default"
    assert db.job(producer.enqueue(tenant="acme")).tenant == "acme"


def test_a_session_cannot_enqueue_for_another_tenant(db, as_):
    producer = as_("producer", "acme")
    before = db.contents()

    with refused("OW011", '"globex"', '"acme"'):
        producer.enqueue(tenant="globex")
    with refused("OW011", '"globex"'):
        producer.enqueue_many("ocr", [{}], tenant="globex")
    assert db.contents() == before
    assert db.job(producer.enqueue(tenant="acme")).tenant == "acme"


TOUCH = {
    "cancel": ("producer", lambda db, job: db.cancel(job)),
    "cancel by an operator": ("operator", lambda db, job: db.cancel(job)),
    "cancel naming the epoch": ("producer", lambda db, job: db.cancel(job, epoch=1)),
    "requeue": ("operator", lambda db, job: db.requeue(job)),
    "resolve": ("operator", lambda db, job: db.resolve(job)),
    "run_now": ("operator", lambda db, job: db.answer("run_now", job_id=job)),
}


def situations(db):
    """A job of every kind that a call may meet, of tenant acme."""
    cancelled = db.enqueue(tenant="acme")
    db.cancel(cancelled)
    resolved = db.dead_letter(tenant="acme")
    db.resolve(resolved)
    return {
        "ready": db.enqueue(tenant="acme"),
        "dead_letter": db.dead_letter(tenant="acme", priority=9),
        "running": db.running(tenant="acme", priority=9).job_id,
        "done": db.done(tenant="acme", priority=9),
        "cancelled": cancelled,
        "resolved": resolved,
    }


@pytest.mark.parametrize("tenant", ["globex", None, "acme2", "ACME", "%"])
@pytest.mark.parametrize(("role", "touch"), list(TOUCH.values()), ids=list(TOUCH))
def test_nobody_touches_the_job_of_another_tenant_whatever_its_state(db, as_, role, touch, tenant):
    jobs = situations(db)
    before = db.contents()
    other = as_(role, tenant)

    for job in jobs.values():
        # A job that lives no more is not found by run_now, whoever asks.
        with refused("OW006" if touch is TOUCH["run_now"][1] and job not in live(db) else "OW011"):
            touch(other, job)
    assert db.contents() == before


def live(db):
    return {row.id for row in db.run("select id from onceward.job_private")}


def test_a_tenant_handles_its_own_jobs(db, as_):
    jobs = situations(db)
    operator, producer = as_("operator", "acme"), as_("producer", "acme")

    assert producer.cancel(jobs["ready"]) == "cancelled"
    assert producer.cancel(jobs["running"]) == "cancelling"
    assert operator.requeue(jobs["dead_letter"]) == "ready"
    assert operator.requeue(jobs["resolved"]) == "ready"


def test_an_operator_of_all_tenants_handles_every_job(db, as_):
    jobs = situations(db)

    as_("operator", "*").resolve(jobs["dead_letter"])

    assert db.job(jobs["dead_letter"]).note == "paid by hand (by onceward_operator)"


def test_a_producer_cannot_act_for_all_tenants(db, as_):
    job = db.enqueue(tenant="acme")
    producer = as_("producer", "*")

    with refused("OW011"):
        producer.cancel(job)
    assert producer.run("select * from onceward.jobs") == []


@pytest.mark.parametrize("tenant", [None, "*"])
def test_an_owner_acts_for_everybody(db, as_, tenant):
    job = db.dead_letter(tenant="acme")
    owner = as_("owner", tenant)

    assert owner.requeue(job) == "ready"
    assert owner.cancel(job) == "cancelled"


def test_workers_serve_every_tenant_whatever_their_session_says(db, as_):
    jobs = {db.enqueue(tenant=tenant) for tenant in ("acme", "globex")}
    worker = as_("worker")

    claims = worker.claims(10)
    assert {claim.job_id for claim in claims} == jobs
    worker.complete(claims[0])
    assert worker.cancel(claims[1].job_id, epoch=claims[1].epoch) == "cancelled"


def test_what_a_role_did_is_recorded_under_its_name_also_inside_the_engine(db, as_):
    job = db.dead_letter("ocr", {"n": 1}, tenant="acme")
    operator = as_("operator", "acme")

    operator.requeue(job, payload={"n": 2})
    operator.answer("pause_lane", name="default")

    assert db.value("select edited_by from onceward.payload_edits") == "onceward_operator"
    assert db.value("select paused_by from onceward.lanes") == "onceward_operator"
    assert operator.value("select onceward.caller()") == "onceward_operator"


def test_an_attempt_and_an_edit_belong_to_the_tenant_of_their_job(db, as_):
    job = db.dead_letter("ocr", {"n": 1}, tenant="acme")
    db.requeue(job, payload={"n": 2})

    own, other = as_("auditor", "acme"), as_("auditor", "globex")
    for view in ("attempts", "payload_edits", "jobs"):
        assert len(own.run(f"select * from onceward.{view}")) == 1
        assert other.run(f"select * from onceward.{view}") == []


def test_counts_of_lanes_and_workers_show_the_own_tenant_only(db, as_):
    db.running(tenant="acme")
    db.enqueue(tenant="acme")
    db.enqueue(tenant="globex")

    own, none = as_("operator", "acme"), as_("operator")
    assert own.one("select ready, running from onceward.lanes") == (1, 1)
    assert none.one("select ready, running from onceward.lanes") == (0, 0)
    assert own.value("select running from onceward.workers") == 1
    assert none.value("select running from onceward.workers") == 0
