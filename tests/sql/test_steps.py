"""Steps: what is done stays done, and only the holder of the epoch writes it."""

from __future__ import annotations

import pytest
from psycopg.types.json import Jsonb

from tests.support.engine import refused
from tests.support.races import Rival, transaction

JOB_CALLS = {
    "finish_step": lambda db, claim: db.finish_step(claim, "late"),
    "fail_step": lambda db, claim: db.fail_step(claim, "late"),
    "steps_of": lambda db, claim: db.of_job("steps_of", claim),
    "sleep": lambda db, claim: db.sleep(claim),
    "wait_event": lambda db, claim: db.wait_event(claim),
    "receive_event": lambda db, claim: db.receive_event(claim),
    "spawn": lambda db, claim: db.spawn(claim),
    "join_jobs": lambda db, claim: db.join(claim, [db.enqueue(priority=-1, key="k")]),
    "outcomes_of": lambda db, claim: db.of_job("outcomes_of", claim, job_ids=[claim.job_id]),
}
every_call = pytest.mark.parametrize("call", list(JOB_CALLS.values()), ids=list(JOB_CALLS))


@every_call
def test_a_worker_whose_job_runs_elsewhere_is_refused(db, call):
    db.enqueue(priority=-1, key="k")
    late = db.running(worker="a")
    db.lose("a")
    db.claim(worker="b")

    with db.refused("OW001", str(late.job_id), "Epoch 1"):
        call(db, late)


@every_call
def test_a_worker_that_was_rescued_is_refused(db, call):
    db.enqueue(priority=-1, key="k")
    late = db.running(worker="a")
    db.lose("a")

    with db.refused("OW001"):
        call(db, late)


@every_call
def test_a_worker_that_was_rescued_while_cancelling_is_refused(db, call):
    db.enqueue(priority=-1, key="k")
    late = db.running(worker="a")
    db.cancel(late.job_id)
    db.lose("a")
    assert db.state(late.job_id) == "cancelled"

    with db.refused("OW001"):
        call(db, late)


@every_call
def test_a_job_that_is_done_is_refused(db, call):
    db.enqueue(priority=-1, key="k")
    late = db.running()
    db.complete(late)

    with db.refused("OW001"):
        call(db, late)


def test_a_spawn_of_a_stale_epoch_is_refused_also_when_it_was_done_before(db):
    late = db.running(worker="a")
    db.spawn(late)
    db.lose("a")

    with db.refused("OW001"):
        db.spawn(late)


def test_a_step_is_there_for_the_next_attempt(db):
    first = db.running()
    db.finish_step(first, "scan", {"pages": 3}, seq=1, tries=2, took="5 s", version="1.0")
    db.fail_step(first, "bill", "no money", seq=2)
    db.fail(first, retry_after="0")
    second = db.claim()

    rows = db.of_job("steps_of", second)

    assert [(r.name, r.kind, r.state, r.result, r.version) for r in rows] == [
        ("scan", "step", "done", {"pages": 3}, "1.0"),
        ("bill", "step", "failed", None, None),
    ]


def test_the_view_tells_how_long_and_how_often(db):
    claim = db.running(tenant="acme")
    db.finish_step(claim, "scan", {"pages": 3}, seq=1, tries=2, took="5 s")

    step = db.steps(claim.job_id)["scan"]

    assert (step.tenant, step.task, step.attempt, step.tries) == ("acme", "ocr", 1, 2)
    assert (step.took.total_seconds(), step.finished_at) == (5, db.now())


def test_the_first_result_stays(db):
    claim = db.running()
    db.finish_step(claim, result={"n": 1})
    after = db.contents()
    db.clock.advance("1 min")

    db.finish_step(claim, result={"n": 2})
    db.fail_step(claim)

    assert db.contents() == after
    assert db.steps(claim.job_id)["pay"].result == {"n": 1}


def test_a_later_attempt_cannot_overwrite_it_either(db):
    claim = db.running(worker="a")
    db.finish_step(claim, result={"n": 1})
    db.lose("a")
    db.finish_step(db.claim(worker="b"), result={"n": 2})

    step = db.steps(claim.job_id)["pay"]
    assert (step.result, step.attempt) == ({"n": 1}, 1)


def test_a_failed_step_is_done_in_the_end_and_its_tries_add_up(db):
    first = db.running()
    db.fail_step(first, tries=3)
    db.fail(first, retry_after="0")
    db.finish_step(db.claim(), result=1, tries=2)

    step = db.steps(first.job_id)["pay"]
    assert (step.state, step.result, step.error, step.tries, step.attempt) == ("done", 1, None, 5, 2)


def test_a_failure_that_is_recorded_twice_counts_once(db):
    claim = db.running()
    db.fail_step(claim, tries=3)
    db.fail_step(claim, tries=3)

    assert db.steps(claim.job_id)["pay"].tries == 3


def test_an_error_is_capped(db):
    claim = db.running()
    db.fail_step(claim, message="x" * 5000)

    assert len(db.steps(claim.job_id)["pay"].error["message"]) == 2000


def test_a_result_above_the_cap_of_the_lane_is_refused(db):
    db.run("update onceward.lane_private set max_result_bytes = 2000 where name = 'default'")
    claim = db.running()

    with db.refused("OW004"):
        db.finish_step(claim, result="x" * 3000)
    db.finish_step(claim, result="x" * 500)


@pytest.mark.parametrize("name", [None, "", "x" * 201, "a\nb"])
def test_a_bad_name_is_refused(db, name):
    claim = db.running()
    other = db.enqueue()

    for call in (
        lambda: db.finish_step(claim, name),
        lambda: db.fail_step(claim, name),
        lambda: db.sleep(claim, step=name),
        lambda: db.wait_event(claim, step=name),
        lambda: db.spawn(claim, step=name),
        lambda: db.join(claim, [other], step=name),
    ):
        with db.refused("OW008", "step"):
            call()


@pytest.mark.parametrize("kind", [None, "", "magic"])
def test_an_unknown_kind_is_refused(db, kind):
    claim = db.running()
    with db.refused("OW008", "kind"):
        db.finish_step(claim, kind=kind)


@pytest.mark.parametrize(
    "odd", [{"took": "-5 min"}, {"took": "200000 years"}, {"tries": -1}, {"tries": 2**31 - 1}, {"seq": None}]
)
def test_odd_figures_do_not_stop_a_checkpoint(db, odd):
    claim = db.running()
    db.fail_step(claim, **odd)
    db.finish_step(claim, **odd)

    step = db.steps(claim.job_id)["pay"]
    assert step.state == "done"
    assert step.took.total_seconds() >= 0
    assert 0 <= step.tries <= 1_000_000


# ------------------------------------------------------------ transactions


@pytest.fixture
def ledger(db):
    db.run("create table public.ledger (n integer)")
    return lambda: db.value("select count(*) from public.ledger")


def test_the_rows_of_the_caller_and_the_checkpoint_are_committed_together(db, ledger):
    claim = db.running()
    with transaction(db) as caller:
        caller.run("insert into public.ledger values (1)")
        caller.finish_step(claim, kind="transaction")
        caller.conn.rollback()
    assert (ledger(), db.steps(claim.job_id)) == (0, {})

    with transaction(db) as caller:
        caller.run("insert into public.ledger values (1)")
        caller.finish_step(claim, kind="transaction")
        caller.conn.commit()
    assert (ledger(), db.steps(claim.job_id)["pay"].state) == (1, "done")


def test_a_transaction_is_not_committed_a_second_time(db, ledger):
    """A step may be repeated when its reply was lost; rows that are committed with it may not."""
    claim = db.running()
    with transaction(db) as caller:
        caller.run("insert into public.ledger values (1)")
        caller.finish_step(claim, kind="transaction")
        caller.conn.commit()
        caller.run("insert into public.ledger values (2)")
        with refused("OW007", '"pay"', "already done", "Roll back"):
            caller.finish_step(claim, kind="transaction")

    assert ledger() == 1


@pytest.mark.race
@pytest.mark.parametrize("commits", [True, False], ids=["commits", "rolls back"])
def test_two_transactions_of_one_step_at_once_commit_one_time(db, ledger, commits):
    claim = db.running()

    def again(rival):
        with rival.conn.transaction():
            rival.run("insert into public.ledger values (2)")
            rival.finish_step(claim, kind="transaction")

    with transaction(db) as caller:
        caller.run("insert into public.ledger values (1)")
        caller.finish_step(claim, kind="transaction")
        rival = Rival(db, again).blocked()
        (caller.conn.commit if commits else caller.conn.rollback)()

    assert rival.sqlstate == ("OW007" if commits else None)
    assert db.run("select n from public.ledger") == [(1 if commits else 2,)]


@pytest.mark.race
def test_a_transaction_of_a_worker_that_lost_its_lease_is_not_committed(db, ledger):
    late = db.running(worker="a")
    with transaction(db) as caller:
        caller.run("insert into public.ledger values (1)")
        db.lose("a")
        with refused("OW001"):
            caller.finish_step(late, kind="transaction")

    assert ledger() == 0


@pytest.mark.race
def test_a_job_is_not_rescued_while_its_transaction_is_being_committed(db, ledger):
    claim = db.running(worker="a")
    with transaction(db) as caller:
        caller.run("insert into public.ledger values (1)")
        caller.finish_step(claim, kind="transaction")
        db.lose("a")
        assert db.state(claim.job_id) == "running"
        caller.conn.commit()
    db.rescue()

    assert (db.state(claim.job_id), ledger()) == ("ready", 1)


@pytest.mark.race
def test_a_checkpoint_that_is_not_committed_stops_neither_progress_nor_other_steps(db):
    claim = db.running()
    db.run("set lock_timeout = '10s'")
    with transaction(db) as caller:
        caller.finish_step(claim, kind="transaction")
        db.progress(claim, {"n": 1})
        db.finish_step(claim, "another")
        db.heartbeat()
        db.promote()
        caller.conn.commit()

    assert set(db.steps(claim.job_id)) == {"pay", "another"}


# ------------------------------------------------------------ views


def test_partial_completions_are_jobs_that_stopped_half_way(db):
    jobs = {}
    for name, end in {
        "done": db.complete,
        "failed": lambda claim: db.fail(claim, retry_after="1 hour"),
        "dead": lambda claim: db.fail(claim, permanent=True),
        "cancelled": lambda claim: db.cancel(claim.job_id, epoch=claim.epoch),
        "asleep": db.sleep,
        "waiting": db.wait_event,
        "running": lambda claim: None,
    }.items():
        claim = db.running(name)
        db.finish_step(claim, "scan", seq=1)
        db.fail_step(claim, "bill", seq=2)
        end(claim)
        jobs[claim.job_id] = name
    untouched = db.running("untouched")
    db.fail(untouched, permanent=True)

    rows = db.run("select * from onceward.partial_completions")

    assert {jobs[row.job_id] for row in rows} == {"failed", "dead", "cancelled"}
    assert {(row.done, row.failed, row.last_done, row.last_failed) for row in rows} == {
        (1, 1, "scan", "bill")
    }


def test_a_job_that_sleeps_after_a_failed_attempt_has_not_stopped(db):
    claim = db.running()
    db.finish_step(claim, "scan")
    db.fail(claim, retry_after="0")
    db.sleep(db.claim())

    assert db.run("select * from onceward.partial_completions") == []


def test_steps_outlive_the_job_and_a_requeue(db):
    claim = db.running()
    db.finish_step(claim, result={"n": 1})
    db.fail(claim, permanent=True)
    db.requeue(claim.job_id)
    (row,) = db.of_job("steps_of", db.claim())

    assert (row.name, row.result) == ("pay", {"n": 1})


def test_steps_of_a_tenant_are_read_by_that_tenant(db):
    claim = db.running(tenant="acme")
    db.finish_step(claim)
    own = db.on(db.connect(role="onceward_producer", tenant="acme"))
    other = db.on(db.connect(role="onceward_producer", tenant="globex"))

    assert list(own.steps(claim.job_id)) == ["pay"]
    assert other.steps(claim.job_id) == {}


# ------------------------------------------------------------ children


def test_children_are_spawned_once(db):
    claim = db.running(tenant="acme")
    ids = db.spawn(claim, [{"n": n} for n in range(3)], priority=5, max_attempts=2)

    assert db.spawn(claim, [{"n": 9}]) == ids
    jobs = [db.job(job) for job in ids]
    assert [job.payload["n"] for job in jobs] == [0, 1, 2]
    assert {(j.tenant, j.task, j.priority, j.max_attempts, j.parent_id, j.workflow_id) for j in jobs} == {
        ("acme", "child", 5, 2, claim.job_id, claim.job_id)
    }


def test_a_later_attempt_gets_the_same_children(db):
    first = db.running(worker="a", priority=9)
    ids = db.spawn(first, [{}] * 5)
    db.lose("a")

    # A day has passed, so that its children are not passed over for it any more.
    (again,) = [claim for claim in db.claims(10, worker="b") if claim.job_id == first.job_id]
    assert db.spawn(again, [{}]) == ids


def test_thousands_of_children_fit(db):
    claim = db.running()
    ids = db.spawn(claim, [{}] * 10_000)

    assert len(set(ids)) == 10_000
    with db.refused("OW008", "payloads"):
        db.spawn(claim, [{}] * 10_001, step="more")


def test_a_step_that_is_something_else_is_no_list_of_children(db):
    claim = db.running()
    db.finish_step(claim, "fan out", {"n": 1})

    with db.refused("OW007", "fan out"):
        db.spawn(claim)


@pytest.mark.race
def test_two_spawns_at_once_make_one_set_of_children(db):
    claim = db.running()
    with transaction(db) as caller:
        ids = caller.spawn(claim, [{}] * 3)
        rival = Rival(db, lambda rival: rival.spawn(claim, [{}] * 3)).blocked()
        caller.conn.commit()

    assert rival.answer() == ids
    assert db.value("select count(*) from onceward.jobs where parent_id = %s", claim.job_id) == 3


def test_the_outcomes_of_children_come_in_order(db):
    parent = db.running(priority=9)
    ids = db.spawn(parent, [{}] * 4)
    claims = {claim.job_id: claim for claim in db.claims(4)}
    db.complete(claims[ids[0]], {"n": 0})
    db.fail(claims[ids[1]], "no", permanent=True)
    db.cancel(ids[2], epoch=1)
    stranger = db.enqueue(tenant="globex")

    rows = db.of_job("outcomes_of", parent, job_ids=[*reversed(ids), stranger])

    assert [row.job_id for row in rows] == [*reversed(ids), stranger]
    assert [row.state for row in rows] == ["running", "cancelled", "dead_letter", "done", None]
    assert (rows[3].result, rows[2].error["message"]) == ({"n": 0}, "no")


def test_a_null_result_is_a_result(db):
    claim = db.running()
    db.of_job("finish_step", claim, name="pay", result=Jsonb(None))
    db.finish_step(claim, result={"n": 1})

    assert db.steps(claim.job_id)["pay"].result is None
