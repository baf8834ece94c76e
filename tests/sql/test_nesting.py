"""Payloads that are nested deeper than readers can follow."""

from __future__ import annotations

import pytest
from psycopg.types.json import Jsonb


def nested(levels: int) -> Jsonb:
    """The last of so many levels below the payload is a number."""
    return Jsonb(None, dumps=lambda _: '{"a":' + "[" * (levels - 1) + "1" + "]" * (levels - 1) + "}")


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
