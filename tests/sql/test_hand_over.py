"""A place of a concurrency key that a finish leaves: the next job begins at once where nothing else waits, else it stands in line."""

from __future__ import annotations

import pytest
from psycopg.types.json import Jsonb


@pytest.fixture
def held(db):
    """A running job of key k, and the next one, which waits for it."""

    def make(**options):
        claim = db.running(concurrency_key="k")
        return claim, db.enqueue(concurrency_key="k", **options)

    return make


def begun(rows):
    return [row.job_id for row in rows if row.outcome == "claimed"]


def test_the_next_of_the_key_begins_in_the_same_call(db, held):
    claim, waiting = held()

    (row,) = db.exchange([claim], lanes=["default"], max=5)

    assert (row.job_id, row.epoch, row.attempt, row.ready_seq) == (waiting, 1, 1, 0)
    job = db.job(waiting)
    assert (job.state, job.worker_id, job.started_at) == ("running", db.worker("a"), db.now())


def test_what_it_does_afterwards_is_fenced_like_everything_else(db, held):
    claim, waiting = held()
    (row,) = db.exchange([claim], lanes=["default"], max=1)

    with db.refused("OW001"):
        db.call("complete", job_id=waiting, epoch=row.epoch - 1)
    db.complete(row)
    assert db.state(waiting) == "done"


def test_handed_back_it_has_a_place_in_the_line(db, held):
    claim, waiting = held()
    db.exchange([claim], lanes=["default"], max=1)
    db.call("retire_worker", worker_id=db.worker("a"))

    assert (db.state(waiting), db.claim(worker="b").job_id) == ("ready", waiting)


def test_it_does_not_overtake_what_is_ready(db, held):
    claim, waiting = held()
    older = db.enqueue()

    assert begun(db.exchange([claim], lanes=["default"], max=1)) == [older]
    assert db.state(waiting) == "ready"


def test_with_room_for_both_the_ready_one_comes_first(db, held):
    claim, waiting = held()
    older = db.enqueue()

    assert begun(db.exchange([claim], lanes=["default"], max=2)) == [older, waiting]


def test_a_key_with_several_places_fills_them(db):
    claims = [db.running(concurrency_key="k", concurrency_limit=3) for _ in range(3)]
    waiting = [db.enqueue(concurrency_key="k", concurrency_limit=3) for _ in range(5)]

    rows = db.exchange(claims, lanes=["default"], max=10)

    assert begun(rows) == waiting[:3]
    assert [db.state(job) for job in waiting] == ["running"] * 3 + ["blocked"] * 2


def test_no_more_begin_than_the_worker_has_room_for(db):
    claims = [db.running(concurrency_key=f"k{n}") for n in range(3)]
    waiting = [db.enqueue(concurrency_key=f"k{n}") for n in range(3)]

    assert len(begun(db.exchange(claims, lanes=["default"], max=2))) == 2
    assert sorted(db.state(job) for job in waiting) == ["ready", "running", "running"]


@pytest.mark.parametrize("most", [0, 5])
def test_a_worker_that_takes_nothing_makes_it_ready(db, held, most):
    claim, waiting = held()

    assert begun(db.exchange([claim], lanes=["default"] if not most else [], max=most)) == []
    assert db.state(waiting) == "ready"


def test_a_worker_whose_lease_is_over_makes_it_ready(db, held):
    db.worker("a", lease="30 s")
    claim, waiting = held()
    db.clock.advance("30 s")

    assert [row.outcome for row in db.exchange([claim], lanes=["default"], max=1)] == ["expired"]
    assert db.state(waiting) == "ready"


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"lane": "mail"}, id="a lane that the worker does not serve"),
    ],
)
def test_what_the_worker_may_not_begin_becomes_ready(db, options):
    db.answer("declare_lanes", names=["mail"])
    tenant = {name: value for name, value in options.items() if name == "tenant"}
    claim = db.running(concurrency_key="k", **tenant)
    waiting = db.enqueue(concurrency_key="k", **options)

    assert begun(db.exchange([claim], lanes=["default"], max=5, floors=Jsonb({"default": {"0": 0}}))) == []
    assert db.state(waiting) == "ready"


def test_one_with_a_line_of_its_own_is_claimed_as_others_are(db):
    """Without another look, it would wait for the next poll: nobody sleeps who could be told."""
    claim = db.running(concurrency_key="k", tenant="acme")
    waiting = db.enqueue(concurrency_key="k", tenant="acme")

    assert begun(db.exchange([claim], lanes=["default"], max=5, floors=Jsonb({"default": {"0": 0}}))) == [
        waiting
    ]


def test_one_that_has_expired_is_not_begun(db, held):
    claim, waiting = held(expires_at=db.now() + db.value("select interval '10 s'"))
    db.clock.advance("20 s")

    assert begun(db.exchange([claim], lanes=["default"], max=5)) == []
    db.promote()
    assert db.state(waiting) == "cancelled"


def test_a_paused_lane_begins_nothing(db, held):
    claim, waiting = held()
    db.call("pause_lane", name="default")

    assert begun(db.exchange([claim], lanes=["default"], max=5)) == []
    assert db.state(waiting) == "ready"


def test_a_lane_with_a_cap_counts_it(db):
    db.call("add_lane", name="narrow", max_running=1)
    claim = db.running(concurrency_key="k", lane="narrow")
    waiting = db.enqueue(concurrency_key="k", lane="narrow")
    other = db.enqueue(lane="narrow", priority=5)

    assert begun(db.exchange([claim], lanes=["narrow"], max=5)) == [other]
    assert db.state(waiting) == "ready"


def test_a_workers_own_bound_on_a_lane_holds(db, held):
    claim, waiting = held()

    assert begun(db.exchange([claim], lanes=["default"], limits=[0], max=5)) == []
    assert db.state(waiting) == "ready"


def test_in_a_fully_audited_lane_both_transitions_have_their_entry(db, held):
    db.call("audit_lane", name="default", mode="all")
    claim, waiting = held()

    assert begun(db.exchange([claim], lanes=["default"], max=5)) == [waiting]
    kinds = [row.kind for row in db.run("select kind from onceward.audit_of(%s) order by seq", waiting)]
    assert kinds == ["job.enqueued", "job.admitted", "job.claimed"]
