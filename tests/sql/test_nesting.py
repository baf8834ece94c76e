"""Values that are nested deeper than readers can follow."""

from __future__ import annotations

import json

import pytest
from psycopg.types.json import Jsonb


def nested(levels: int) -> Jsonb:
    """The last of so many levels below the payload is a number."""
    return Jsonb(None, dumps=lambda _: '{"a":' + "[" * (levels - 1) + "1" + "]" * (levels - 1) + "}")


def nested_value(levels: int) -> object:
    return json.loads(nested(levels).dumps(None))


@pytest.mark.parametrize("levels", [201, 202, 900, 3000])
def test_a_payload_that_is_nested_too_deeply_is_refused_wherever_it_comes_in(db, levels):
    dead, deep = db.dead_letter(), nested(levels)
    said = ("payload must not be nested deeper than 200 levels", "Flatten it")

    with db.refused("OW008", *said):
        db.call("enqueue", task="ocr", payload=deep)
    with db.refused("OW008", *said):
        db.call("enqueue", task="ocr", payload=deep, key="k", priority=3)
    with db.refused("OW008", *said):
        db.call("enqueue_many", task="ocr", payloads=[Jsonb({}), deep])
    with db.refused("OW008", *said):
        db.call("requeue", job_id=dead, payload=deep)
    with db.refused("OW008", *said):
        db.call("add_schedule", name="deep", task="ocr", spec="every 1 hour", payload=deep)
    with db.refused("OW008", *said):
        db.run(
            "select onceward.enqueue_workflow(jsonb_build_array(jsonb_build_object("
            "'name', 'a', 'task', 'ocr', 'payload', %s)))",
            deep,
        )
    assert db.answer("enqueue_plain", task="ocr", payload=deep) is None


def test_a_deep_payload_that_comes_compressed_from_a_table_is_refused(db):
    with db.refused("OW008", "nested deeper than 200 levels"):
        db.run(
            "with kept as materialized (select %s::jsonb as payload) "
            "select onceward.enqueue('ocr', payload) from kept",
            nested(900),
        )
    db.run("create temp table kept (payload jsonb)")
    db.run("insert into kept values (%s)", nested(900))
    assert db.run("select pg_column_compression(payload) is not null as is_so from kept")[0].is_so
    with db.refused("OW008", "nested deeper than 200 levels"):
        db.run("select onceward.enqueue('ocr', payload) from kept")
    with db.refused("OW008", "nested deeper than 200 levels"):
        db.run("select onceward.enqueue_many('ocr', array_agg(payload)) from kept")


def test_a_payload_of_two_hundred_levels_is_taken(db):
    db.call("enqueue", task="ocr", payload=nested(200))
    db.call("enqueue", task="ocr", payload=nested(200), key="k", priority=3)
    db.call("enqueue_many", task="ocr", payloads=[nested(200)])
    db.call("add_schedule", name="deep", task="ocr", spec="every 1 hour", payload=nested(200))


def brought(db, claim, value):
    """What workers and events bring, by the field that is blamed."""
    it = {"job_id": claim.job_id, "epoch": claim.epoch}
    return [
        ("payload", lambda: db.call("emit_event", name="paid", payload=value)),
        ("progress", lambda: db.call("progress", **it, progress=value)),
        ("result", lambda: db.call("finish_step", **it, name="scan", result=value)),
        ("result", lambda: db.call("exchange", worker_id=db.worker(), job_ids=[claim.job_id], epochs=[claim.epoch],
                                   results=[value])),
        ("result", lambda: db.call("complete", **it, result=value)),
    ]  # fmt: skip


@pytest.mark.parametrize("levels", [201, 900])
def test_what_workers_and_events_bring_is_refused_as_well_and_nothing_is_written(db, levels):
    claim = db.running("pack")

    for field, bring in brought(db, claim, nested(levels)):
        with db.refused("OW008", f"{field} must not be nested deeper than 200 levels", "Flatten it"):
            bring()

    job = db.job(claim.job_id)
    assert (job.state, job.result, job.progress) == ("running", None, None)
    assert (
        db.run("select * from onceward.step_private") == db.run("select * from onceward.event_private") == []
    )


@pytest.mark.parametrize(
    "call", ["finish_step({}, {}, 'scan', value)", "complete({}, {}, value)", "emit_event('paid', value)"]
)
def test_what_comes_compressed_from_a_table_is_refused_as_well(db, call):
    claim = db.running("pack")
    db.run("create temp table kept (value jsonb)")
    db.run("insert into kept values (%s)", nested(300))
    assert db.value("select pg_column_size(value) < 1024 from kept")

    with db.refused("OW008", "must not be nested deeper than 200 levels"):
        db.run(f"select onceward.{call.format(repr(str(claim.job_id)), claim.epoch)} from kept")


def test_what_workers_and_events_bring_may_have_two_hundred_levels(db):
    claim = db.running("pack")
    for _, bring in brought(db, claim, nested(200)):
        bring()
    job = db.job(claim.job_id)
    assert job.state == "done"
    assert job.result == job.progress == nested_value(200)
