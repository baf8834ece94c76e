"""Events: the first of a name stays, and whoever waits hears of it, whichever comes first."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.support.engine import refused
from tests.support.races import Rival, deadlocks, transaction


def waiting(db, event="paid", **options):
    timeout = options.pop("timeout", None)
    claim = db.running(**options)
    db.wait_event(claim, event, timeout=timeout)
    return claim.job_id


def test_an_event_that_came_before_is_received_at_once(db):
    db.emit("paid", {"eur": 5})
    claim = db.running()

    assert db.receive_event(claim) == ("received", {"eur": 5})
    step = db.steps(claim.job_id)["wait"]
    assert (step.kind, step.state, step.result) == (
        "event",
        "done",
        {"state": "received", "payload": {"eur": 5}},
    )


def test_a_job_that_waits_goes_on_when_the_event_comes(db):
    job = waiting(db)
    db.promote()
    assert db.claims(1) == []
    assert db.emit("paid", {"eur": 5})
    db.promote()
    claim = db.claim()

    assert (claim.job_id, claim.attempt) == (job, 1)
    assert db.job(job).awaits is None
    assert db.receive_event(claim) == ("received", {"eur": 5})


def test_an_event_that_came_between_the_look_and_the_wait_is_heard(db):
    claim = db.running()
    assert db.receive_event(claim) == ("waiting", None)
    db.emit("paid")
    db.wait_event(claim)
    db.promote()

    assert db.receive_event(db.claim()) == ("received", None)


def test_the_first_event_of_a_name_stays(db):
    assert db.emit("paid", {"n": 1}) is True
    assert db.emit("paid", {"n": 2}) is False
    (event,) = db.run("select * from onceward.events")

    assert (event.tenant, event.payload) == ("default", {"n": 1})


def test_every_job_that_waits_hears_it_and_no_other(db):
    heard = {waiting(db) for _ in range(3)}
    waiting(db, "paid:1")
    waiting(db, "pai_")
    waiting(db, "paid", tenant="acme")
    db.emit("paid")
    db.promote()

    assert {claim.job_id for claim in db.claims(10)} == heard


def test_tenants_have_events_of_their_own(db):
    assert db.emit("paid", {"n": 1}, tenant="acme")
    assert db.emit("paid", {"n": 2}, tenant="globex")
    claim = db.running(tenant="globex")

    assert db.receive_event(claim) == ("received", {"n": 2})
    reader = db.on(db.connect(role="onceward_producer", tenant="acme"))
    assert [row.payload for row in reader.run("select * from onceward.events")] == [{"n": 1}]
    with refused("OW011"):
        reader.emit("paid", tenant="globex")


def test_a_timeout_passes(db):
    claim = db.running()
    until = db.wait_event(claim, timeout="10 min")
    assert until == db.now() + timedelta(minutes=10)
    assert db.promote().next_run_at == until
    db.clock.advance("10 min")
    again = db.claim()

    assert db.job(again.job_id).awaits is None
    assert db.receive_event(again) == ("timeout", None)
    assert db.steps(claim.job_id)["wait"].result == {"state": "timeout", "payload": None}


def test_what_was_heard_stays_also_when_the_event_comes_later(db):
    claim = db.running()
    db.wait_event(claim, timeout="0")
    again = db.claim()
    assert db.receive_event(again) == ("timeout", None)
    db.emit("paid", {"n": 1})

    assert db.receive_event(again) == ("timeout", None)


def test_what_was_heard_stays_also_when_the_event_is_gone(db):
    db.emit("paid", {"n": 1}, keep="1 hour")
    claim = db.running()
    db.receive_event(claim)
    db.clock.advance("1 hour")
    db.answer("tidy")

    assert db.receive_event(claim) == ("received", {"n": 1})


def test_an_event_and_a_timeout_at_once_are_an_event(db):
    claim = db.running()
    db.wait_event(claim, timeout="10 min")
    db.clock.advance("10 min")
    db.emit("paid")

    assert db.receive_event(db.claim()) == ("received", None)


def test_a_wait_without_a_timeout_is_no_next_job(db):
    """Its time is the year 9999, which no worker can sleep for."""
    claim = db.running()
    assert db.wait_event(claim).year == 9999
    answer = db.promote()
    assert (answer.next_run_at, answer.next_in) == (None, None)
    soon = db.now() + timedelta(minutes=1)
    db.enqueue(run_at=soon)

    assert db.promote().next_run_at == soon


def test_a_wait_remembers_its_end(db):
    claim = db.running()
    until = db.wait_event(claim, timeout="10 min")
    db.answer("run_now", job_id=claim.job_id)
    again = db.claim()
    assert db.receive_event(again) == ("waiting", None)

    assert db.wait_event(again, timeout="1 hour") == until


def test_an_event_is_forgotten_in_the_end(db):
    db.emit("paid", {"n": 1}, keep="1 hour")
    db.clock.advance("1 hour")
    claim = db.running()

    assert db.run("select * from onceward.events") == []
    assert db.receive_event(claim) == ("waiting", None)
    db.wait_event(claim)
    db.promote()
    assert db.state(claim.job_id) == "scheduled"
    # The name is free again, also before it was tidied away.
    assert db.emit("paid", {"n": 2}) is True
    assert db.receive_event(db.claim()) == ("received", {"n": 2})
    db.clock.advance("30 days")
    db.answer("tidy")
    assert db.value("select count(*) from onceward.event_private") == 0


@pytest.mark.parametrize("name", [None, "", "x" * 501, "a\nb"])
def test_a_bad_name_is_refused(db, name):
    claim = db.running()
    for call in (
        lambda: db.emit(name),
        lambda: db.wait_event(claim, name),
        lambda: db.receive_event(claim, name),
    ):
        with db.refused("OW008", "event"):
            call()


@pytest.mark.parametrize(
    ("bad", "names"),
    [
        ({"keep": None}, "keep"),
        ({"keep": "0"}, "keep"),
        ({"keep": "11 years"}, "keep"),
        ({"payload": "x" * 300_000}, "payload"),
        ({"tenant": "*"}, "tenant"),
        ({"tenant": "a\nb"}, "tenant"),
    ],
)
def test_a_bad_event_is_refused(db, bad, names):
    with db.refused("OW008", names):
        db.emit("paid", **bad)


@pytest.mark.parametrize("timeout", ["-1 s", "11 years"])
def test_a_bad_timeout_is_refused(db, timeout):
    claim = db.running()
    with db.refused("OW008", "timeout"):
        db.wait_event(claim, timeout=timeout)


def test_a_crowd_that_waits_for_one_event_is_woken_in_bounds(db):
    db.enqueue_many("ocr", [{}] * 25)
    for claim in db.claims(25):
        db.wait_event(claim)
    while db.promote(limit=10).more:
        pass
    db.emit("paid")
    answers = []
    while (answer := db.promote(limit=10)).more:
        answers.append(answer.promoted)
    answers.append(answer.promoted)

    assert sum(answers) == 25
    assert max(answers) <= 10


# ------------------------------------------------------------ races


@pytest.mark.race
@pytest.mark.parametrize("commits", [True, False], ids=["commits", "rolls back"])
def test_an_event_that_is_not_committed_yet_is_not_missed_by_a_job_that_begins_to_wait(db, commits):
    with transaction(db) as caller:
        caller.emit("paid", {"n": 1})
        claim = db.running()
        assert db.receive_event(claim) == ("waiting", None)
        db.wait_event(claim)
        db.promote()
        assert db.state(claim.job_id) == "scheduled"
        (caller.conn.commit if commits else caller.conn.rollback)()
    db.promote()

    assert db.state(claim.job_id) == ("ready" if commits else "scheduled")


@pytest.mark.race
def test_a_wait_that_is_not_committed_yet_is_not_missed_by_the_event(db):
    claim = db.running()
    with transaction(db) as worker:
        worker.wait_event(claim)
        db.emit("paid")
        # The event is looked at while the wait cannot be seen.
        db.promote()
        worker.conn.commit()
    assert db.state(claim.job_id) == "scheduled"
    db.promote()

    assert db.state(claim.job_id) == "ready"


@pytest.mark.race
@pytest.mark.parametrize("commits", [True, False], ids=["commits", "rolls back"])
def test_a_job_that_somebody_has_locked_hears_the_event_later(db, commits):
    job = waiting(db)
    db.promote()
    with transaction(db) as caller:
        caller.cancel(job)
        db.emit("paid")
        db.run("set lock_timeout = '10s'")
        db.promote()
        db.promote()
        (caller.conn.commit if commits else caller.conn.rollback)()
    db.promote()

    assert db.state(job) == ("cancelled" if commits else "ready")
    assert db.value("select count(*) from onceward.recheck_private") == 0


@pytest.mark.race
def test_a_caller_with_an_old_snapshot_emits_all_the_same(db):
    with transaction(db) as caller:
        caller.conn.execute("set transaction isolation level repeatable read")
        caller.run("select count(*) from onceward.jobs")
        job = waiting(db)
        db.promote()
        caller.emit("paid")
        caller.conn.commit()
    db.promote()

    assert db.state(job) == "ready"


@pytest.mark.race
def test_of_two_who_emit_at_once_one_is_first(db):
    with transaction(db) as first:
        assert first.emit("paid", {"n": 1})
        second = Rival(db, lambda rival: rival.emit("paid", {"n": 2})).blocked()
        first.conn.commit()

    assert second.answer() is False
    assert [row.payload for row in db.run("select * from onceward.events")] == [{"n": 1}]
    assert deadlocks(db) == 0


def test_a_name_can_be_emitted_exactly_if_it_can_be_waited_for(db):
    longest = "x" * 194
    claim = db.running()
    # As the SDK does it: the name of the step is made of that of the event.
    db.wait_event(claim, longest, step=f"event {longest}")
    assert db.emit(longest)
    db.promote()
    claim = db.claim()
    assert db.receive_event(claim, longest, step=f"event {longest}")[0] == "received"

    for call in (
        lambda: db.emit(longest + "x"),
        lambda: db.wait_event(claim, longest + "x"),
        lambda: db.receive_event(claim, longest + "x"),
    ):
        with refused("OW008", "event", "1 to 194 characters"):
            call()
