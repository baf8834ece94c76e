from __future__ import annotations

from datetime import timedelta

import pytest


def test_a_dead_letter_says_what_it_was_and_why_it_died(db):
    job = db.dead_letter("ocr", {"file": "a.pdf"}, "cannot read page 7", priority=4, key="k", max_attempts=5)

    (row,) = db.run("select * from onceward.dead_letters")
    assert (row.id, row.task, row.lane, row.tenant, row.priority) == (job, "ocr", "default", "default", 4)
    assert (row.payload, row.key, row.attempt, row.max_attempts) == ({"file": "a.pdf"}, "k", 1, 5)
    assert (row.error_type, row.category, row.message) == ("ValueError", "error", "cannot read page 7")
    assert row.dead_at == db.now()
    assert row.fingerprint == db.value(
        "select onceward.fingerprint('ocr', 'ValueError', 'cannot read page 7')"
    )


def test_a_dead_letter_and_a_resolved_job_tell_when_the_last_attempt_began(db):
    began = db.now()
    one, other = db.dead_letter(), db.dead_letter()
    db.clock.advance("1 hour")
    db.resolve(other)

    assert (db.job(one).started_at, db.job(other).started_at) == (began, began)
    # Back in the line, none has begun.
    db.requeue(one)
    db.requeue(other)
    assert (db.job(one).started_at, db.job(other).started_at) == (None, None)


def test_dead_letters_are_never_claimed(db):
    db.dead_letter()
    db.clock.advance("300 days")

    assert db.claims(10, worker="b") == []


def test_a_requeued_dead_letter_runs_again_with_fresh_attempts(db):
    job = db.dead_letter(max_attempts=2)

    assert db.requeue(job) == "ready"

    row = db.job(job)
    assert (row.state, row.attempt, row.epoch, row.snoozes, row.run_at) == ("ready", 0, 1, 0, db.now())
    again = db.claim()
    assert (again.job_id, again.attempt, again.epoch) == (job, 1, 2)
    db.complete(again)
    assert db.outcomes(job) == ["dead_letter", "done"]
    assert db.run("select * from onceward.dead_letters") == []


def test_a_requeued_dead_letter_keeps_its_last_error_until_the_next(db):
    job = db.dead_letter(message="out of paper")

    db.requeue(job)

    assert db.job(job).last_error["message"] == "out of paper"


def test_a_requeue_can_correct_the_payload_and_the_old_one_is_kept(db):
    job = db.dead_letter("ocr", {"file": "wrong.pdf"})

    db.requeue(job, payload={"file": "right.pdf"})

    assert db.claim().payload == {"file": "right.pdf"}
    (edit,) = db.run("select * from onceward.payload_edits")
    assert (edit.job_id, edit.payload_before) == (job, {"file": "wrong.pdf"})
    assert (edit.edited_by, edit.tenant) == (db.value("select session_user"), "default")


def test_a_requeue_with_the_same_payload_is_no_edit(db):
    job = db.dead_letter("ocr", {"n": 1})

    db.requeue(job, payload={"n": 1})

    assert db.run("select * from onceward.payload_edits") == []


def test_every_edit_is_kept(db):
    job = db.dead_letter("ocr", {"n": 1})
    for n in (2, 3):
        db.requeue(job, payload={"n": n})
        db.fail(db.claim(), permanent=True)

    edits = db.run("select payload_before from onceward.payload_edits order by edited_at")
    assert [edit.payload_before["n"] for edit in edits] == [1, 2]


def test_a_requeue_can_be_for_later(db):
    job = db.dead_letter()
    later = db.now() + timedelta(hours=2)

    assert db.requeue(job, run_at=later) == "scheduled"
    assert db.claims(1) == []
    db.clock.advance("2 hours")
    assert db.claim().job_id == job


def test_a_requeued_job_with_a_concurrency_key_waits_for_its_turn(db):
    job = db.dead_letter(concurrency_key="k")
    other = db.running(concurrency_key="k")

    assert db.requeue(job) == "blocked"
    assert db.claims(1) == []
    db.complete(other)
    assert db.claim().job_id == job


def test_a_requeue_drops_an_expiry_that_has_passed_and_keeps_one_that_has_not(db):
    soon, late = db.now() + timedelta(hours=1), db.now() + timedelta(days=1)
    passed = db.dead_letter(expires_at=soon)
    coming = db.dead_letter(expires_at=late)
    db.clock.advance("2 hours")

    db.requeue(passed)
    db.requeue(coming)

    assert (db.job(passed).expires_at, db.job(coming).expires_at) == (None, late)


@pytest.mark.parametrize("how", ["cancelled", "resolved"])
def test_a_cancelled_or_resolved_job_can_be_brought_back(db, how):
    if how == "cancelled":
        job = db.enqueue("ocr", {"n": 1}, priority=3, timeout="1 min")
        db.cancel(job, "mistake")
    else:
        job = db.dead_letter("ocr", {"n": 1}, priority=3, timeout="1 min")
        db.resolve(job)

    assert db.requeue(job) == "ready"

    row = db.job(job)
    assert (row.state, row.payload, row.priority, row.finished_at, row.note) == (
        "ready",
        {"n": 1},
        3,
        None,
        None,
    )
    db.complete(db.claim())
    assert db.state(job) == "done"


@pytest.mark.parametrize("state", ["ready", "scheduled", "running", "blocked", "done"])
def test_what_is_not_over_or_is_done_cannot_be_requeued(db, state):
    job = {
        "ready": db.enqueue,
        "scheduled": lambda: db.enqueue(run_at=db.now() + timedelta(hours=1)),
        "running": lambda: db.running().job_id,
        "blocked": lambda: db.enqueue(concurrency_key="k"),
        "done": db.done,
    }[state]()

    with db.refused("OW007", str(job), f'"{state}"'):
        db.requeue(job)


def test_a_resolved_dead_letter_leaves_the_list_and_keeps_note_and_name(db):
    job = db.dead_letter()

    db.resolve(job, "  invoice sent by post ")

    row = db.job(job)
    assert (row.state, row.finished_at) == ("resolved", db.now())
    assert row.note == f"invoice sent by post (by {db.value('select session_user')})"
    assert db.run("select * from onceward.dead_letters") == []
    assert row.last_error["message"] == "it broke"


@pytest.mark.parametrize("state", ["ready", "running", "done", "cancelled", "resolved"])
def test_only_a_dead_letter_is_resolved(db, state):
    match state:
        case "ready":
            job = db.enqueue()
        case "running":
            job = db.running().job_id
        case "done":
            job = db.done()
        case "cancelled":
            job = db.enqueue()
            db.cancel(job)
        case "resolved":
            job = db.dead_letter()
            db.resolve(job)

    with db.refused("OW007", str(job), f'"{state}"'):
        db.resolve(job)


@pytest.fixture
def checked(db):
    """A task whose dead letters may be resolved only when nothing is open."""
    db.run("create table public.open_case (job_id uuid, what text)")
    db.run("grant select on public.open_case to onceward_owner")
    db.run(
        "create function public.nothing_open(p_job_id uuid) returns text language sql stable "
        "as $$ select what from public.open_case where job_id = p_job_id $$"
    )
    db.run("select onceward.set_resolve_check('ocr', 'public.nothing_open(uuid)')")
    return db


def test_a_check_that_passes_lets_a_dead_letter_be_resolved(checked):
    job = checked.dead_letter("ocr")

    checked.resolve(job)

    assert checked.state(job) == "resolved"


def test_a_check_that_does_not_pass_says_what_is_missing(checked):
    job = checked.dead_letter("ocr")
    checked.run("insert into public.open_case values (%s, 'Refund 7 is still open.')", job)

    with checked.refused("OW010", "ocr", str(job), "Refund 7 is still open.", "override"):
        checked.resolve(job)
    assert checked.state(job) == "dead_letter"


def test_an_override_is_possible_and_recorded(checked):
    job = checked.dead_letter("ocr")
    checked.run("insert into public.open_case values (%s, 'Refund 7 is still open.')", job)

    checked.resolve(job, "refunded in cash", override=True)

    assert checked.state(job) == "resolved"
    assert "refunded in cash" in checked.job(job).note
    assert "check overridden: Refund 7 is still open." in checked.job(job).note


def test_an_override_that_was_not_needed_is_not_recorded(checked):
    job = checked.dead_letter("ocr")

    checked.resolve(job, "fine", override=True)

    assert "overridden" not in checked.job(job).note


def test_other_tasks_have_no_check(checked):
    job = checked.dead_letter("mail")
    checked.run("insert into public.open_case values (%s, 'open')", job)

    checked.resolve(job)

    assert checked.state(job) == "resolved"


@pytest.mark.parametrize("trouble", ["drop function public.nothing_open", "drop table public.open_case"])
def test_a_check_that_is_broken_does_not_pass_but_can_be_overridden(checked, trouble):
    job = checked.dead_letter("ocr")
    checked.run(trouble)

    with checked.refused("OW010", "public.nothing_open", "does not exist"):
        checked.resolve(job)
    checked.resolve(job, "seen to", override=True)
    assert "does not exist" in checked.job(job).note


def test_a_check_can_be_taken_away(checked):
    job = checked.dead_letter("ocr")
    checked.run("insert into public.open_case values (%s, 'open')", job)
    checked.run("select onceward.set_resolve_check('ocr', null)")

    checked.resolve(job)

    assert checked.state(job) == "resolved"


@pytest.mark.parametrize(
    "check", ["pg_catalog.now()", "pg_catalog.length(text)", "pg_catalog.uuid_send(uuid)"]
)
def test_a_check_with_another_signature_is_refused(db, check):
    with db.refused("OW008", "check", "returns text"):
        db.run("select onceward.set_resolve_check('ocr', %s::regprocedure)", check)


def test_tasks_show_their_check(checked):
    (row,) = checked.run("select * from onceward.tasks where name = 'ocr'")

    assert row.resolve_check == "public.nothing_open"


def test_a_scheduled_job_can_be_started_at_once(db):
    job = db.enqueue(run_at=db.now() + timedelta(hours=1))
    keyed = db.enqueue(run_at=db.now() + timedelta(hours=1), concurrency_key="k")

    assert db.answer("run_now", job_id=job) == "ready"
    assert db.answer("run_now", job_id=keyed) == "blocked"
    assert {claim.job_id for claim in db.claims(2)} == {job, keyed}


def test_only_a_scheduled_job_is_started_early(db):
    job = db.enqueue()

    with db.refused("OW007", str(job), '"ready"'):
        db.call("run_now", job_id=job)
