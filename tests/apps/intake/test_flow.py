"""From the upload to the time line, and what the rows say on the way."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from onceward_apps.intake.reading import errors
from tests.apps.intake.stage import png


def test_an_upload_becomes_pages_words_facts_and_an_entry(intake, door):
    answer = door.upload(png("Glucose 5.4 mmol/L"))
    assert answer.status_code == 201, answer.text
    said = answer.json()
    assert said["success"]
    assert not said["duplicate"]
    assert said["status"] == "uploaded"

    intake.drain()

    file = intake.file(UUID(said["shell_file_id"]))
    assert file["status"] == "completed"
    assert (file["page_count"], file["document_kind"], file["needs_review"]) == (1, "lab_report", False)
    assert intake.all("select content from intake.ocr_words order by word_number") == [
        ("Glucose",), ("5.4",), ("mmol/L",),
    ]  # fmt: skip
    fact = intake.row("select * from intake.clinical_facts")
    assert (fact["name"], fact["value"], fact["unit"], fact["code"], fact["first_word"], fact["last_word"]) == (
        "Glucose", "5.4", "mmol/L", "2345-7", 0, 2,
    )  # fmt: skip
    assert intake.one("select title from intake.timeline_entries") == "Lab report"
    types = {row[0]: row[1] for row in intake.all("select job_type, status from intake.job_queue")}
    assert types == dict.fromkeys(
        ["shell_file_processing", "ai_processing", "ai_queue_pass1", "ai_queue_pass2", "ai_queue_pass3"],
        "completed",
    )


def test_what_two_passes_used_is_on_the_account_to_the_token(intake, door):
    door.upload(png())
    intake.drain()
    used = intake.reading.extractor.tokens
    assert used > 0
    assert intake.one("select ai_tokens_used from intake.user_usage_tracking") == used
    assert intake.one("select sum(actual_tokens) from intake.api_calls") == used


def test_every_clinical_write_is_in_the_audit_log_with_its_patient(intake, door):
    said = door.upload(png()).json()
    intake.drain()
    logged = intake.all(
        "select table_name, operation, patient_id from intake.audit_log where compliance_category = 'clinical_data'"
    )
    assert {name for name, _, _ in logged} == {
        "shell_files",
        "ocr_words",
        "clinical_facts",
        "timeline_entries",
    }
    assert {patient for _, _, patient in logged} == {intake.profile}
    assert intake.one(
        "select count(*) from intake.audit_log where correlation_id = %s", said["correlation_id"]
    )


def test_what_the_scan_refuses_is_told_and_not_tried_again(intake, door):
    said = door.upload(png("EVIL")).json()
    intake.drain()
    file = intake.file(UUID(said["shell_file_id"]))
    assert file["status"] == "rejected"
    assert file["refusal"]["code"] == "active_content"
    assert intake.one("select status from intake.job_queue") == "completed"


def test_a_failure_is_recorded_in_the_documented_structure_and_resolved_by_success(intake, door):
    intake.clock.pin()
    intake.reading.trouble = [RuntimeError("the words of the page: CANARY")]
    said = door.upload(png()).json()
    intake.drain()
    error = intake.file(UUID(said["shell_file_id"]))["processing_error"]
    assert set(error) == {"current_error", "error_history", "metrics"}
    current = error["current_error"]
    assert set(current) >= {
        "job_type", "error_type", "error_message", "retry_count", "next_retry_at", "worker_id", "duration_ms", "timestamp",
    }  # fmt: skip
    assert current["error_type"] == "ocr_failure"
    assert "CANARY" not in str(error)
    assert error["metrics"]["error_types"] == {"ocr_failure": 1}

    intake.clock.advance("3 s")
    intake.drain()

    file = intake.file(UUID(said["shell_file_id"]))
    assert file["status"] == "completed"
    assert "current_error" not in file["processing_error"]
    assert [line["resolved"] for line in file["processing_error"]["error_history"]] == [True]


def test_waits_grow_from_two_seconds_to_sixty_four_with_a_tenth_of_jitter_and_then_it_is_a_dead_letter(
    intake, door
):
    intake.clock.pin()
    intake.reading.trouble = [RuntimeError("no")] * 7
    said = door.upload(png()).json()
    waits = []
    for _ in range(7):
        intake.drain()
        due = intake.row(
            "select scheduled_at - onceward.now() as wait, status, retry_count from intake.job_queue where id = %s",
            UUID(said["job_id"]),
        )
        waits.append(due["wait"].total_seconds())
        intake.clock.advance("80 s")
    assert due["status"] == "failed"
    for wait, least in zip(waits, [2, 4, 8, 16, 32, 64], strict=False):
        assert least <= wait <= least * 1.11
    assert intake.file(UUID(said["shell_file_id"]))["status"] == "failed"
    assert intake.one("select dead_letter_at is not null from intake.job_queue")


def test_a_provider_that_asks_to_wait_is_left_alone_so_long_and_no_attempt_is_used(intake, door):
    intake.clock.pin()
    intake.reading.extractor.trouble = [errors.RateLimited("small", "429", timedelta(seconds=20))]
    door.upload(png())
    intake.drain()
    assert intake.reading.extractor.asked == 1
    assert (
        intake.one("select status from intake.api_rate_limits where provider_name = 'embedded'") == "paused"
    )
    intake.clock.advance("19 s")
    intake.drain()
    assert intake.reading.extractor.asked == 1
    intake.clock.advance("2 s")
    intake.drain()
    assert intake.one("select status from intake.shell_files") == "completed"
    assert intake.one("select max(retry_count) from intake.job_queue") == 0


def test_what_is_not_sure_is_marked_for_a_person(intake, door):
    intake.reading.extractor.confidence = 0.6
    door.upload(png())
    intake.drain()
    assert intake.one("select needs_review from intake.shell_files")
    assert intake.one("select needs_review from intake.clinical_facts")
    assert intake.one("select needs_review from intake.timeline_entries")


def test_a_file_whose_worker_died_with_the_last_attempt_is_marked(intake, door):
    said = door.upload(png()).json()
    intake.configure("worker.max_retries", "1")
    intake.conn.execute("set onceward.tenant = '*'")
    for _ in range(10):
        claimed = intake.one("select (c).job_id from intake.claim_next_job_v3('w') as c")
        if claimed is None:
            break
        intake.clock.advance("301 s")
    intake.drain()
    assert intake.file(UUID(said["shell_file_id"]))["status"] == "uploaded"
    intake.clock.advance("120 s")
    intake.drain()
    assert intake.file(UUID(said["shell_file_id"]))["status"] == "failed"
