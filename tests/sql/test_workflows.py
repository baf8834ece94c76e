"""Workflows: jobs enqueued as one, cancelled and requeued as one."""

from __future__ import annotations

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.support.engine import refused
from tests.support.races import Rival, transaction

DIAMOND = (
    {"name": "scan", "payload": {"n": 1}},
    {"name": "text", "after": ["scan"], "priority": 5},
    {"name": "photo", "after": ["scan"]},
    {"name": "report", "after": ["text", "photo"], "task": "report"},
)


def flow(db, **options):
    """The jobs of the diamond, and the id of the workflow."""
    jobs = db.workflow(*DIAMOND, **options)
    return jobs, db.job(jobs["scan"]).workflow_id


def named(db, jobs):
    return {name: db.state(job) for name, job in jobs.items()}


def test_every_node_runs_after_those_that_it_names(db):
    jobs, _ = flow(db)
    names = {job: name for name, job in jobs.items()}
    order = []
    db.promote()
    while claims := db.claims(10):
        order.append({names[claim.job_id] for claim in claims})
        db.exchange(claims)
        db.promote()

    assert order == [{"scan"}, {"text", "photo"}, {"report"}]


def test_nodes_come_back_in_the_order_in_which_they_were_named(db):
    rows = db.call("enqueue_workflow", nodes=Jsonb([{"task": "ocr", **node} for node in reversed(DIAMOND)]))

    assert [row.node for row in rows] == ["report", "photo", "text", "scan"]


def test_nodes_have_the_options_of_enqueue(db):
    options = {
        "lane": "default", "priority": 3, "timeout": "5 min", "max_attempts": 2, "retry": {"waits": [1]},
        "concurrency_key": "k", "concurrency_limit": 4, "run_at": "2030-01-01T00:00:00Z", "payload": {"n": 1},
    }  # fmt: skip
    jobs = db.workflow(
        {"name": "a", **options}, {"name": "b", "after": ["a"], "after_policy": "ignore"}, tenant="acme"
    )
    job = db.job(jobs["a"])

    assert (job.priority, job.timeout.total_seconds(), job.max_attempts, job.retry) == (
        3,
        300,
        2,
        {"waits": [1]},
    )
    assert (job.concurrency_key, job.concurrency_limit, job.run_at.year, job.payload) == (
        "k",
        4,
        2030,
        {"n": 1},
    )
    assert (job.tenant, job.node) == ("acme", "a")
    assert db.job(jobs["b"]).after_policy == "ignore"


CYCLES = {
    "of one": ([("a", ["a"])], "a waits for a"),
    "of two": ([("a", ["b"]), ("b", ["a"])], "a waits for b waits for a"),
    "behind others": (
        [("start", []), ("b", ["start", "d"]), ("c", ["b"]), ("d", ["c"]), ("end", ["d"])],
        "waits for",
    ),
}


@pytest.mark.parametrize(("nodes", "named_as"), list(CYCLES.values()), ids=list(CYCLES))
def test_a_cycle_is_refused_and_named(db, nodes, named_as):
    with db.refused("OW012", "cycle", named_as):
        db.workflow(*({"name": name, "after": after} for name, after in nodes))


def test_the_named_cycle_has_no_more_than_the_cycle(db):
    with pytest.raises(psycopg.Error) as caught:
        db.workflow(*({"name": name, "after": after} for name, after in CYCLES["behind others"][0]))
    path = caught.value.diag.message_primary.removeprefix("workflow has a cycle: ").split(" waits for ")

    assert path[0] == path[-1]
    assert sorted(path[1:]) == ["b", "c", "d"]


BAD = {
    "nothing": (None, "list of 1 to 1000"),
    "an object": ({"a": 1}, "list of 1 to 1000"),
    "no nodes": ([], "list of 1 to 1000"),
    "too many nodes": ([{"name": str(n), "task": "ocr"} for n in range(1001)], "list of 1 to 1000"),
    "a node that is no object": (["a"], "objects with a name"),
    "a node without a name": ([{"task": "ocr"}], "objects with a name"),
    "an empty name": ([{"name": "", "task": "ocr"}], "objects with a name"),
    "a name with a line break": ([{"name": "a\nb", "task": "ocr"}], "objects with a name"),
    "a node without a task": ([{"name": "a"}], "objects with a name"),
    "after that is no list": ([{"name": "a", "task": "ocr", "after": "b"}], "list of names"),
    "an unknown field": ([{"name": "a", "task": "ocr", "colour": 1}], "colour"),
    "a name twice": ([{"name": "a", "task": "ocr"}] * 2, "names of their own"),
    "an unknown name": ([{"name": "a", "task": "ocr", "after": ["b"]}], 'after of node "a"'),
    "a bad task": ([{"name": "a", "task": "not a task"}], "task"),
    "a bad policy": (
        [{"name": "a", "task": "ocr"}, {"name": "b", "task": "ocr", "after": ["a"], "after_policy": "hope"}],
        "after_policy",
    ),
    "a priority that is no number": ([{"name": "a", "task": "ocr", "priority": "high"}], 'node "a"'),
    "a time that is none": ([{"name": "a", "task": "ocr", "run_at": "soon"}], 'node "a"'),
    "a timeout that is none": ([{"name": "a", "task": "ocr", "timeout": "long"}], 'node "a"'),
    "a number that is too large": ([{"name": "a", "task": "ocr", "max_attempts": 2**40}], 'node "a"'),
}


@pytest.mark.parametrize(("nodes", "fragment"), list(BAD.values()), ids=list(BAD))
def test_bad_nodes_are_refused(db, nodes, fragment):
    with db.refused("OW008", fragment):
        db.call("enqueue_workflow", nodes=None if nodes is None else Jsonb(nodes))


def test_an_unknown_lane_refuses_the_whole(db):
    with db.refused("OW002"):
        db.workflow({"name": "a"}, {"name": "b", "after": ["a"], "lane": "nowhere"})


def test_a_long_chain_is_enqueued(db):
    nodes = [{"name": f"n{i}", "after": [f"n{i - 1}"] if i else []} for i in range(1000)]

    assert len(db.workflow(*reversed(nodes))) == 1000


# ------------------------------------------------------------ failure, requeue, cancel


def keyed(db, key="k", nodes=DIAMOND, **options):
    return db.call(
        "enqueue_workflow", nodes=Jsonb([{"task": "ocr", **node} for node in nodes]), key=key, **options
    )


def test_the_answer_names_the_workflow(db):
    rows = keyed(db, None)

    assert {row.workflow_id for row in rows} == {db.job(row.job_id).workflow_id for row in rows}
    assert {row.created for row in rows} == {True}


def test_the_same_key_gives_the_same_workflow_also_when_it_has_ended(db):
    first = keyed(db)
    again = keyed(db)
    db.settle()
    later = keyed(db)

    assert [row[:3] for row in first] == [row[:3] for row in again] == [row[:3] for row in later]
    assert {row.created for row in [*again, *later]} == {False}
    assert db.value("select count(*) from onceward.jobs") == len(DIAMOND)


def test_a_child_that_bears_the_name_of_no_node_is_not_taken_for_one(db):
    first = keyed(db)
    claim = db.claim()
    db.spawn(claim, [{}, {}])

    assert [row.job_id for row in keyed(db)] == [row.job_id for row in first]


def test_the_key_of_a_workflow_is_free_again_when_its_window_is_over(db):
    first = keyed(db, key_window="1 hour")
    db.clock.advance("59 min")
    assert keyed(db, key_window="1 hour")[0].workflow_id == first[0].workflow_id
    db.clock.advance("2 min")

    assert keyed(db, key_window="1 hour")[0].created


def test_the_same_key_with_other_nodes_is_refused(db):
    first = keyed(db)

    with db.refused("OW005", "workflow with different nodes", str(first[0].workflow_id)):
        keyed(db, nodes=DIAMOND[:1])


def test_keys_of_workflows_and_jobs_and_tenants_are_apart(db):
    db.enqueue("ocr", key="k")
    db.enqueue("ocr", key="k", tenant="red")

    assert keyed(db)[0].created
    assert keyed(db, tenant="red")[0].created
    assert not keyed(db, tenant="red")[0].created


@pytest.mark.parametrize("window", ["live", "soon", None])
def test_a_window_that_a_workflow_cannot_have_is_refused(db, window):
    with db.refused("OW008", "key_window"):
        keyed(db, key_window=window)


def test_a_workflow_that_is_refused_leaves_its_key_free(db):
    with refused("OW002"):
        keyed(db, nodes=({"name": "a", "lane": "nowhere"},))

    assert keyed(db)[0].created


@pytest.mark.race
@pytest.mark.parametrize("commits", [True, False], ids=["commits", "rolls back"])
def test_of_two_workflows_with_one_key_there_is_one_also_when_the_winner_rolls_back(db, commits):
    with transaction(db) as winner:
        first = keyed(winner)
        loser = Rival(db, keyed).blocked()
        (winner.conn.commit if commits else winner.conn.rollback)()
        second = loser.answer()

    assert second[0].created is not commits
    assert (second[0].workflow_id == first[0].workflow_id) is commits
    assert db.value("select count(*) from onceward.jobs") == len(DIAMOND)


def test_a_failed_node_stops_what_waits_for_it(db):
    jobs, workflow = flow(db)
    db.complete(db.claim())
    db.promote()
    text, photo = db.claims(2)
    assert text.job_id == jobs["text"]
    db.fail(text, permanent=True)
    db.complete(photo)
    db.promote()

    assert named(db, jobs) == {"scan": "done", "text": "dead_letter", "photo": "done", "report": "cancelled"}
    (row,) = db.run("select * from onceward.workflows where id = %s", workflow)
    assert (row.state, row.jobs, row.done, row.live, row.dead_letters, row.stopped) == (
        "dead_letter",
        4,
        2,
        0,
        1,
        1,
    )


def test_a_requeued_workflow_runs_what_is_missing_in_order(db):
    jobs, workflow = flow(db)
    db.fail(db.claim(), permanent=True)
    for _ in range(3):
        db.promote()
    assert set(named(db, jobs).values()) == {"dead_letter", "cancelled"}

    assert db.answer("requeue_workflow", workflow_id=workflow) == 4
    assert named(db, jobs) == {"scan": "ready", "text": "blocked", "photo": "blocked", "report": "blocked"}
    db.promote()
    assert [claim.job_id for claim in db.claims(9)] == [jobs["scan"]]
    db.complete(db.one("select id as job_id, epoch from onceward.jobs where state = 'running'"))
    db.settle()
    assert set(named(db, jobs).values()) == {"done"}


def test_what_is_done_is_not_requeued(db):
    jobs, workflow = flow(db)
    db.complete(db.claim())
    db.promote()
    for claim in db.claims(2):
        db.fail(claim, permanent=True)
    db.promote()

    assert db.answer("requeue_workflow", workflow_id=workflow) == 3
    db.settle()
    assert set(named(db, jobs).values()) == {"done"}
    assert [len(db.attempts(jobs[name])) for name in ("scan", "text", "report")] == [1, 2, 1]
    assert db.answer("requeue_workflow", workflow_id=workflow) == 0


def test_a_job_that_joined_others_joins_them_again_after_a_requeue(db):
    parent = db.running()
    (child,) = db.spawn(parent)
    db.join(parent, [child])
    db.promote()
    db.fail(db.claim(), permanent=True)
    db.promote()
    db.fail(db.claim(), permanent=True)

    assert db.answer("requeue_workflow", workflow_id=parent.job_id) == 2
    claims = {claim.job_id: claim for claim in db.claims(2)}
    db.join(claims[parent.job_id], [child])
    db.promote()
    assert db.state(parent.job_id) == "blocked"
    db.complete(claims[child])
    assert db.state(parent.job_id) == "ready"


def test_a_compensation_that_was_not_needed_is_decided_anew(db):
    jobs = db.workflow(
        {"name": "pay"},
        {"name": "ship", "after": ["pay"]},
        {"name": "refund", "after": ["ship"], "after_policy": "compensate"},
    )
    workflow = db.job(jobs["pay"]).workflow_id
    db.complete(db.claim())
    db.promote()
    db.fail(db.claim(), permanent=True)
    db.promote()
    assert db.state(jobs["refund"]) == "ready"
    db.cancel(jobs["refund"])
    assert db.answer("requeue_workflow", workflow_id=workflow) == 2
    db.settle()

    assert named(db, jobs) == {"pay": "done", "ship": "done", "refund": "cancelled"}
    assert "not needed" in db.job(jobs["refund"]).note


def test_a_cancelled_workflow_stops_as_a_whole(db):
    jobs, workflow = flow(db)
    running = db.claim()
    assert db.answer("cancel_workflow", workflow_id=workflow, reason="no longer needed") == 4
    assert named(db, jobs) == {
        "scan": "running",
        "text": "cancelled",
        "photo": "cancelled",
        "report": "cancelled",
    }
    assert db.heartbeat().cancel_job_ids == [running.job_id]
    db.cancel(running.job_id, epoch=running.epoch)
    db.promote()

    assert set(named(db, jobs).values()) == {"cancelled"}
    assert {db.job(job).note for job in jobs.values()} == {"no longer needed"}
    (row,) = db.run("select * from onceward.workflows where id = %s", workflow)
    assert (row.state, row.stopped, row.finished_at) == ("cancelled", 4, db.now())
    assert db.answer("cancel_workflow", workflow_id=workflow) == 0


def test_dead_letters_are_left_when_a_workflow_is_cancelled(db):
    dead = db.dead_letter()
    waits = db.enqueue(after=[dead], after_policy="ignore")

    assert db.answer("cancel_workflow", workflow_id=dead) == 1
    assert (db.state(dead), db.state(waits)) == ("dead_letter", "cancelled")


def test_jobs_that_wait_or_were_spawned_belong_to_the_workflow_of_the_first(db):
    first = db.running()
    (child,) = db.spawn(first)
    then = db.enqueue(after=[first.job_id])
    last = db.enqueue(after=[then])
    db.promote()
    grandchild_parent = db.claim()
    (grandchild,) = db.spawn(grandchild_parent)

    assert {db.job(job).workflow_id for job in (first.job_id, child, then, last, grandchild)} == {
        first.job_id
    }
    members = db.run("select job_id from onceward.workflow_members where workflow_id = %s", first.job_id)
    assert {row.job_id for row in members} == {first.job_id, child, then, last, grandchild}
    assert db.answer("cancel_workflow", workflow_id=first.job_id) == 5


def test_a_job_of_its_own_is_no_workflow_in_the_view(db):
    db.done()
    db.enqueue()

    assert db.run("select * from onceward.workflows") == []


def test_a_workflow_is_done_when_all_its_jobs_are(db):
    _, workflow = flow(db)
    (row,) = db.run("select * from onceward.workflows")
    assert (row.id, row.state, row.finished_at) == (workflow, "running", None)
    db.clock.advance("1 min")
    db.settle()

    (row,) = db.run("select * from onceward.workflows")
    assert (row.state, row.done, row.finished_at) == ("done", 4, db.now())


# ------------------------------------------------------------ tenants


@pytest.mark.parametrize("function", ["cancel_workflow", "requeue_workflow"])
def test_an_unknown_workflow_is_refused(db, function):
    unknown = db.value("select onceward.new_id()")
    with db.refused("OW006", str(unknown)):
        db.answer(function, workflow_id=unknown)
    with db.refused("OW006", "workflow"):
        db.answer(function, workflow_id=db.value("select null::uuid"))


@pytest.mark.parametrize("function", ["cancel_workflow", "requeue_workflow"])
def test_a_workflow_of_another_tenant_is_refused(db, function):
    _, workflow = flow(db, tenant="acme")
    for tenant in ("globex", None):
        stranger = db.on(db.connect(role="onceward_operator", tenant=tenant))
        with refused("OW011"):
            stranger.answer(function, workflow_id=workflow)
    assert set(db.states().values()) == {"ready", "blocked"}


@pytest.mark.parametrize("tenant", ["acme", "*"])
def test_an_operator_cancels_a_workflow_of_the_tenants_he_acts_for(db, tenant):
    jobs, workflow = flow(db, tenant="acme")
    operator = db.on(db.connect(role="onceward_operator", tenant=tenant))

    assert operator.answer("cancel_workflow", workflow_id=workflow) == 4
    assert set(named(db, jobs).values()) == {"cancelled"}


def test_a_stranger_who_names_a_workflow_neither_reaches_nor_breaks_it(db):
    jobs, workflow = flow(db, tenant="acme")
    intruder = db.on(db.connect(role="onceward_operator", tenant="globex"))
    mine = intruder.enqueue(workflow_id=workflow)

    assert intruder.answer("cancel_workflow", workflow_id=workflow) == 1
    assert db.state(mine) == "cancelled"
    assert set(named(db, jobs).values()) == {"ready", "blocked"}
    again = intruder.enqueue(workflow_id=workflow)
    owner = db.on(db.connect(role="onceward_operator", tenant="acme"))
    assert owner.answer("cancel_workflow", workflow_id=workflow) == 4
    assert db.state(again) == "ready"


def test_a_producer_of_a_tenant_enqueues_for_that_tenant(db):
    producer = db.on(db.connect(role="onceward_producer", tenant="acme"))
    jobs = producer.workflow(*DIAMOND)

    assert {db.job(job).tenant for job in jobs.values()} == {"acme"}
    with refused("OW011"):
        producer.workflow(*DIAMOND, tenant="globex")
