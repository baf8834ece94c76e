"""Jobs that wait for others: whatever became of those, and whenever, the job goes on or is cancelled in the end."""

from __future__ import annotations

from datetime import timedelta

import pytest


def settled(db):
    job = db.dead_letter()
    db.resolve(job)
    return job


def cancelled(db):
    job = db.enqueue()
    db.cancel(job)
    return job


PARENTS = {
    "ready": lambda db: db.enqueue(),
    "scheduled": lambda db: db.enqueue(run_at=db.now() + timedelta(hours=1)),
    "blocked": lambda db: (db.running(concurrency_key="k"), db.enqueue(concurrency_key="k"))[1],
    "running": lambda db: db.running().job_id,
    "done": lambda db: db.done(),
    "resolved": settled,
    "cancelled": cancelled,
    "dead letter": lambda db: db.dead_letter(),
}
OPEN = {"ready", "scheduled", "blocked", "running"}
FAILED = {"cancelled", "dead letter"}


def expected(policy: str, *, failed: bool) -> str:
    if policy == "fail":
        return "cancelled" if failed else "ready"
    if policy == "compensate":
        return "ready" if failed else "cancelled"
    return "ready"


policies = pytest.mark.parametrize("policy", ["fail", "ignore", "compensate"])


@policies
@pytest.mark.parametrize("state", list(PARENTS))
def test_what_became_of_the_other_job_before_counts(db, state, policy):
    parent = PARENTS[state](db)
    job = db.enqueue("after", after=[parent], after_policy=policy)
    assert (db.state(job), db.job(job).awaits) == ("blocked", "jobs")
    db.promote()

    if state in OPEN:
        assert db.state(job) == "blocked"
    else:
        assert db.state(job) == expected(policy, failed=state in FAILED)
        assert db.value("select count(*) from onceward.dependency_private") == 0


ENDS = {
    "done": (False, lambda db, claim: db.complete(claim)),
    "done in a set": (False, lambda db, claim: db.exchange([claim])),
    "dead letter": (True, lambda db, claim: db.fail(claim, permanent=True)),
    "cancelled by its worker": (True, lambda db, claim: db.cancel(claim.job_id, epoch=claim.epoch)),
    "asked to stop": (True, lambda db, claim: (db.cancel(claim.job_id), db.fail(claim))),
    "snoozed too often": (True, lambda db, claim: db.snooze(claim)),
    "lost with its worker": (True, lambda db, claim: db.lose("a")),
}


@policies
@pytest.mark.parametrize("verified", [True, False], ids=["looked at before", "new"])
@pytest.mark.parametrize("end", list(ENDS))
def test_what_becomes_of_the_other_job_later_counts(db, end, verified, policy):
    failed, call = ENDS[end]
    claim = db.running(max_attempts=1, retry={"max_snoozes": 0})
    job = db.enqueue("after", after=[claim.job_id], after_policy=policy)
    if verified:
        db.promote()
    call(db, claim)
    db.promote()

    assert db.state(job) == expected(policy, failed=failed)
    if db.state(job) == "cancelled":
        assert ("failed" if failed else "not needed") in db.job(job).note


def test_a_finish_lets_the_next_one_start_without_a_promote(db):
    claim = db.running()
    job = db.enqueue(after=[claim.job_id])
    db.promote()
    db.complete(claim)

    assert db.state(job) == "ready"


@pytest.mark.parametrize("end", ["snooze", "fail", "sleep", "lose"])
def test_a_job_that_has_not_ended_is_waited_for(db, end):
    claim = db.running()
    job = db.enqueue(after=[claim.job_id])
    db.promote()
    {"snooze": db.snooze, "fail": db.fail, "sleep": db.sleep, "lose": lambda _: db.lose("a")}[end](claim)
    db.promote()

    assert db.state(job) == "blocked"


@policies
def test_of_several_every_one_is_waited_for(db, policy):
    first, second, third = (db.running() for _ in range(3))
    job = db.enqueue("after", after=[c.job_id for c in (first, second, third)], after_policy=policy)
    db.promote()
    db.complete(first)
    db.fail(second, permanent=True)
    db.promote()
    # One failure is enough to give up; the others are waited for before the job runs.
    assert db.state(job) == ("cancelled" if policy == "fail" else "blocked")
    db.complete(third)
    db.promote()

    assert db.state(job) == expected(policy, failed=True)
    assert db.value("select count(*) from onceward.dependency_private") == 0


def test_a_cancellation_goes_through_the_whole_chain(db):
    first = db.running()
    chain = [first.job_id]
    for _ in range(30):
        chain.append(db.enqueue("next", after=[chain[-1]]))
    after = db.enqueue("last", after=[chain[-1]], after_policy="ignore")
    db.promote()
    db.fail(first, permanent=True)
    while db.promote().more:
        pass

    assert {db.state(job) for job in chain[1:]} == {"cancelled"}
    assert db.state(after) == "ready"


def test_a_job_named_twice_is_waited_for_once(db):
    claim = db.running()
    job = db.enqueue(after=[claim.job_id, claim.job_id])
    db.promote()
    db.complete(claim)

    assert db.state(job) == "ready"


def test_a_fan_in_over_thousands_starts_once_the_last_has_ended(db):
    children = [row.job_id for row in db.enqueue_many("child", [{}] * 2000)]
    job = db.enqueue("sum", after=children)
    while db.promote().more:
        pass
    while claims := db.claims(100):
        assert db.state(job) == "blocked"
        if any(claim.job_id == job for claim in claims):
            break
        db.exchange(claims)
        if db.state(job) == "ready":
            break

    assert db.states()[job] == "ready"
    assert list(db.states().values()).count("done") == 2000
    assert db.value("select count(*) from onceward.dependency_private") == 0


def test_thousands_that_wait_for_one_start_in_bounds(db):
    claim = db.running()
    db.enqueue_many("child", [{}] * 2500, after=[claim.job_id])
    while db.promote().more:
        pass
    db.complete(claim)
    assert list(db.states().values()).count("ready") == 1000
    while db.promote().more:
        pass

    assert list(db.states().values()).count("ready") == 2500
    assert db.value("select count(*) from onceward.recheck_private") == 0


def test_those_that_start_together_stand_in_the_order_of_their_making(db):
    claim = db.running()
    rows = db.enqueue_many("child", [{"n": n} for n in range(20)], after=[claim.job_id])
    db.promote()
    db.complete(claim)

    assert [c.job_id for c in db.claims(20)] == [row.job_id for row in rows]


# ------------------------------------------------------------ together with what else a job can ask for


def test_a_time_counts_after_the_others(db):
    claim = db.running()
    job = db.enqueue(after=[claim.job_id], run_at=db.now() + timedelta(hours=1))
    db.promote()
    db.complete(claim)
    assert db.state(job) == "scheduled"
    db.clock.advance("1 hour")
    db.promote()
    assert db.state(job) == "ready"


def test_the_others_count_after_the_time(db):
    claim = db.running()
    job = db.enqueue(after=[claim.job_id], run_at=db.now() + timedelta(hours=1))
    db.clock.advance("1 hour")
    db.promote()
    assert db.state(job) == "blocked"
    db.complete(claim)
    assert db.state(job) == "ready"


def test_a_job_that_waits_for_others_does_not_stand_in_line_for_its_key(db):
    claim = db.running()
    job = db.enqueue(after=[claim.job_id], concurrency_key="k", priority=9)
    free = db.enqueue(concurrency_key="k")
    db.promote()
    assert (db.state(job), db.state(free)) == ("blocked", "ready")
    db.complete(claim)
    db.promote()
    assert (db.state(job), db.job(job).awaits) == ("blocked", None)
    db.complete(db.claim())

    assert db.state(job) == "ready"


def test_a_key_gives_the_same_job_that_waits(db):
    claim = db.running()
    first = db.enqueued("next", {"n": 1}, after=[claim.job_id], key="k")
    second = db.enqueued("next", {"n": 1}, after=[claim.job_id], key="k")

    assert (second.job_id, second.created) == (first.job_id, False)
    assert db.value("select count(*) from onceward.dependency_private") == 1
    rows = db.enqueue_many("next", [{"n": 1}, {"n": 2}], keys=["k", "l"], after=[claim.job_id])
    assert [row.created for row in rows] == [False, True]
    assert db.value("select count(*) from onceward.dependency_private") == 2


def test_a_job_expires_while_it_waits(db):
    claim = db.running()
    job = db.enqueue(after=[claim.job_id], expires_at=db.now() + timedelta(minutes=5))
    then = db.enqueue(after=[job])
    db.clock.advance("5 min")
    db.promote()
    db.promote()
    assert (db.state(job), db.state(then)) == ("cancelled", "cancelled")
    db.complete(claim)
    db.answer("tidy")

    assert db.state(job) == "cancelled"
    assert db.value("select count(*) from onceward.dependency_private") == 0


def test_a_job_that_is_cancelled_while_it_waits_stays_cancelled(db):
    claim = db.running()
    job = db.enqueue(after=[claim.job_id])
    db.promote()
    db.cancel(job)
    db.complete(claim)
    db.promote()

    assert db.state(job) == "cancelled"


def test_a_dead_letter_that_is_requeued_before_anybody_was_told_has_not_failed(db):
    claim = db.running()
    job = db.enqueue(after=[claim.job_id])
    db.promote()
    db.fail(claim, permanent=True)
    db.requeue(claim.job_id)
    db.promote()
    assert db.state(job) == "blocked"
    db.complete(db.claim())

    assert db.state(job) == "ready"


def test_a_requeued_job_does_not_wait_again(db):
    parent = db.dead_letter()
    job = db.enqueue(after=[parent])
    db.promote()
    assert db.state(job) == "cancelled"

    assert db.requeue(job) == "ready"
    assert db.claim().job_id == job


def test_a_job_whose_archive_was_dropped_counts_as_done(db):
    parent = db.done()
    job = db.enqueue(after=[parent])
    db.run("delete from onceward.archive_private where id = %s", parent)
    db.promote()

    assert db.state(job) == "ready"


def test_tidy_leaves_the_edges_of_jobs_that_wait(db):
    claim = db.running()
    waits = db.enqueue(after=[claim.job_id])
    db.cancel(db.enqueue(after=[claim.job_id]))
    db.promote()
    assert db.answer("tidy") == 1
    db.complete(claim)

    assert db.state(waits) == "ready"


# ------------------------------------------------------------ bad input


def test_an_unknown_job_is_refused(db):
    unknown = db.value("select onceward.new_id()")
    with db.refused("OW006", str(unknown)):
        db.enqueue(after=[unknown])
    with db.refused("OW006", str(unknown)):
        db.enqueue_many("ocr", [{}], after=[unknown])


@pytest.mark.parametrize("state", ["ready", "done"])
def test_a_job_of_another_tenant_is_refused(db, state):
    stranger = db.enqueue(tenant="globex")
    if state == "done":
        db.complete(db.claim())

    with db.refused("OW006", str(stranger)):
        db.enqueue(tenant="acme", after=[stranger])


@pytest.mark.parametrize("bad", [[], [None]])
def test_a_bad_list_is_refused(db, bad):
    with db.refused("OW008", "after"):
        db.call("enqueue", task="ocr", after=bad)


@pytest.mark.parametrize("policy", [None, "", "hope"])
def test_a_bad_policy_is_refused(db, policy):
    job = db.enqueue()
    with db.refused("OW008", "after_policy"):
        db.enqueue(after=[job], after_policy=policy)


def test_too_many_are_refused(db):
    job = db.enqueue()
    with db.refused("OW008", "10000 jobs"):
        db.enqueue(after=[job] * 10_001)
    many = [row.job_id for row in db.enqueue_many("ocr", [{}] * 400)]
    with db.refused("OW008", "100000 pairs"):
        db.enqueue_many("ocr", [{}] * 300, after=many)


# ------------------------------------------------------------ views


def test_the_graph_can_be_read(db):
    parent = db.running("parent", tenant="acme")
    (child,) = db.spawn(parent)
    then = db.enqueue("then", tenant="acme", after=[parent.job_id, child], after_policy="ignore")
    db.settle()
    rows = db.run("select * from onceward.dependencies order by relation, after_id")

    assert [(r.relation, r.job_id, r.after_id, r.task, r.state, r.waits) for r in rows] == [
        ("after", then, parent.job_id, "then", "blocked", True),
        ("after", then, child, "then", "blocked", True),
        ("spawned", child, parent.job_id, "child", "done", False),
    ]
    assert {(r.workflow_id, r.tenant) for r in rows} == {(parent.job_id, "acme")}
    db.complete(parent)
    db.settle()
    assert [r.waits for r in db.run("select * from onceward.dependencies where job_id = %s", then)] == [
        False
    ] * 2
