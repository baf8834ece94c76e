"""Programs that work proof jobs in SQL: claim, set, finalise, fail."""

from __future__ import annotations

import psycopg
import pytest

FLAGS = ("qr_generated", "qr_uploaded", "label_generated", "label_uploaded", "email_sent")


def flags(job):
    return {name for name in FLAGS if getattr(job, name)}


def test_a_program_that_calls_only_the_documented_functions_completes_a_job(sql):
    batch = sql.create()

    (job,) = sql.claim()
    assert (job.state, str(job.batch_id), job.attempts) == ("claimed", batch["batch_id"], 1)
    assert sql.set_qr(job) == {"success": True, "batch_code": "PR-260320-001"}
    assert sql.set_label(job) == {"success": True, "batch_code": "PR-260320-001"}
    assert sql.finalize(job) == {"success": True, "batch_code": "PR-260320-001"}

    done = sql.job(batch)
    assert (done.state, done.processing_duration_ms, flags(done)) == ("done", 1234, set(FLAGS))
    assert done.completed_at is not None
    row = sql.batch(batch)
    assert (row.qr_image_url, row.label_pdf_url) == ("q", "l")
    assert sql.claim() == []
    # The lease of the claim has ended with it.
    assert sql.one("select count(*) from onceward.workers where state = 'live'") == 0


def test_the_audit_trail_has_the_fields_of_the_contract(sql):
    batch = sql.create()
    (job,) = sql.claim()
    sql.set_qr(job)
    sql.fail(job, "the renderer is away", progress={"label_generated": True})
    sql.clock.advance("31 s")
    (job,) = sql.claim()
    sql.set_label(job)
    sql.finalize(job)

    meta = dict(sql.all("select message, meta from raw_ops.ops_events where entity_type = 'proof_job'"))
    of = {"batch_code": batch["batch_code"], "batch_id": batch["batch_id"], "job_id": str(job.id)}
    assert meta["Proof job enqueued"] == of
    # What was done when it failed, whatever has been done since.
    done = {name: name in {"qr_generated", "qr_uploaded", "label_generated"} for name in FLAGS}
    assert meta["Proof job failed (attempt 1/5)"] == {
        **of, "error": "the renderer is away", "error_category": "pdf_generation", "attempts": 1, "max_attempts": 5,
        "step_progress": done,
    }  # fmt: skip
    assert meta["Proof job completed successfully"] == {
        **of, "duration_ms": 1234, "qr_image_url": "q", "label_pdf_url": "l",
    }  # fmt: skip


def test_claims_are_disjoint_and_bounded(sql):
    for _ in range(5):
        sql.create()
    first, second, third = sql.claim(2), sql.claim(2), sql.claim(2)
    assert [len(first), len(second), len(third)] == [2, 2, 1]
    assert len({job.id for job in first + second + third}) == 5


@pytest.mark.parametrize("limit", [0, -1, 101, None])
def test_a_limit_that_makes_no_sense_is_refused(sql, limit):
    with pytest.raises(psycopg.Error, match="p_limit must be between 1 and 100"):
        sql.claim(limit)


def test_a_job_whose_program_died_is_handed_to_the_next_by_itself__trap_p2(sql):
    batch = sql.create()
    (job,) = sql.claim()
    sql.clock.advance("4 min 59 s")
    assert sql.claim() == []
    sql.clock.advance("2 s")

    (again,) = sql.claim()

    assert (again.id, again.attempts) == (job.id, 2)
    # What the dead one says when it wakes up counts no more, if it says which claim it speaks of.
    assert not sql.set_qr(job, epoch=job.epoch)["success"]
    assert not sql.fail(job, epoch=job.epoch)["success"]
    assert not sql.finalize(job, epoch=job.epoch)["success"]
    assert flags(sql.job(batch)) == set()
    assert sql.set_qr(again, epoch=again.epoch)["success"]


def test_a_job_that_kills_its_program_each_time_ends_as_a_dead_letter__trap_p3(sql):
    batch = sql.create()
    for attempt in range(1, 6):
        (job,) = sql.claim()
        assert job.attempts == attempt
        sql.clock.advance("6 min")
    assert sql.claim() == []
    assert (sql.job(batch).state, sql.job(batch).attempts) == ("dead_letter", 5)


def test_a_program_that_works_for_long_keeps_its_claim_by_a_heartbeat__trap_p4(sql):
    for _ in range(3):
        sql.create()
    held = sql.claim()
    for _ in range(4):
        sql.clock.advance("3 min")
        assert sql.one("select raw_ops.fn_heartbeat_proof_jobs_v1(%s)", [job.id for job in held]) == 3
    assert sql.claim() == []
    sql.clock.advance("6 min")
    assert len(sql.claim()) == 3
    assert sql.one("select raw_ops.fn_heartbeat_proof_jobs_v1(%s)", [held[0].id]) in {0, 1}


def test_a_retry_knows_what_was_done__trap_p5(sql):
    sql.create()
    (job,) = sql.claim()
    sql.set_qr(job)
    answer = sql.fail(
        job,
        "no answer",
        "pdf_generation",
        {"qr_generated": True, "label_generated": True, "email_sent": False},
    )
    assert answer == {
        "success": True, "new_state": "failed", "attempts": 1, "max_attempts": 5, "alert_needed": False, "alert_config": None,
    }  # fmt: skip
    assert sql.claim() == []
    failed = sql.job()
    assert (failed.state, failed.last_error, failed.error_category) == (
        "failed",
        "no answer",
        "pdf_generation",
    )
    assert flags(failed) == {"qr_generated", "qr_uploaded", "label_generated"}

    sql.clock.advance("30 s")
    (again,) = sql.claim()

    assert flags(again) == {"qr_generated", "qr_uploaded", "label_generated"}


def test_a_step_that_never_ran_does_not_look_done__trap_p6(sql):
    batch = sql.create()
    (job,) = sql.claim()

    answer = sql.finalize(job)
    assert (answer["success"], answer["missing_steps"]) == (False, list(FLAGS[:4]))
    sql.set_qr(job)
    answer = sql.finalize(job)
    assert answer["error"] == "Steps not done: label_generated, label_uploaded"

    assert (sql.job(batch).state, flags(sql.job(batch))) == ("claimed", {"qr_generated", "qr_uploaded"})


def test_each_step_can_be_reported_by_itself__trap_p6(sql):
    sql.create()
    (job,) = sql.claim()
    for count, step in enumerate(FLAGS, start=1):
        assert sql.one("select raw_ops.fn_record_proof_step_v1(%s, %s)", job.id, step)["success"]
        assert flags(sql.job()) == set(FLAGS[:count])
    assert not sql.one("select raw_ops.fn_record_proof_step_v1(%s, 'posted')", job.id)["success"]
    assert sql.finalize(job)["success"]


def test_a_late_failure_does_not_reopen_a_job_that_is_done__trap_p7(sql):
    batch = sql.create()
    (job,) = sql.claim()
    sql.set_qr(job)
    sql.set_label(job)
    sql.finalize(job)

    for epoch in (None, job.epoch):
        assert sql.fail(job, epoch=epoch) == {
            "success": False,
            "error": "Job is not claimed by the caller. Current state: done",
        }
    assert (sql.job(batch).state, sql.job(batch).attempts) == ("done", 1)
    # The repetition of a call whose reply was lost is told the same again.
    assert sql.finalize(job, epoch=job.epoch)["success"]
    assert not sql.finalize(job)["success"]


def test_what_was_not_claimed_is_neither_finished_nor_failed__trap_p7(sql):
    batch = sql.create()
    job = sql.job(batch)
    assert sql.finalize(job)["error"] == "Job not found or not in claimed state"
    assert sql.fail(job)["error"] == "Job is not claimed by the caller. Current state: queued"
    assert sql.one(
        "select raw_ops.fn_mark_proof_job_failed_v1('00000000-0000-0000-0000-000000000000', 'x')"
    ) == {"success": False, "error": "Job not found"}


def test_a_job_that_a_worker_holds_is_not_a_programs_to_report_on__trap_p7(sql):
    batch = sql.create()
    (job,) = sql.claim()
    sql.clock.advance("6 min")
    sql.one("select onceward.rescue()")
    worker = sql.one("select onceward.register_worker('w', array['proof'])")
    assert sql.all("select job_id from onceward.claim(%s, array['proof'])", worker) == [(job.id,)]

    # By its id alone: the last claim made in SQL is not the one that holds it.
    assert sql.set_qr(job) == {"success": False, "error": "Another worker has this job"}
    assert not sql.finalize(job)["success"]
    assert not sql.fail(job)["success"]
    assert sql.batch(batch).qr_image_url is None


def test_after_five_attempts_there_is_a_dead_letter_and_a_critical_alert(sql):
    batch = sql.create()
    for attempt in range(1, 6):
        (job,) = sql.claim()
        answer = sql.fail(job, "x" * 500, "email_delivery")
        assert (answer["attempts"], answer["alert_needed"]) == (attempt, attempt == 5)
        sql.clock.advance("30 s")

    assert answer["new_state"] == "dead_letter"
    assert answer["alert_config"] == {
        "channel": "ops-urgent",
        "severity": "critical",
        "title": "Proof Job Dead Letter: PR-260320-001",
        "message": "Proof generation failed after 5 attempts. Manual intervention required.",
        "fields": [
            {"label": "Batch", "value": "PR-260320-001", "inline": True},
            {"label": "Attempts", "value": "5", "inline": True},
            {"label": "Error", "value": "x" * 200, "inline": False},
            {"label": "Category", "value": "email_delivery", "inline": True},
        ],
    }
    assert sql.all(
        "select kind, message from raw_ops.ops_events where kind <> 'INFO' order by created_at"
    ) == [
        *(("EXCEPTION", f"Proof job failed (attempt {n}/5)") for n in range(1, 5)),
        ("ERROR", "Proof job moved to dead letter queue after 5 attempts"),
    ]
    assert sql.job(batch).claimed_at is not None


@pytest.mark.parametrize(
    ("reported", "kept"),
    [
        ("storage_upload", "storage_upload"),
        ("db_error", "db_error"),
        ("gremlins", "unknown"),
        (None, "unknown"),
    ],
)
def test_a_failure_is_recorded_whatever_its_reporter_calls_it(sql, reported, kept):
    sql.create()
    (job,) = sql.claim()
    assert sql.fail(job, category=reported)["success"]
    assert sql.job().error_category == kept


def test_an_operator_sets_assets_of_a_job_that_nobody_works_on(sql):
    job = sql.dead_letter()
    assert sql.set_qr(job)["success"]
    assert sql.set_label(job)["success"]
    assert sql.one("select count(*) from raw_ops.ops_events where message like 'QR assets set%%'") == 1
    # Once more changes nothing, and says nothing.
    sql.set_qr(job)
    assert sql.one("select count(*) from raw_ops.ops_events where message like 'QR assets set%%'") == 1
    assert (
        sql.one("select raw_ops.fn_set_batch_qr_assets_v1(gen_random_uuid(), 'q', 'p')")["error"]
        == "Batch not found"
    )
    assert not sql.one("select raw_ops.fn_set_batch_label_asset_v1(%s, '')", job.batch_id)["success"]


def test_the_view_has_every_column_of_the_contract(sql):
    sql.create()
    assert sql.job()._fields == (
        "id", "batch_id", "job_key", "state", "attempts", "max_attempts", "last_error", "error_category",
        "processing_duration_ms", "qr_generated", "qr_uploaded", "label_generated", "label_uploaded", "email_sent",
        "created_at", "updated_at", "claimed_at", "completed_at", "epoch",
    )  # fmt: skip
