"""One thing done to many jobs: after a preview, and to those that it has shown."""

from __future__ import annotations

import re

import pytest


def test_all_that_a_filter_finds_is_cancelled_after_a_preview(ana, db):
    db.enqueue_many("spam", [{} for _ in range(60)])
    kept = db.enqueue("mail")

    preview = ana.get("/jobs/cancel?state=ready&task=spam")
    assert "Cancel 60 jobs" in preview
    ana.confirm("/jobs/cancel?state=ready&task=spam", reason="a slip")
    assert db.value("select count(*) from onceward.jobs where state = 'cancelled'") == 60
    assert db.state(kept) == "ready"
    ana.get("/jobs/cancel?state=running", 400)
    ana.get("/jobs/cancel", 400)


def test_a_kind_of_failure_is_requeued_as_a_whole_after_a_preview_and_spread(ana, db):
    jobs = [db.dead_letter("charge", {"n": n}, "expired") for n in range(3)]
    other = db.dead_letter("mail", {}, "no such host")
    group = db.one("select * from onceward.dead_letters where task = 'charge' limit 1")
    suffix = f"?task=charge&fingerprint={group.fingerprint}"

    assert "Requeue 3 dead letters?" in ana.get(f"/dead-letters/requeue{suffix}")
    assert "must be a whole number" in ana.confirm(f"/dead-letters/requeue{suffix}", 400, rate="some").text
    ana.confirm(f"/dead-letters/requeue{suffix}", rate="60")
    assert db.state(jobs[0]) == "ready"
    waits = sorted((db.job(job).run_at - db.now()).total_seconds() for job in jobs)
    assert waits == [0, 1, 2]
    assert db.state(other) == "dead_letter"


def test_a_kind_of_failure_is_resolved_with_a_note(ana, db):
    jobs = [db.dead_letter("charge", {"n": n}, "expired") for n in range(3)]

    assert "The note is missing." in ana.confirm("/dead-letters/resolve?task=charge", 400).text
    ana.confirm("/dead-letters/resolve?task=charge", note="refunded all")
    assert {db.state(job) for job in jobs} == {"resolved"}


@pytest.mark.parametrize("verb", ["requeue", "resolve"])
def test_what_came_after_the_question_is_not_meant(ana, db, verb):
    old = [db.dead_letter("charge", {"n": n}, "expired") for n in range(2)]
    gone = db.dead_letter("charge", {"n": 2}, "expired")
    path = f"/dead-letters/{verb}?task=charge"
    asked = re.search(r'name="ids" value="([\w=-]+)"', ana.get(path))[1]
    late = db.dead_letter("charge", {"n": 3}, "expired")
    db.run("select onceward.resolve(%s, 'by somebody else')", gone)

    ana.post(path, ids=asked, note="refunded")

    done = "ready" if verb == "requeue" else "resolved"
    assert [db.state(job) for job in (*old, gone, late)] == [done, done, "resolved", "dead_letter"]
    assert "d 2 dead letters; 1 had changed meanwhile" in ana.get("/dead-letters")


def test_jobs_that_came_or_began_after_the_question_are_not_cancelled(ana, db):
    (waits,) = [row.job_id for row in db.enqueue_many("spam", [{}])]
    runs = db.enqueue("spam", priority=5)
    path = "/jobs/cancel?state=ready&task=spam"
    asked = re.search(r'name="ids" value="([\w=-]+)"', ana.get(path))[1]
    db.claim()
    late = db.enqueue("spam")

    ana.post(path, ids=asked)

    assert [db.state(job) for job in (waits, runs, late)] == ["cancelled", "running", "ready"]
    assert db.job(runs).cancel_at is None


@pytest.mark.parametrize("ids", ["", "?", "AAAA", "A" * 50_000])
def test_a_form_that_does_not_say_which_jobs_does_nothing(ana, db, ids):
    job = db.dead_letter("charge")

    ana.post("/dead-letters/requeue", 400, ids=ids)
    ana.post("/jobs/cancel?state=ready", 400, ids=ids)

    assert db.state(job) == "dead_letter"


def test_only_the_kinds_that_are_shown_are_requeued(ana, db):
    mine, other = db.dead_letter("charge", {}, "expired"), db.dead_letter("mail", {}, "no such host")
    db.run(
        "select onceward.assign_dead_letters(task, fingerprint, 'ben') from onceward.dead_letters where id = %s",
        mine,
    )
    third = db.dead_letter("sync", {}, "no answer")
    link = re.search(
        r'href="(/dead-letters/requeue\?whose=nobody)">Requeue these', ana.get("/dead-letters?whose=nobody")
    )

    ana.confirm(link[1])

    assert [db.state(job) for job in (mine, other, third)] == ["dead_letter", "ready", "ready"]
