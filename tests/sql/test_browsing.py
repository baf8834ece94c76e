"""Searches whose cost is bounded, and what they tell about their bounds."""

from __future__ import annotations

from tests.support.engine import Engine


def found(db: Engine, **arguments):
    return [row.id for row in db.call("find_jobs", **arguments)]


def test_a_search_finds_live_and_archived_jobs_newest_first(db):
    jobs = [db.done(), db.dead_letter(), db.enqueue("b"), db.enqueue("a")]

    assert found(db) == jobs[::-1]
    assert found(db, task="a") == [jobs[3]]
    assert found(db, states=["done", "ready"]) == [jobs[3], jobs[2], jobs[0]]
    assert found(db, error="BROKE") == [jobs[1]]
    assert found(db, before=jobs[2], limit=1) == [jobs[1]]


def test_a_search_stops_after_so_many_jobs_and_says_where(db):
    (rare,) = [db.done("rare")]
    others = [row.job_id for row in db.enqueue_many("common", [{}] * 30)]
    newest_first = sorted(others, reverse=True)

    assert found(db, task="rare", scan=10) == []
    stopped = db.answer("scan_end", scan=10)
    assert stopped == newest_first[9]
    assert found(db, task="rare", before=stopped, scan=30) == [rare]
    assert db.answer("scan_end", before=stopped, scan=30) is None


def test_a_search_for_live_states_is_not_used_up_by_the_archive(db):
    waiting = db.enqueue("wait")
    db.cancel(db.enqueue("x"))
    for _ in range(5):
        db.cancel(db.enqueue("x"))

    assert found(db, states=["ready"], scan=2) == [waiting]
    assert db.answer("scan_end", states=["ready"], scan=2) is None


def test_who_is_bound_to_a_tenant_finds_and_counts_nothing_of_others(db):
    own = db.enqueue(tenant="acme")
    db.enqueue(tenant="globex")
    bound = db.on(db.connect(role="onceward_auditor", tenant="acme"))

    assert found(bound) == [own]
    assert found(bound, tenant="globex") == []
    assert bound.answer("estimate_jobs") is None
    everyone = db.on(db.connect(role="onceward_auditor", tenant="*"))
    assert everyone.answer("estimate_jobs") == 2


def test_activity_counts_what_was_done_and_failed_per_minute_and_lane(db):
    db.call("add_lane", name="mail")
    db.done()
    db.done()
    db.fail(db.running(lane="mail"), permanent=True)
    db.clock.advance("1 min")
    db.done()

    rows = [(row.lane, row.done, row.failed, row.about) for row in db.call("activity")]
    assert rows == [("default", 2, 0, False), ("mail", 0, 1, False), ("default", 1, 0, False)]
    db.clock.advance("1 h")
    assert db.call("activity") == []


def test_activity_of_many_is_multiplied_from_a_sample_and_says_so(db):
    db.enqueue_many(payloads=[{"text": "x" * 200}] * 2000)
    while claims := db.claims(500):
        db.exchange(claims)
    rows = db.call("activity", pages=20)

    assert all(row.about for row in rows)
    assert sum(row.done for row in rows) > 200


def test_the_pulse_changes_with_what_the_caller_sees_and_only_then(db):
    acme = db.on(db.connect(role="onceward_auditor", tenant="acme"))
    before = acme.answer("pulse")
    db.enqueue(tenant="globex")
    assert acme.answer("pulse") == before
    job = db.enqueue(tenant="acme")
    after = acme.answer("pulse")
    assert after != before
    db.cancel(job)
    assert acme.answer("pulse") != after


def test_a_count_is_exact_or_says_that_it_is_not(db):
    db.enqueue_many("a", [{}] * 30)
    db.enqueue_many("b", [{}] * 5)
    db.done("a")

    assert db.call("count_found", task="a") == [(31, True)]
    assert db.call("count_found", task="a", scan=36) == [(31, False)]
    assert db.call("count_found", task="a", states=["ready"], scan=36) == [(30, True)]
    (row,) = db.call("count_found", task="a", scan=10)
    assert (row.is_all, row.found < 10) == (False, True)
