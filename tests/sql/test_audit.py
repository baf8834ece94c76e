"""Transitions in the audit log: every one where a lane asks for it, ends and actions of people always."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.support.audit import written


@pytest.fixture
def all_of_it(db):
    db.call("audit_lane", name="default", mode="all")
    return db


# ------------------------------------------------------------ every transition of sql/README.md, in mode all


def blocked_by(db):
    first = db.enqueue()
    second = db.enqueue(after=[first])
    db.complete(db.claim())
    return second


def keyed(db):
    first = db.enqueue(concurrency_key="k")
    second = db.enqueue(concurrency_key="k")
    db.promote()
    return first, second


def suspended(db, how):
    claim = db.running()
    child = db.spawn(claim, [{}])
    return written(db, lambda: how(claim, child))


def late(db, **options):
    job = db.enqueue(run_at=db.now() + timedelta(minutes=1), **options)
    db.clock.advance(timedelta(minutes=1))
    return job


def dependent(db, policy, end):
    first = db.enqueue()
    db.enqueue(after=[first], after_policy=policy)
    claim = db.claim()
    return written(db, lambda: (end(claim), db.promote()))


def spawned(db) -> list[str]:
    claim = db.running()
    return written(db, lambda: db.spawn(claim, [{}, {}]))


def now_(db) -> list[str]:
    job = db.enqueue(run_at=db.now() + timedelta(hours=1))
    return written(db, lambda: db.call("run_now", job_id=job))


ALL = {
    "enqueue": (lambda db: written(db, db.enqueue), ["job.enqueued"]),
    "enqueue_many": (lambda db: written(db, lambda: db.enqueue_many("ocr", [{}] * 3)), ["job.enqueued"]),
    "enqueue_workflow": (
        lambda db: written(db, lambda: db.workflow({"name": "a"}, {"name": "b", "after": ["a"]})),
        ["job.enqueued", "job.enqueued"],
    ),
    "spawn": (spawned, ["job.enqueued"]),
    "scheduled to ready": (lambda db: (late(db), written(db, db.promote))[1], ["job.due"]),
    "scheduled to blocked and ready": (
        lambda db: (late(db, concurrency_key="k"), written(db, db.promote))[1],
        ["job.due", "job.admitted"],
    ),
    "run_now": (
        now_,
        ["job.run_now"],
    ),
    "blocked to ready": (
        lambda db: (db.enqueue(concurrency_key="k"), written(db, db.promote))[1],
        ["job.admitted"],
    ),
    "blocked to ready by the one before": (
        lambda db: (keyed(db), (claim := db.claim()), written(db, lambda: db.complete(claim)))[2],
        ["job.done", "job.admitted"],
    ),
    "claim": (lambda db: (db.enqueue(), written(db, db.claim))[1], ["job.claimed"]),
    "exchange": (
        lambda db: (
            db.enqueue_many("ocr", [{}] * 4),
            (claims := db.claims(2)),
            written(db, lambda: db.exchange(claims, lanes=["default"], limits=[9], max=9)),
        )[2],
        ["job.done", "job.claimed"],
    ),
    "complete": (lambda db: ((claim := db.running()), written(db, lambda: db.complete(claim)))[1], ["job.done"]),
    "fail": (lambda db: ((claim := db.running()), written(db, lambda: db.fail(claim)))[1], ["job.failed"]),
    "fail for ever": (
        lambda db: ((claim := db.running()), written(db, lambda: db.fail(claim, permanent=True)))[1],
        ["job.dead_letter"],
    ),
    "snooze": (lambda db: ((claim := db.running()), written(db, lambda: db.snooze(claim)))[1], ["job.snoozed"]),
    "snooze too often": (
        lambda db: (
            (claim := db.running(retry={"max_snoozes": 0})),
            written(db, lambda: db.snooze(claim)),
        )[1],
        ["job.dead_letter"],
    ),
    "sleep": (lambda db: suspended(db, lambda claim, _: db.sleep(claim)), ["job.suspended"]),
    "wait_event": (lambda db: suspended(db, lambda claim, _: db.wait_event(claim)), ["job.suspended"]),
    "join_jobs": (lambda db: suspended(db, db.join), ["job.suspended"]),
    "blocked by a job to ready": (
        lambda db: (
            (first := db.enqueue()), db.enqueue(after=[first]), db.promote(), (claim := db.claim()),
            written(db, lambda: db.complete(claim)),
        )[4],
        ["job.done", "job.unblocked"],
    ),
    "blocked by a job that failed": (
        lambda db: dependent(db, "fail", lambda claim: db.fail(claim, permanent=True)),
        ["job.dead_letter", "job.cancelled"],
    ),
    "compensation that is not needed": (
        lambda db: dependent(db, "compensate", db.complete),
        ["job.done", "job.cancelled"],
    ),
    "release": (
        lambda db: (db.running(), written(db, lambda: db.call("release", worker_id=db.worker())))[1],
        ["job.released"],
    ),
    "retire_worker": (
        lambda db: (db.running(), written(db, lambda: db.call("retire_worker", worker_id=db.worker())))[1],
        ["job.released"],
    ),
    "rescue": (lambda db: (db.running(), written(db, db.lose))[1], ["job.rescued"]),
    "rescue of the last attempt": (
        lambda db: (db.running(max_attempts=1), written(db, db.lose))[1],
        ["job.dead_letter"],
    ),
    "cancel of a running job": (
        lambda db: ((claim := db.running()), written(db, lambda: db.cancel(claim.job_id, "why")))[1],
        ["job.cancel_requested"],
    ),
    "cancel asked for twice": (
        lambda db: ((claim := db.running()), db.cancel(claim.job_id), written(db, lambda: db.cancel(claim.job_id)))[2],
        [],
    ),
    "cancel with the epoch": (
        lambda db: ((claim := db.running()), written(db, lambda: db.cancel(claim.job_id, epoch=claim.epoch)))[1],
        ["job.cancelled"],
    ),
    "fail of a job that was to be cancelled": (
        lambda db: ((claim := db.running()), db.cancel(claim.job_id), written(db, lambda: db.fail(claim)))[2],
        ["job.cancelled"],
    ),
    "cancel": (lambda db: ((job := db.enqueue()), written(db, lambda: db.cancel(job)))[1], ["job.cancelled"]),
    "expiry": (
        lambda db: (
            db.enqueue(expires_at=db.now() + timedelta(minutes=1)), db.clock.advance(timedelta(minutes=2)),
            written(db, db.promote),
        )[2],
        ["job.cancelled"],
    ),
    "cancel_workflow": (
        lambda db: (
            (job := db.enqueue()), db.enqueue(after=[job]),
            written(db, lambda: db.call("cancel_workflow", workflow_id=job)),
        )[2],
        ["job.cancelled", "job.cancelled"],
    ),
    "resolve": (lambda db: ((job := db.dead_letter()), written(db, lambda: db.resolve(job)))[1], ["job.resolved"]),
    "requeue": (lambda db: ((job := db.dead_letter()), written(db, lambda: db.requeue(job)))[1], ["job.requeued"]),
    "requeue_workflow": (
        lambda db: (
            (job := db.enqueue()), db.enqueue(after=[job]), db.call("cancel_workflow", workflow_id=job),
            written(db, lambda: db.call("requeue_workflow", workflow_id=job)),
        )[3],
        ["job.requeued", "job.requeued", "job.waiting"],
    ),
}  # fmt: skip


# In the default mode, these are all that is left.
ENDS = {"job.done", "job.dead_letter", "job.cancelled", "job.resolved"}
ACTIONS = {"job.requeued", "job.waiting", "job.run_now", "job.cancel_requested"}


@pytest.mark.parametrize("name", ALL)
def test_in_mode_all_every_transition_has_its_entry(all_of_it, name):
    act, expected = ALL[name]
    assert act(all_of_it) == expected


@pytest.mark.parametrize("name", ALL)
def test_in_mode_ends_there_are_ends_and_what_people_do(db, name):
    act, expected = ALL[name]
    assert act(db) == [kind for kind in expected if kind in ENDS | ACTIONS]


@pytest.mark.parametrize("name", ALL)
def test_states_before_and_after_are_those_of_the_job(all_of_it, name):
    """Following the entries of every job from its beginning, each begins where the one before has ended."""
    db = all_of_it
    ALL[name][0](db)
    for job, state in db.states().items():
        reached = None
        for row in db.call("audit_of", job_id=job):
            if row.kind == "job.cancel_requested":
                continue
            if row.before is not None:
                assert row.before["state"] == reached, row
            reached = row.after["state"] if row.after else "done"
        assert reached == state
