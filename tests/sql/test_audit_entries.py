"""Entries of the audit log: what people and applications do, what stays out, who is named and who reads."""

from __future__ import annotations

from datetime import timedelta

import pytest
from psycopg.types.json import Jsonb

from tests.support.audit import entry, fill, kinds, last_seq, written
from tests.support.engine import refused
from tests.support.races import transaction

SECRET = "4711-hush"


@pytest.fixture
def all_of_it(db):
    db.call("audit_lane", name="default", mode="all")
    return db


# ------------------------------------------------------------ what people do


def scheduled(db):
    db.call("add_schedule", name="nightly", task="report", spec="0 3 * * *", payload={"secret": SECRET})


SCHEDULES = {
    "schedule.created": scheduled,
    "schedule.changed": lambda db: (
        scheduled(db), db.call("add_schedule", name="nightly", task="report", spec="0 4 * * *", payload={"secret": SECRET}),
    ),
    "schedule.paused": lambda db: (scheduled(db), db.call("pause_schedule", name="nightly", reason="holiday")),
    "schedule.resumed": lambda db: (
        scheduled(db), db.call("pause_schedule", name="nightly"), db.call("resume_schedule", name="nightly"),
    ),
    "schedule.run_now": lambda db: (scheduled(db), db.call("run_schedule_now", name="nightly")),
    "schedule.dropped": lambda db: (scheduled(db), db.call("drop_schedule", name="nightly")),
    "schedule.undeclared": lambda db: (
        db.call("declare_schedules", app="shop", schedules=Jsonb([{"name": "nightly", "task": "report", "spec": "0 3 * * *"}])),
        db.call("declare_schedules", app="shop", schedules=Jsonb([])),
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", SCHEDULES)
def test_what_is_done_to_a_schedule_is_in_the_log_without_its_payload(db, kind):
    SCHEDULES[kind](db)

    found = entry(db)
    assert (found.kind, found.entity_type, found.entity_id, found.tenant) == (
        kind,
        "schedule",
        "nightly",
        "default",
    )
    assert SECRET not in str(db.run("select e::text from onceward.audit_log as e"))


def test_a_changed_schedule_tells_what_was_changed_and_nothing_else(db):
    SCHEDULES["schedule.changed"](db)
    assert (entry(db).before, entry(db).after) == ({"spec": "0 3 * * *"}, {"spec": "0 4 * * *"})


def test_what_changes_nothing_is_not_in_the_log(db):
    scheduled(db)
    db.call("pause_lane", name="default")
    db.call("add_lane", name="mail", max_payload_bytes=2048)
    acts = {
        "add_schedule": {
            "name": "nightly",
            "task": "report",
            "spec": "0 3 * * *",
            "payload": {"secret": SECRET},
        },
        "resume_schedule": {"name": "nightly"},
        "pause_lane": {"name": "default"},
        "declare_lanes": {"names": ["mail", "default"]},
        "add_lane": {"name": "mail", "max_payload_bytes": 2048},
        "audit_lane": {"name": "mail", "mode": "ends"},
    }
    assert written(db, lambda: [db.call(name, **given) for name, given in acts.items()]) == []


def test_what_is_done_to_a_lane_is_in_the_log(db):
    db.call("add_lane", name="mail")
    db.call("add_lane", name="mail", max_payload_bytes=2048)
    db.call("pause_lane", name="mail", reason="provider is down")
    db.call("resume_lane", name="mail")
    db.call("audit_lane", name="mail", mode="all")

    rows = db.run("select kind, entity_id, before, after, message from onceward.audit_log order by seq")
    assert [(row.kind, row.entity_id) for row in rows] == [
        ("lane.created", "mail"), ("lane.changed", "mail"), ("lane.paused", "mail"), ("lane.resumed", "mail"),
        ("lane.changed", "mail"),
    ]  # fmt: skip
    assert (rows[1].before, rows[1].after) == ({"max_payload_bytes": 262144}, {"max_payload_bytes": 2048})
    assert rows[2].message == "provider is down"
    assert (rows[4].before, rows[4].after) == ({"audit": "ends"}, {"audit": "all"})


def test_a_check_that_is_set_is_in_the_log(db):
    db.run("create function public.is_fine(uuid) returns text language sql as 'select null::text'")
    db.run("select onceward.set_resolve_check('ocr', 'public.is_fine(uuid)')")
    assert (entry(db).kind, entry(db).entity_id) == ("task.changed", "ocr")
    assert entry(db).after == {"resolve_check": "public.is_fine"}


def uncertain(db):
    db.call("declare_lanes", names=["deliveries"])
    (made,) = db.call("deliver", kind="slack", key="k", content={"text": SECRET})
    claim = db.claim(lanes=["deliveries"])
    db.of_job("begin_delivery", claim)
    db.of_job("settle_delivery", claim, outcome="uncertain", message=SECRET)
    return made.delivery_id


def test_a_delivery_that_ends_badly_and_what_a_person_decides_are_in_the_log(db):
    delivery = uncertain(db)
    assert kinds(db)[-2:] == ["job.dead_letter", "delivery.uncertain"]

    acts = written(
        db, lambda: db.call("decide_delivery", delivery_id=delivery, decision="abandon", note="asked them")
    )

    assert acts == ["delivery.decided", "job.resolved"]
    row = db.one("select * from onceward.audit_log where kind = 'delivery.decided'")
    assert (row.before, row.after, row.message) == (
        {"state": "uncertain"},
        {"state": "abandoned"},
        "asked them",
    )
    assert SECRET not in str(db.run("select e::text from onceward.audit_log as e"))


def test_payloads_results_and_messages_of_errors_are_never_in_the_log(all_of_it):
    db = all_of_it
    claim = db.running("ocr", {"secret": SECRET})
    db.fail(claim, f"cannot read {SECRET}", traceback=SECRET)
    job = db.dead_letter("ocr", {"secret": SECRET}, message=SECRET)
    db.requeue(job, payload={"secret": SECRET, "n": 1})
    db.complete(db.claim(), {"secret": SECRET})

    assert SECRET not in str(db.run("select e::text from onceward.audit_log as e"))
    assert db.one("select meta from onceward.audit_log where kind = 'job.requeued'").meta["payload_edited"]


def test_a_requeue_tells_from_which_state(db):
    job = db.enqueue()
    db.cancel(job, "no longer wanted")
    assert entry(db).message == "no longer wanted"
    db.requeue(job)
    assert (entry(db).before, entry(db).after) == ({"state": "cancelled"}, {"state": "ready"})


# ------------------------------------------------------------ batches, and the entries of one job


def test_a_batch_of_successful_ends_is_one_entry_per_tenant(db):
    for tenant in ("acme", "globex", "acme"):
        db.enqueue(tenant=tenant)
    claims = db.claims(3)

    assert written(db, lambda: db.exchange(claims)) == ["job.done", "job.done"]

    rows = db.run("select tenant, cardinality(jobs) as n from onceward.audit_log order by tenant")
    assert [tuple(row) for row in rows] == [("acme", 2), ("globex", 1)]


def test_the_entries_of_a_job_are_found_among_those_of_batches(all_of_it):
    db = all_of_it
    ids = [row.job_id for row in db.enqueue_many("ocr", [{}] * 3)]
    db.clock.advance(timedelta(minutes=1))
    claims = db.claims(3)
    db.clock.advance(timedelta(minutes=1))
    db.fail(claims[0])
    db.exchange(claims[1:])
    db.clock.advance(timedelta(minutes=10))
    db.exchange([db.claim()])

    assert [row.kind for row in db.call("audit_of", job_id=ids[0])] == [
        "job.enqueued", "job.claimed", "job.failed", "job.due", "job.claimed", "job.done",
    ]  # fmt: skip
    assert [row.kind for row in db.call("audit_of", job_id=ids[1])] == [
        "job.enqueued",
        "job.claimed",
        "job.done",
    ]


def test_a_finish_that_came_too_late_is_not_in_the_log(db):
    claim = db.running()
    db.lose()
    assert written(db, lambda: db.exchange([claim])) == []


def test_an_entry_is_committed_with_what_it_tells_or_not_at_all(all_of_it):
    before = last_seq(all_of_it)
    with transaction(all_of_it) as undone:
        undone.enqueue()
        undone.call("pause_lane", name="default")
        undone.conn.rollback()
    assert kinds(all_of_it, after=before) == []


# ------------------------------------------------------------ who


def test_the_role_is_that_of_the_caller_and_the_actor_what_the_application_says(db):
    operator = db.on(db.connect(role="onceward_operator", tenant="*"))
    operator.call("pause_lane", name="default")
    assert (entry(db).actor, entry(db).role) == ("onceward_operator", "onceward_operator")

    with operator.conn.transaction():
        operator.run("select set_config('onceward.actor', 'jane@example.com', true)")
        operator.call("resume_lane", name="default")
    assert (entry(db).actor, entry(db).role) == ("jane@example.com", "onceward_operator")


def test_an_entry_of_an_application_cannot_pass_for_one_of_the_engine(db):
    db.call("record_event", kind="audit.dropped", meta={"before": "9999-01-01"})
    assert entry(db).source == "application"


# ------------------------------------------------------------ record_event


def test_an_application_records_in_its_own_transaction(db):
    job = db.enqueue()
    producer = db.on(db.connect(role="onceward_producer", tenant="acme"))
    seq = producer.answer(
        "record_event", kind="invoice.approved", message="over the limit", entity_type="invoice", entity_id="42",
        before={"state": "open"}, after={"state": "approved"}, meta={"limit": 100}, job_id=job, actor="jane",
    )  # fmt: skip

    found = entry(db)
    assert (found.seq, found.kind, found.source, found.tenant) == (
        seq,
        "invoice.approved",
        "application",
        "acme",
    )
    assert (found.entity_type, found.entity_id, found.job_id) == ("invoice", "42", job)
    assert (found.before, found.after, found.meta) == (
        {"state": "open"},
        {"state": "approved"},
        {"limit": 100},
    )
    assert (found.actor, found.role) == ("jane", "onceward_producer")


BAD = {
    "no kind": ({"kind": None}, "kind"),
    "empty kind": ({"kind": ""}, "kind"),
    "kind with a space": ({"kind": "a b"}, "kind"),
    "long message": ({"message": "x" * 2001}, "message"),
    "long entity": ({"entity_type": "t", "entity_id": "x" * 501}, "entity_id"),
    "long actor": ({"actor": "x" * 201}, "actor"),
    "id of nothing": ({"entity_id": "42"}, "entity_type"),
    "large meta": ({"meta": {"a": "x" * 17000}}, "meta"),
    "tenant *": ({"tenant": "*"}, "tenant"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_record_that_is_not_one_is_refused(db, name):
    given, fragment = BAD[name]
    with db.refused("OW008", fragment):
        db.call("record_event", **{"kind": "note", **given})


def test_a_record_for_another_tenant_is_refused(db):
    producer = db.on(db.connect(role="onceward_producer", tenant="acme"))
    with refused("OW011", "acme"):
        producer.call("record_event", kind="note", tenant="globex")


# ------------------------------------------------------------ who reads


@pytest.mark.parametrize("role", ["worker", "operator", "auditor"])
def test_a_reader_sees_the_entries_of_its_tenant(db, role):
    fill(db, 1, tenant="acme")
    fill(db, 2, tenant="globex")
    db.call("pause_lane", name="default")
    for tenant, seen in {"acme": 1, "globex": 2, "*": 4, "": 0}.items():
        reader = db.on(db.connect(role=f"onceward_{role}", tenant=tenant))
        assert reader.value("select count(*) from onceward.audit_log") == seen


def test_a_producer_reads_nothing_of_the_log(db):
    producer = db.on(db.connect(role="onceward_producer", tenant="acme"))
    for relation in ("audit_log", "audit_private", "seals", "seal_private", "seal_leaf_private"):
        with refused("42501"):
            producer.run(f"select * from onceward.{relation}")


def test_the_history_of_a_job_is_for_its_tenant(db):
    job = db.dead_letter(tenant="acme")
    for tenant, seen in {"acme": 1, "globex": 0, "*": 1}.items():
        assert (
            len(db.on(db.connect(role="onceward_auditor", tenant=tenant)).call("audit_of", job_id=job))
            == seen
        )


def test_a_lane_that_does_not_exist_has_no_mode(db):
    with db.refused("OW002", "nowhere"):
        db.call("audit_lane", name="nowhere", mode="all")


@pytest.mark.parametrize("mode", [None, "off", "none", "ALL"])
def test_the_log_cannot_be_switched_off(db, mode):
    with db.refused("OW008", "must be ends or all"):
        db.call("audit_lane", name="default", mode=mode)
