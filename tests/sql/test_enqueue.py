from __future__ import annotations

from datetime import timedelta

import pytest


def test_a_new_job_is_ready_and_carries_what_was_given(db):
    job = db.enqueue(
        "mail.send",
        {"to": "a@example.org"},
        priority=7,
        timeout="90 s",
        max_attempts=3,
        headers={"trace": "1"},
        retry={"waits": [1, 2]},
    )

    row = db.job(job)
    assert (row.state, row.task, row.lane, row.tenant) == ("ready", "mail.send", "default", "default")
    assert row.payload == {"to": "a@example.org"}
    assert (row.priority, row.timeout, row.max_attempts) == (7, timedelta(seconds=90), 3)
    assert (row.headers, row.retry) == ({"trace": "1"}, {"waits": [1, 2]})
    assert (row.attempt, row.epoch, row.snoozes) == (0, 0, 0)
    assert row.created_at == row.run_at == db.now()
    assert row.started_at is row.finished_at is row.worker_id is row.result is None


def test_enqueue_answers_which_job_and_that_it_was_created(db):
    answer = db.enqueued()

    assert (answer.created, answer.answer, answer.until, answer.reason) == (True, "accepted", None, None)
    assert db.state(answer.job_id) == "ready"


def test_the_payload_defaults_to_an_empty_object(db):
    job = db.value("select job_id from onceward.enqueue('ocr')")

    assert db.job(job).payload == {}


@pytest.mark.parametrize("value", ["[1, 2]", '"text"', "7", "null", "true", '{"ä": "日本", "e": "🙂"}'])
def test_an_object_of_any_json_is_a_payload_and_comes_back_unchanged(db, value):
    payload = f'{{"value": {value}}}'
    job = db.value("select job_id from onceward.enqueue('ocr', %s::jsonb)", payload)

    assert db.value("select payload = %s::jsonb from onceward.jobs where id = %s", payload, job)


def test_a_job_with_a_later_run_at_is_scheduled(db):
    later = db.now() + timedelta(hours=1)

    job = db.enqueue(run_at=later)

    assert (db.state(job), db.job(job).run_at) == ("scheduled", later)


@pytest.mark.parametrize("ago", ["0", "1 s", "20 years"])
def test_a_job_whose_run_at_has_come_is_ready(db, ago):
    job = db.value(
        "select job_id from onceward.enqueue('ocr', p_run_at => onceward.now() - %s::interval)", ago
    )

    assert db.state(job) == "ready"


def test_a_rolled_back_transaction_leaves_no_job(db):
    conn = db.connect(autocommit=False)
    db.on(conn).enqueue(key="k")
    conn.rollback()

    assert db.states() == {}
    assert db.value("select count(*) from onceward.key_private") == 0


def test_many_jobs_are_answered_in_the_order_of_their_payloads(db):
    rows = db.enqueue_many("mail", [{"n": n} for n in range(50)], priority=3, lane="default")

    assert [db.job(row.job_id).payload["n"] for row in rows] == list(range(50))
    assert {row.created for row in rows} == {True}
    assert {db.job(row.job_id).priority for row in rows} == {3}


def test_many_jobs_are_claimed_in_the_order_of_their_payloads(db):
    db.enqueue_many("mail", [{"n": n} for n in range(50)])

    assert [claim.payload["n"] for claim in db.claims(50)] == list(range(50))


def test_no_payloads_make_no_jobs(db):
    assert db.enqueue_many("mail", []) == []
    assert db.enqueue_many("mail", [], keys=[]) == []
    assert db.states() == {}


def test_many_jobs_can_be_scheduled_or_wait_for_a_concurrency_key(db):
    later = db.now() + timedelta(hours=1)

    (scheduled,) = db.enqueue_many("mail", [{}], run_at=later)
    (blocked,) = db.enqueue_many("mail", [{}], concurrency_key="user-1")

    assert (db.state(scheduled.job_id), db.state(blocked.job_id)) == ("scheduled", "blocked")


def test_a_bad_payload_among_many_leaves_none_of_them(db):
    with db.refused("OW003", "262144", "default"):
        db.enqueue_many("mail", [{}, {"x": "y" * 300_000}, {}])


def test_payloads_up_to_the_cap_of_the_lane_are_taken_and_longer_ones_are_not(db):
    db.answer("add_lane", name="tiny", max_payload_bytes=1024)

    db.enqueue("ocr", {"x": "y" * 1000}, lane="tiny")
    with db.refused("OW003", "at most 1024 bytes", '"tiny"', "reference"):
        db.enqueue("ocr", {"x": "y" * 1100}, lane="tiny")


def test_the_cap_counts_the_payload_itself_also_when_it_comes_compressed_from_a_table(db):
    db.run("create table source as select jsonb_build_object('x', repeat('y', 300000)) as payload")

    with db.refused("OW003", "262144"):
        db.run("select onceward.enqueue('ocr', payload) from source")


def test_ids_are_of_version_7_and_rise(db):
    jobs = [db.enqueue() for _ in range(20)]

    assert jobs == sorted(jobs)
    assert {job.version for job in jobs} == {7}
    assert {job.variant for job in jobs} == {"specified in RFC 4122"}


def test_ids_tell_the_machine_time_also_while_the_virtual_clock_is_elsewhere(db):
    db.clock.advance("300 days")

    job = db.enqueue()

    assert db.value(
        "select %s between onceward.id_at(now() - interval '1 hour') and onceward.id_at(now() + interval '1 s')",
        job,
    )


def test_an_id_is_never_below_the_bound_of_its_moment(db):
    # 18 is monotonic within a session, 15 to 17 within a millisecond by the fraction.
    assert db.value(
        "select bool_and(id >= onceward.id_at(before)) "
        "  from (select clock_timestamp() as before, onceward.new_id() as id from generate_series(1, 2000)) as made"
    )
