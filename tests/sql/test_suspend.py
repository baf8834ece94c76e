"""Suspended jobs: they give the slot back, use no attempt up, and come back when their time has come."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.support.races import deadlocks, together

TEN_MINUTES = timedelta(minutes=10)

SUSPENDS = {
    "sleep": lambda db, claim: db.sleep(claim),
    "wait_event": lambda db, claim: db.wait_event(claim, timeout="10 min"),
    "wait_event without a timeout": lambda db, claim: db.wait_event(claim),
    "join_jobs": lambda db, claim: db.join(
        claim, [db.value("select id from onceward.jobs where task = 'other'")]
    ),
}
every_way = pytest.mark.parametrize("suspend", list(SUSPENDS.values()), ids=list(SUSPENDS))


@pytest.fixture(autouse=True)
def other(db):
    """A job to wait for, which nobody claims."""
    db.answer("add_lane", name="far")
    return db.enqueue("other", lane="far")


def test_a_sleeping_job_comes_back_when_its_time_has_come(db):
    claim = db.running()
    until = db.sleep(claim)

    assert until == db.now() + TEN_MINUTES
    job = db.job(claim.job_id)
    assert (job.state, job.run_at, job.attempt, job.worker_id) == ("scheduled", until, 0, None)
    assert db.promote().next_in == TEN_MINUTES
    db.clock.advance("10 min")
    again = db.claim()
    assert (again.job_id, again.attempt, again.epoch) == (claim.job_id, 1, 2)
    (step,) = db.of_job("steps_of", again)
    assert (step.name, step.kind, step.state, step.is_over) == ("nap", "sleep", "waiting", True)


def test_the_view_says_that_a_sleep_is_over(db):
    claim = db.running()
    until = db.sleep(claim)
    assert db.steps(claim.job_id)["nap"].state == "waiting"
    db.clock.advance("15 min")

    step = db.steps(claim.job_id)["nap"]
    assert (step.state, step.finished_at, step.took) == ("done", until, TEN_MINUTES)


def test_a_sleep_remembers_until_when(db):
    """An attempt that runs too early, or sleeps again under the same name, does not sleep longer."""
    claim = db.running()
    until = db.sleep(claim)
    db.clock.advance("4 min")
    db.answer("run_now", job_id=claim.job_id)

    assert db.sleep(db.claim(), "1 hour") == until
    assert db.job(claim.job_id).run_at == until


@every_way
def test_a_suspended_attempt_is_not_counted(db, suspend, other):
    claim = db.running(max_attempts=1)
    for _ in range(3):
        suspend(db, claim)
        assert db.job(claim.job_id).attempt == 0
        db.run(
            "update onceward.job_private set state = 'ready', awaits = null, ready_seq = 1 where id = %s",
            claim.job_id,
        )
        claim = db.claim()
        assert claim.attempt == 1

    assert db.outcomes(claim.job_id) == ["suspended"] * 3 + ["running"]
    assert db.job(claim.job_id).snoozes == 0
    assert db.fail(claim).state == "dead_letter"


@every_way
def test_a_repeated_call_changes_nothing_more(db, suspend, other):
    claim = db.running()
    first = suspend(db, claim)
    after = db.contents()
    db.clock.advance("1 min")

    assert suspend(db, claim) == first
    assert db.contents() == after


@every_way
def test_a_repeated_call_is_harmless_also_when_the_job_runs_again(db, suspend, other):
    claim = db.running()
    suspend(db, claim)
    db.run(
        "update onceward.job_private set state = 'ready', awaits = null, ready_seq = 1 where id = %s",
        claim.job_id,
    )
    db.claim()
    after = db.contents()

    suspend(db, claim)

    assert db.contents() == after


@every_way
def test_a_job_that_was_asked_to_stop_is_cancelled(db, suspend, other):
    claim = db.running(concurrency_key="k")
    behind = db.enqueue(concurrency_key="k")
    db.promote()
    db.cancel(claim.job_id, "changed my mind")
    suspend(db, claim)

    job = db.job(claim.job_id)
    assert (job.state, job.note) == ("cancelled", "changed my mind")
    assert db.outcomes(claim.job_id) == ["cancelled"]
    assert db.state(behind) == "ready"
    after = db.contents()
    suspend(db, claim)
    assert db.contents() == after


@every_way
def test_a_suspended_job_can_be_cancelled(db, suspend, other):
    claim = db.running()
    db.finish_step(claim, "scan")
    suspend(db, claim)

    assert db.cancel(claim.job_id) == "cancelled"
    db.emit("paid")
    db.complete(db.claim(lanes=["far"]))
    db.clock.advance("1 hour")
    db.promote()
    assert db.state(claim.job_id) == "cancelled"
    assert set(db.steps(claim.job_id)) > {"scan"}


@every_way
def test_a_suspended_job_gives_its_place_in_the_key_to_the_next(db, suspend, other):
    claim = db.running(concurrency_key="k")
    behind = db.enqueue(concurrency_key="k")
    db.promote()
    assert db.state(behind) == "blocked"
    suspend(db, claim)

    assert db.state(behind) == "ready"
    # And waits for a place when it comes back.
    held = db.claim()
    db.emit("paid")
    db.complete(db.claim(lanes=["far"]))
    db.clock.advance("10 min")
    db.promote()
    assert db.state(claim.job_id) == "blocked"
    db.complete(held)
    assert db.claim().job_id == claim.job_id


@every_way
def test_a_suspended_job_expires(db, suspend, other):
    claim = db.running(expires_at=db.now() + timedelta(minutes=5))
    suspend(db, claim)
    db.clock.advance("5 min")

    assert db.promote().expired == 1
    assert db.state(claim.job_id) == "cancelled"


@pytest.mark.race
@every_way
def test_a_call_and_its_repetition_at_once_do_not_deadlock(db, suspend, other):
    for _ in range(5):
        claim = db.running()
        answers = together(db, [lambda engine, claim=claim: suspend(engine, claim)] * 4)
        assert len(set(map(str, answers))) == 1, answers
        assert db.outcomes(claim.job_id) == ["suspended"]

    assert deadlocks(db) == 0


@pytest.mark.parametrize("delay", [None, "-1 s", "11 years"])
def test_a_bad_delay_is_refused(db, delay):
    claim = db.running()
    with db.refused("OW008", "delay"):
        db.sleep(claim, delay)


def test_a_sleep_of_no_time_is_over_at_once(db):
    claim = db.running()
    db.sleep(claim, "0")
    db.promote()

    assert db.claim().job_id == claim.job_id


@pytest.mark.parametrize("jobs", [None, [], "itself", "a stranger's", "unknown"])
def test_a_join_of_bad_jobs_is_refused(db, jobs):
    claim = db.running()
    if jobs == "itself":
        with db.refused("OW012", str(claim.job_id)):
            db.join(claim, [claim.job_id])
    elif jobs == "a stranger's":
        stranger = db.enqueue(tenant="globex", priority=-1)
        with db.refused("OW006", str(stranger)):
            db.join(claim, [stranger])
    elif jobs == "unknown":
        unknown = db.value("select onceward.new_id()")
        with db.refused("OW006", str(unknown)):
            db.join(claim, [unknown])
    else:
        with db.refused("OW008", "after"):
            db.of_job("join_jobs", claim, step="fan in", job_ids=jobs)


def test_a_join_goes_on_when_the_others_have_ended_well_or_not(db):
    parent = db.running(priority=9)
    ids = db.spawn(parent, [{}] * 3)
    db.join(parent, ids)
    claims = db.claims(3)
    db.promote()
    db.complete(claims[0])
    db.fail(claims[1], permanent=True)
    db.promote()
    assert db.state(parent.job_id) == "blocked"
    db.cancel(claims[2].job_id, epoch=claims[2].epoch)
    db.promote()

    assert db.claim().job_id == parent.job_id
    assert db.value("select count(*) from onceward.dependency_private") == 0


def test_a_join_keeps_what_the_job_waited_for_at_first(db):
    """Its own dependencies and their policy count again when the workflow is requeued."""
    first = db.done()
    job = db.enqueue(after=[first], after_policy="compensate")
    other = db.enqueue("other", priority=-9)
    ignoring = db.enqueue(after=[first])
    db.promote()
    claim = db.claim()
    assert db.state(job) == "cancelled"
    assert claim.job_id == ignoring
    db.join(claim, [other])

    row = db.job(ignoring)
    assert (row.after, row.after_policy, row.awaits) == ([first], "fail", "join")


def test_what_is_left_of_an_earlier_wait_does_not_count(db, other):
    """Cancelled while it waited, requeued alone, it joins others: the first wait is forgotten."""
    job = db.enqueue(after=[other])
    db.promote()
    db.cancel(job)
    db.requeue(job)
    child = db.enqueue("child", priority=-1)
    db.join(db.claim(), [child])
    db.promote()
    db.complete(db.claim())
    db.promote()

    assert db.state(job) == "ready"


def test_a_join_of_a_job_that_waits_for_this_one_is_refused(db):
    claim = db.running()
    direct = db.enqueue(after=[claim.job_id])
    through = db.enqueue(after=[direct])
    db.promote()

    for job in (direct, through):
        with db.refused("OW012", str(claim.job_id), str(job)):
            db.join(claim, [job])
