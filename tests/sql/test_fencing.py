"""A worker that lost its lease can write nothing: every write names the epoch, and a stale one is refused."""

from __future__ import annotations

import pytest

WRITES = {
    "complete": lambda db, claim: db.complete(claim, {"late": True}),
    "fail": lambda db, claim: db.fail(claim, "late"),
    "fail for good": lambda db, claim: db.fail(claim, "late", permanent=True),
    "snooze": lambda db, claim: db.snooze(claim),
    "progress": lambda db, claim: db.progress(claim, {"percent": 50}),
    "cancel": lambda db, claim: db.cancel(claim.job_id, "late", epoch=claim.epoch),
}
every_write = pytest.mark.parametrize("write", list(WRITES.values()), ids=list(WRITES))


@every_write
def test_a_worker_that_was_rescued_can_write_nothing(db, write):
    late = db.running(worker="a")
    db.lose("a")

    with db.refused("OW001", str(late.job_id), "Epoch 1"):
        write(db, late)
    assert db.state(late.job_id) == "ready"


@every_write
def test_a_worker_whose_job_runs_elsewhere_can_write_nothing(db, write):
    late = db.running(worker="a")
    db.lose("a")
    current = db.claim(worker="b")

    with db.refused("OW001"):
        write(db, late)
    assert (current.epoch, db.job(late.job_id).worker_id) == (2, db.worker("b"))


@every_write
def test_a_worker_whose_job_another_one_finished_can_write_nothing(db, write):
    late = db.running(worker="a")
    db.lose("a")
    db.complete(db.claim(worker="b"), {"by": "b"})

    with db.refused("OW001"):
        write(db, late)
    assert db.job(late.job_id).result == {"by": "b"}


@every_write
def test_a_worker_whose_last_attempt_was_rescued_can_write_nothing(db, write):
    late = db.running(worker="a", max_attempts=1)
    db.lose("a")
    assert db.state(late.job_id) == "dead_letter"

    with db.refused("OW001"):
        write(db, late)


@every_write
def test_a_worker_that_was_rescued_while_cancelling_can_write_nothing(db, write):
    late = db.running(worker="a")
    db.cancel(late.job_id)
    db.lose("a")
    assert db.state(late.job_id) == "cancelled"
    if write is WRITES["cancel"]:
        # Asked to cancel, it hears that the job is cancelled, which is what it wanted to hear.
        assert write(db, late) == "cancelled"
        return

    with db.refused("OW001"):
        write(db, late)


@every_write
def test_a_worker_that_handed_its_job_back_can_write_nothing(db, write):
    late = db.running(worker="a")
    db.call("release", worker_id=db.worker("a"))

    with db.refused("OW001"):
        write(db, late)
    assert db.state(late.job_id) == "ready"


@every_write
def test_a_retired_worker_can_write_nothing(db, write):
    late = db.running(worker="a")
    db.call("retire_worker", worker_id=db.worker("a"))

    with db.refused("OW001"):
        write(db, late)


@every_write
def test_an_epoch_that_was_never_given_out_writes_nothing(db, write):
    claim = db.running()

    for epoch in (0, 2, -1, None):
        if epoch is None and write is WRITES["cancel"]:
            continue  # Without an epoch this is a request of somebody else.
        with db.refused("OW001", str(claim.job_id)):
            write(db, claim._replace(epoch=epoch))
    assert db.state(claim.job_id) == "running"


@every_write
def test_a_job_that_was_dead_lettered_and_requeued_is_closed_to_its_old_attempt(db, write):
    late = db.running(worker="a", max_attempts=1)
    db.lose("a")
    db.requeue(late.job_id)
    db.claim(worker="b")

    with db.refused("OW001"):
        write(db, late)


def test_heartbeats_of_an_expired_worker_are_refused_even_before_anybody_rescues(db):
    db.worker("a", lease="30 s")
    db.clock.advance("30 s")

    with db.refused("OW009", str(db.worker("a")), "new identity"):
        db.heartbeat("a")


def test_a_late_finish_before_anybody_rescued_counts(db):
    """The lease is over, but nobody else has begun: the work is done, and doing it again would help nobody."""
    db.worker("a", lease="30 s")
    claim = db.running(worker="a")
    db.clock.advance("1 hour")

    db.complete(claim)

    assert db.state(claim.job_id) == "done"
    assert db.rescue() == 0


def test_each_claim_raises_the_epoch_whatever_ended_the_one_before(db):
    job = db.enqueue(retry={"waits": [0]}, max_attempts=1000)
    epochs = []
    for end in ("fail", "snooze", "release", "lose", "dead letter"):
        claim = db.claim(worker=end)
        epochs.append(claim.epoch)
        match end:
            case "fail":
                db.fail(claim)
            case "snooze":
                db.snooze(claim, "0")
            case "release":
                db.call("release", worker_id=db.worker(end))
            case "lose":
                db.lose(end)
            case "dead letter":
                db.fail(claim, permanent=True)
                db.requeue(job)
    epochs.append(db.claim(worker="last").epoch)

    assert epochs == [1, 2, 3, 4, 5, 6]
