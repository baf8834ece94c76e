"""Jobs that wait for others, with every crossing of transactions: nobody waits for ever, and no caller stops a worker."""

from __future__ import annotations

import random

import pytest

from tests.support.engine import refused
from tests.support.races import Rival, deadlocks, together, transaction

pytestmark = pytest.mark.race

ENDED = {"done", "cancelled", "dead_letter", "resolved"}
ENDS = {
    "done": lambda db, claim: db.complete(claim),
    "dead letter": lambda db, claim: db.fail(claim, permanent=True),
    "cancelled": lambda db, claim: db.cancel(claim.job_id, epoch=claim.epoch),
}
every_end = pytest.mark.parametrize("end", list(ENDS))
either_way = pytest.mark.parametrize("commits", [True, False], ids=["commits", "rolls back"])


@pytest.fixture(autouse=True)
def impatient(db):
    """Whatever would wait for an open transaction fails."""
    db.run("set lock_timeout = '10s'")


def finish(engine, commits: bool) -> None:
    (engine.conn.commit if commits else engine.conn.rollback)()


def states(db, *jobs):
    return [db.state(job) for job in jobs]


@either_way
@every_end
def test_the_other_job_ends_while_the_enqueue_is_not_committed(db, end, commits):
    claim = db.running()
    with transaction(db) as caller:
        job = caller.enqueue("next", after=[claim.job_id], after_policy="ignore")
        ENDS[end](db, claim)
        db.promote()
        finish(caller, commits)
    db.settle()

    assert db.states() == {claim.job_id: end.replace(" ", "_"), **({job: "done"} if commits else {})}


@either_way
@every_end
def test_a_job_is_enqueued_while_the_end_of_the_other_is_not_committed(db, end, commits):
    claim = db.running()
    with transaction(db) as worker:
        ENDS[end](worker, claim)
        job = db.enqueue("next", after=[claim.job_id], after_policy="ignore")
        # The other job is locked, so nothing can be said about it yet, and nothing is gained by trying at once again.
        assert [db.promote().more for _ in range(2)] == [False, False]
        assert db.state(job) == "blocked"
        finish(worker, commits)
    if not commits:
        db.promote()
        assert db.state(job) == "blocked"
        ENDS[end](db, claim)
    db.settle()

    assert db.state(job) == "done"


@pytest.mark.parametrize("policy", ["fail", "ignore", "compensate"])
@pytest.mark.parametrize("order", ["first, second", "second, first"])
@pytest.mark.parametrize("ends", [("done", "done"), ("done", "dead letter"), ("cancelled", "done")])
def test_two_that_are_waited_for_end_at_once(db, policy, order, ends):
    """Neither sees the other's end: somebody has to look once more."""
    claims = db.running(), db.running()
    job = db.enqueue("next", after=[claim.job_id for claim in claims], after_policy=policy)
    db.promote()
    with transaction(db) as one, transaction(db) as two:
        ENDS[ends[0]](one, claims[0])
        ENDS[ends[1]](two, claims[1])
        for engine in (one, two) if order == "first, second" else (two, one):
            engine.conn.commit()
            db.promote()
    db.promote()

    failed = set(ends) != {"done"}
    runs = {"fail": not failed, "ignore": True, "compensate": failed}[policy]
    assert db.state(job) == ("ready" if runs else "cancelled")


def test_one_of_two_ends_that_is_undone_is_waited_for(db):
    claims = db.running(), db.running()
    job = db.enqueue("next", after=[claim.job_id for claim in claims])
    db.promote()
    with transaction(db) as one, transaction(db) as two:
        one.complete(claims[0])
        two.complete(claims[1])
        one.conn.rollback()
        two.conn.commit()
    db.promote()
    assert db.state(job) == "blocked"
    db.complete(claims[0])

    assert db.state(job) == "ready"


@either_way
def test_a_finish_does_not_wait_for_a_caller_who_cancels_the_one_that_waits(db, commits):
    claim = db.running()
    job = db.enqueue("next", after=[claim.job_id])
    db.promote()
    with transaction(db) as caller:
        caller.cancel(job)
        db.complete(claim)
        db.promote()
        finish(caller, commits)
    db.promote()

    assert db.state(job) == ("cancelled" if commits else "ready")
    assert db.value("select count(*) from onceward.recheck_private") == 0


OPEN_CALLS = {
    "enqueue": lambda db, jobs: db.enqueue(after=[jobs["running"].job_id, jobs["other"].job_id]),
    "enqueue many": lambda db, jobs: db.enqueue_many("ocr", [{}] * 3, after=[jobs["running"].job_id]),
    "enqueue a workflow": lambda db, jobs: db.workflow({"name": "a"}, {"name": "b", "after": ["a"]}),
    "cancel what is waited for": lambda db, jobs: db.cancel(jobs["other"].job_id),
    "cancel what waits": lambda db, jobs: db.cancel(jobs["waits"]),
    "cancel what joined": lambda db, jobs: db.cancel(jobs["joined"]),
    "cancel the workflow": lambda db, jobs: db.answer("cancel_workflow", workflow_id=jobs["flow"]),
    "requeue the workflow": lambda db, jobs: db.answer("requeue_workflow", workflow_id=jobs["dead"]),
    "requeue a dead letter": lambda db, jobs: db.requeue(jobs["dead"]),
    "resolve a dead letter": lambda db, jobs: db.resolve(jobs["dead"]),
    "emit": lambda db, jobs: db.emit("paid"),
    "finish a step": lambda db, jobs: db.finish_step(jobs["other"], kind="transaction"),
}


@either_way
@pytest.mark.parametrize("isolation", ["read committed", "repeatable read"])
@pytest.mark.parametrize("call", list(OPEN_CALLS.values()), ids=list(OPEN_CALLS))
def test_no_open_transaction_of_a_caller_stops_a_worker_or_leaves_a_job_stuck(db, call, isolation, commits):
    jobs = {"dead": db.dead_letter()}
    jobs["after the dead"] = db.enqueue(after=[jobs["dead"]])
    jobs["running"], jobs["other"], listener, joiner = (db.running() for _ in range(4))
    # The workflow is that of the first; what a caller has locked itself is another matter.
    ids = [jobs["other"].job_id, jobs["running"].job_id]
    jobs["flow"] = ids[0]
    jobs["waits"] = db.enqueue(after=ids)
    jobs["joined"] = joiner.job_id
    db.join(joiner, ids)
    db.wait_event(listener)
    while db.promote().more:
        pass

    with transaction(db) as caller:
        caller.conn.execute(f"set transaction isolation level {isolation}")
        caller.run("select count(*) from onceward.jobs")
        call(caller, jobs)
        # Each would end with an error if it had to wait for the caller.
        db.exchange([jobs["running"]])
        db.promote()
        db.answer("tidy")
        db.promote()
        finish(caller, commits)

    if db.state(jobs["other"].job_id) == "running":
        db.complete(jobs["other"])
    db.emit("paid")
    db.settle()
    db.settle()
    assert set(db.states().values()) <= ENDED
    assert db.value("select count(*) from onceward.recheck_private") == 0
    db.answer("tidy")
    assert db.value("select count(*) from onceward.dependency_private") == 0
    assert deadlocks(db) == 0


@pytest.mark.parametrize("end", ["done", "dead letter"])
def test_a_worker_with_an_old_snapshot_tells_all_the_same(db, end):
    claim = db.running()
    with transaction(db) as worker:
        worker.conn.execute("set transaction isolation level repeatable read")
        worker.run("select count(*) from onceward.jobs")
        job = db.enqueue("next", after=[claim.job_id], after_policy="ignore")
        db.promote()
        # It does not see the edge that was committed since.
        if end == "done":
            worker.complete(claim)
        else:
            worker.cancel(claim.job_id, epoch=claim.epoch)
        worker.conn.commit()
    db.promote()

    assert db.state(job) == "ready"


def test_a_promote_with_an_old_snapshot_leaves_what_it_cannot_judge(db):
    claim = db.running()
    job = db.enqueue("next", after=[claim.job_id])
    with transaction(db) as worker:
        worker.conn.execute("set transaction isolation level repeatable read")
        worker.run("select count(*) from onceward.jobs")
        db.complete(claim)
        worker.promote()
        worker.conn.commit()
    db.promote()

    assert db.state(job) == "ready"


def test_a_promote_that_breaks_off_loses_nothing(db):
    dead = db.running()
    job = db.enqueue("next", after=[dead.job_id, db.enqueue()])
    db.promote()
    db.fail(dead, permanent=True)
    other = db.claim()
    with transaction(db) as worker:
        worker.promote()
        assert worker.state(job) == "cancelled"
        # The edge to this one is locked by the promote that is about to be undone.
        db.complete(other)
        worker.conn.rollback()
    db.promote()

    assert db.state(job) == "cancelled"


def test_tidy_does_not_take_the_edges_of_a_job_that_begins_to_wait_anew(db):
    parent = db.running()
    job = db.enqueue("next", after=[parent.job_id])
    db.promote()
    db.cancel(job)
    with transaction(db) as operator:
        operator.answer("requeue_workflow", workflow_id=parent.job_id)
        db.answer("tidy")
        operator.conn.commit()
    db.answer("tidy")
    db.promote()
    assert db.state(job) == "blocked"
    db.complete(parent)

    assert db.state(job) == "ready"


def test_a_requeue_waits_for_tidy_and_has_its_edges(db):
    parent = db.running()
    job = db.enqueue("next", after=[parent.job_id])
    db.promote()
    db.cancel(job)
    with transaction(db) as tidier:
        assert tidier.answer("tidy") == 1
        operator = Rival(
            db, lambda rival: rival.answer("requeue_workflow", workflow_id=parent.job_id)
        ).blocked()
        tidier.conn.commit()
    assert operator.answer() == 1
    db.promote()

    assert db.state(job) == "blocked"
    assert db.value("select count(*) from onceward.dependency_private") == 1


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_many_workers_and_producers_at_once_leave_nothing_behind(db):
    """Random graphs, ends and cancellations from eight connections: everything ends, nothing deadlocks."""
    for n in range(4):
        db.worker(f"w{n}")
    roots = [row.job_id for row in db.enqueue_many("root", [{}] * 40)]

    def produce(engine, seed):
        chance = random.Random(seed)
        for _ in range(40):
            after = chance.sample(roots, chance.randint(1, 6))
            policy = chance.choice(["fail", "ignore", "compensate"])
            keyed = chance.choice([{}, {"concurrency_key": "k", "concurrency_limit": 3}])
            job = engine.enqueue("next", after=after, after_policy=policy, **keyed)
            if chance.random() < 0.7:
                roots.append(job)
            if chance.random() < 0.1:
                engine.cancel(job)
            if chance.random() < 0.1:
                engine.emit(f"e{chance.randint(1, 3)}")

    def work(engine, seed):
        chance = random.Random(seed)
        worker = f"w{seed}"
        for _ in range(60):
            engine.promote()
            claims = engine.claims(4, worker=worker)
            done = [claim for claim in claims if chance.random() < 0.6]
            for claim in claims:
                if claim in done:
                    continue
                chosen = chance.random()
                if chosen < 0.3:
                    engine.fail(claim, permanent=True)
                elif chosen < 0.6:
                    engine.wait_event(claim, f"e{chance.randint(1, 3)}", timeout="1 hour")
                elif chosen < 0.8 and claim.attempt == 1:
                    engine.join(claim, engine.spawn(claim, [{}] * 3))
                else:
                    engine.cancel(claim.job_id, epoch=claim.epoch)
            engine.exchange(done, worker=worker)

    calls = [lambda engine, n=n: work(engine, n) for n in range(4)]
    calls += [lambda engine, n=n: produce(engine, n) for n in range(4)]
    answers = together(db, calls)

    assert [answer for answer in answers if answer is not None] == []
    assert deadlocks(db) == 0
    db.clock.advance("2 hours")
    for _ in range(5):
        db.settle()
    assert set(db.states().values()) <= ENDED
    assert db.value("select count(*) from onceward.recheck_private") == 0


def crossing(db, *joins):
    """Each claim joins another job, all in transactions that are open at once."""
    engines = [db.on(db.connect(autocommit=False)) for _ in joins]
    for engine, (claim, others) in zip(engines, joins, strict=True):
        engine.join(claim, others)
    for engine in engines:
        engine.conn.commit()


def test_of_two_joins_that_cross_the_younger_is_refused_and_both_jobs_end(db):
    elder, younger = db.running(), db.running()
    crossing(db, (elder, [younger.job_id]), (younger, [elder.job_id]))
    db.promote()

    assert states(db, elder.job_id, younger.job_id) == ["blocked", "ready"]
    again = db.claim()
    assert (again.job_id, again.attempt) == (younger.job_id, 1)
    with refused("OW012", str(elder.job_id), "which waits for it"):
        db.join(again, [elder.job_id])
    db.fail(again, permanent=True)
    db.promote()
    db.complete(db.claim())
    assert states(db, elder.job_id, younger.job_id) == ["done", "dead_letter"]


def test_a_circle_of_three_is_opened_once(db):
    jobs = [db.running() for _ in range(3)]
    crossing(db, *[(job, [jobs[number - 1].job_id]) for number, job in enumerate(jobs)])
    for _ in range(3):
        db.promote()

    assert states(db, *[job.job_id for job in jobs]) == ["blocked", "blocked", "ready"]


def test_a_circle_through_a_job_that_was_enqueued_to_wait_is_opened_at_the_join(db):
    first = db.running()
    second = db.running()
    with transaction(db) as joins, transaction(db) as caller:
        waits = caller.enqueue("next", after=[second.job_id], after_policy="ignore")
        caller.conn.commit()
        joins.join(first, [waits])
        # Unseen by the join of the second: waits → second → first → waits.
        db.join(second, [first.job_id])
        joins.conn.commit()
    db.promote()

    assert states(db, first.job_id, second.job_id, waits) == ["blocked", "ready", "blocked"]


def test_joins_that_do_not_make_a_circle_stay_as_they_are(db):
    top, middle, leaf = db.running(), db.running(), db.running()
    also = db.enqueue("next", after=[top.job_id])
    crossing(db, (top, [middle.job_id, leaf.job_id]), (middle, [leaf.job_id]))
    for _ in range(3):
        db.promote()

    assert states(db, top.job_id, middle.job_id, also) == ["blocked", "blocked", "blocked"]
    db.complete(leaf)
    db.settle()
    assert states(db, top.job_id, middle.job_id, also) == ["done", "done", "done"]


def test_a_circle_whose_youngest_job_is_locked_is_opened_later(db):
    elder, younger = db.running(), db.running()
    crossing(db, (elder, [younger.job_id]), (younger, [elder.job_id]))
    with transaction(db) as caller:
        caller.run("select from onceward.job_private where id = %s for update", younger.job_id)
        db.promote()
        assert states(db, elder.job_id, younger.job_id) == ["blocked", "blocked"]
    db.promote()

    assert states(db, elder.job_id, younger.job_id) == ["blocked", "ready"]
