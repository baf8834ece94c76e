"""enqueue_many with a concurrency key for each job: what enqueue makes of each, with one question for each key."""

from __future__ import annotations

from datetime import timedelta

import pytest
from psycopg.types.json import Jsonb

from tests.support.audit import last_seq

KEYS = ["a", "b", None, "a", None, "b", "c", "a"]
WAYS = {
    "at once": lambda db: {},
    "with a limit": lambda db: {"concurrency_limit": 3},
    "for later": lambda db: {"run_at": db.now() + timedelta(hours=1), "expires_at": db.now() + timedelta(days=1)},
    "for a time that has passed": lambda db: {"run_at": db.now() - timedelta(hours=1)},
    "after another job": lambda db: {"after": [db.enqueue("first")], "after_policy": "ignore"},
    "of a tenant": lambda db: {"tenant": "acme"},
    "of a workflow": lambda db: {"workflow_id": db.enqueue("first")},
    "in a lane that is fair": lambda db: (
        db.call("add_lane", name="mail", fair=True),
        {"lane": "mail", "tenant": "acme"},
    )[1],
    "under a limit": lambda db: (
        db.call("set_limit", name="api", slots=5),
        {"uses": Jsonb([{"limit": "api"}]), "tenant": "acme"},
    )[1],
    "above a bound that defers": lambda db: over_its_bound(db, "defer"),
    "above a bound that signals": lambda db: over_its_bound(db, "signal"),
}  # fmt: skip


def over_its_bound(db, over):
    db.call("set_bound", lane="default", max_depth=2, over=over, defer_by="10 min")
    db.enqueue_many("first", [{}] * 3)
    db.clock.advance("2 s")
    db.promote()
    return {}


def rows(db, ids):
    """All there is of these jobs but what no two have in common."""
    found = db.run(
        "select to_jsonb(j) - '{id,ready_seq}'::text[] || jsonb_build_object('in line', ready_seq is not null)"
        " from onceward.job_private as j join unnest(%s::uuid[]) with ordinality as u (id, i) using (id) order by u.i",
        ids,
    )
    return [row[0] for row in found]


def asked(db):
    return sorted(
        tuple(row) for row in db.run("select tenant, concurrency_key from onceward.admission_private")
    )


@pytest.mark.parametrize("way", list(WAYS.values()), ids=list(WAYS))
def test_each_job_is_what_enqueue_would_have_made_of_it(db, way):
    options = way(db)
    limit = options.pop("concurrency_limit", 1)
    before = asked(db)
    many = db.enqueue_many(
        "ocr", [{"n": 1}] * len(KEYS), concurrency_keys=KEYS, concurrency_limit=limit, **options
    )
    asked_by_many = asked(db)
    db.run("delete from onceward.admission_private")
    each = [
        db.enqueued(
            "ocr", {"n": 1}, concurrency_key=key, **({"concurrency_limit": limit} if key else {}), **options
        )
        for key in KEYS
    ]

    assert [tuple(row)[1:] for row in many] == [tuple(row)[1:] for row in each]
    assert rows(db, [row.job_id for row in many]) == rows(db, [row.job_id for row in each])
    # Once for each key.
    assert asked_by_many == sorted([*before, *set(asked(db))])


def test_keys_in_turn_let_one_job_of_each_run(db):
    jobs = [row.job_id for row in db.enqueue_many(payloads=[{}] * 6, concurrency_keys=["a", "b", "c"] * 2)]

    first = db.claims(10)
    assert [claim.job_id for claim in first] == jobs[:3]
    db.exchange(first)
    assert [claim.job_id for claim in db.claims(10)] == jobs[3:]


def test_jobs_without_a_key_wait_for_nobody(db):
    jobs = [row.job_id for row in db.enqueue_many(payloads=[{}] * 4, concurrency_keys=["a", None, "a", None])]

    assert [db.state(job) for job in jobs] == ["blocked", "ready", "blocked", "ready"]
    assert {claim.job_id for claim in db.claims(10)} == {jobs[0], jobs[1], jobs[3]}


def test_jobs_that_were_there_ask_for_nothing(db):
    options = {"keys": ["x", "y"], "concurrency_keys": ["a", "b"]}
    db.enqueue_many(payloads=[{}] * 2, **options)
    db.run("delete from onceward.admission_private")

    again = db.enqueue_many(payloads=[{}] * 3, keys=["y", "z", "x"], concurrency_keys=["b", "c", "a"])

    assert [row.created for row in again] == [False, True, False]
    assert asked(db) == [("default", "c")]


@pytest.mark.parametrize("count", [0, 2])
def test_a_limit_goes_with_keys_that_are_all_null(db, count):
    jobs = db.enqueue_many(payloads=[{}] * count, concurrency_keys=[None] * count, concurrency_limit=5)

    assert [(db.state(row.job_id), db.job(row.job_id).concurrency_limit) for row in jobs] == [
        ("ready", None)
    ] * count


def test_the_set_takes_them_as_well(db):
    (found,) = db.call("enqueue_set", task="ocr", payloads=[Jsonb({})] * 3, concurrency_keys=["a", None, "a"])

    assert [db.state(job) for job in found.job_ids] == ["blocked", "ready", "blocked"]


def test_jobs_due_later_ask_when_they_are_due(db):
    jobs = db.enqueue_many(
        payloads=[{}] * 3, concurrency_keys=["a", "a", None], run_at=db.now() + timedelta(hours=1)
    )
    assert asked(db) == []
    db.clock.advance("1 h")
    db.promote()

    assert sorted(db.state(row.job_id) for row in jobs) == ["blocked", "ready", "ready"]


def test_a_lane_above_its_bound_rejects_them_all(db):
    over_its_bound(db, "reject")
    before = asked(db)

    found = db.enqueue_many(payloads=[{}] * 2, concurrency_keys=["a", None])

    assert [(row.job_id, row.answer) for row in found] == [(None, "rejected")] * 2
    assert asked(db) == before


def test_a_lane_of_which_every_transition_is_in_the_log_has_an_entry_for_each_state(db):
    db.call("audit_lane", name="default", mode="all")
    before = last_seq(db)
    jobs = [row.job_id for row in db.enqueue_many(payloads=[{}] * 4, concurrency_keys=["a", None, "b", None])]

    found = db.run("select kind, after, jobs from onceward.audit_log where seq > %s order by seq", before)
    assert [(entry.kind, entry.after, set(entry.jobs)) for entry in found] == [
        ("job.enqueued", {"state": "blocked"}, {jobs[0], jobs[2]}),
        ("job.enqueued", {"state": "ready"}, {jobs[1], jobs[3]}),
    ]
