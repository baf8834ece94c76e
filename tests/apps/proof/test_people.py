"""What operators do: resolve, requeue, lab results, release, reject."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest
from psycopg.types.json import Jsonb

from tests.apps.proof.stage import PASSING

FAILING = [{**PASSING[0], "result": "Detected", "passed": False}, PASSING[1]]


def resolve(sql, job, note="printed by hand", *, skip=False):
    return sql.one("select raw_ops.fn_resolve_proof_job_manually_v1(%s, %s, %s)", job.id, note, skip)


def requeue(sql, job, note="key renewed"):
    return sql.one("select raw_ops.fn_requeue_proof_job_v1(%s, %s)", job.id, note)


@pytest.mark.parametrize("missing", ["qr_image_url", "label_pdf_url", "proof_url"])
def test_a_job_is_not_resolved_while_an_asset_is_missing__trap_p9(sql, missing):
    job = sql.dead_letter()
    sql.set_qr(job)
    sql.set_label(job)
    sql.conn.execute(f"update raw_ops.batches set {missing} = null")

    assert resolve(sql, job) == {
        "success": False,
        "error": "Cannot resolve: batch is missing assets. Use p_skip_asset_check := true to override.",
        "missing_assets": [missing],
        "batch_code": "PR-260320-001",
    }
    # The engine's own way asks the same.
    with pytest.raises(Exception, match="does not pass") as caught:
        sql.conn.execute("select onceward.resolve(%s, 'done')", [job.id])
    assert caught.value.diag.message_detail == f"batch is missing {missing}"
    assert sql.job().state == "dead_letter"


def test_all_missing_assets_are_named__trap_p9(sql):
    job = sql.dead_letter()
    sql.conn.execute("update raw_ops.batches set proof_url = null")
    assert resolve(sql, job)["missing_assets"] == ["qr_image_url", "label_pdf_url", "proof_url"]


def test_a_job_with_its_assets_is_resolved_with_a_note__trap_p17(sql):
    job = sql.dead_letter()
    sql.set_qr(job)
    sql.set_label(job)

    assert resolve(sql, job) == {"success": True, "batch_code": "PR-260320-001", "resolved": True}

    assert sql.job().state == "resolved_manual"
    ((message, meta),) = sql.all(
        "select message, meta from raw_ops.ops_events where message like '%%resolved'"
    )
    assert message == "Proof job manually resolved"
    assert meta["resolution_note"].startswith("printed by hand (by ")
    assert (meta["asset_check_skipped"], meta["previous_state"]) == (False, "dead_letter")
    assert resolve(sql, job)["error"].endswith("Current state: resolved_manual")


def test_the_asset_check_is_overridden_on_the_record__trap_p17(sql):
    job = sql.dead_letter()
    assert resolve(sql, job, "files are on the shared drive", skip=True)["success"]
    (meta,) = sql.all("select meta from raw_ops.ops_events where message = 'Proof job manually resolved'")[0]
    assert meta["asset_check_skipped"]
    assert "qr_image_url" in meta["resolution_note"]


def test_only_dead_letters_are_resolved_and_only_with_a_note(sql):
    sql.create()
    assert resolve(sql, sql.job())["error"] == (
        "Only dead_letter jobs can be manually resolved. Current state: queued"
    )
    assert sql.one("select raw_ops.fn_resolve_proof_job_manually_v1(gen_random_uuid(), 'x')") == {
        "success": False,
        "error": "Job not found",
    }


def test_a_resolution_needs_a_note(sql):
    job = sql.dead_letter()
    assert resolve(sql, job, " ", skip=True)["error"] == "resolution_note must say how the job was settled"


def test_a_requeued_job_goes_on_where_it_stopped_and_the_log_says_who_and_why__trap_p17(sql):
    batch = sql.create()
    (job,) = sql.claim()
    sql.set_qr(job)
    sql.fail(job)
    for _ in range(4):
        sql.clock.advance("31 s")
        (job,) = sql.claim()
        sql.fail(job)
    assert sql.job(batch).state == "dead_letter"
    assert requeue(sql, job, "")["error"] == "note must say what has changed"

    assert requeue(sql, job) == {"success": True, "batch_code": "PR-260320-001", "new_state": "queued"}

    again = sql.job(batch)
    assert (again.state, again.attempts, again.qr_uploaded, again.label_uploaded) == (
        "queued",
        0,
        True,
        False,
    )
    (meta,) = sql.all("select meta from raw_ops.ops_events where message = 'Proof job requeued'")[0]
    assert (meta["note"], meta["previous_state"], "by" in meta) == ("key renewed", "dead_letter", True)
    assert requeue(sql, job)["error"] == "Only dead_letter jobs can be requeued. Current state: queued"


@pytest.mark.race
def test_of_many_who_resolve_or_requeue_at_once_one_is_told_success(sql):
    job = sql.dead_letter()
    sql.set_qr(job)
    sql.set_label(job)
    start, answers = threading.Barrier(8), []

    def act(statement):
        with sql.connect() as conn:
            start.wait(30)
            answers.append(sql.one(statement, job.id, conn=conn)["success"])

    statements = [
        "select raw_ops.fn_resolve_proof_job_manually_v1(%s, 'x')",
        "select raw_ops.fn_requeue_proof_job_v1(%s, 'x')",
    ]
    threads = [threading.Thread(target=act, args=[statements[n % 2]]) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert sorted(answers) == [False] * 7 + [True]


# ---------------------------------------------------------------- lab results


def test_a_batch_with_passing_results_is_released_with_its_history(sql):
    batch = sql.create()
    assert sql.record(batch) == {
        "success": True, "batch_code": "PR-260320-001", "recorded": 2, "can_be_released": True,
        "missing_results": [], "failed_results": [],
    }  # fmt: skip

    assert sql.release(batch)["success"]

    row = sql.batch(batch)
    assert (row.status, row.released_at) == ("RELEASED", sql.clock.now())
    assert sql.all("select old_status, new_status, reason from raw_ops.batch_status_history order by changed_at, new_status") == [
        (None, "QA_HOLD", None),
        ("QA_HOLD", "RELEASED", "All required results have passed"),
    ]  # fmt: skip
    assert not sql.release(batch)["success"]
    assert not sql.record(batch)["success"]


@pytest.mark.parametrize(
    ("results", "missing", "failed"),
    [
        (None, ["Salmonella", "Enterobacteriaceae"], []),
        (PASSING[:1], ["Enterobacteriaceae"], []),
        (FAILING, [], ["Salmonella"]),
        ([*PASSING, {**PASSING[0], "parameter": "E. coli", "passed": False}], [], ["E. coli"]),
    ],
    ids=["none", "one required is missing", "one failed", "one that is not required failed"],
)
def test_no_release_without_passing_results(sql, results, missing, failed):
    batch = sql.create()
    if results:
        assert sql.record(batch, results)["success"]

    answer = sql.release(batch)

    assert (answer["success"], answer["missing_results"], answer["failed_results"]) == (
        False,
        missing,
        failed,
    )
    assert sql.batch(batch).status == "QA_HOLD"


def test_a_corrected_result_counts_and_the_old_one_stays(sql):
    batch = sql.create()
    sql.record(batch, FAILING)
    sql.record(batch, PASSING, reason="the lab mixed two samples up")
    assert sql.release(batch)["success"]
    assert sql.all(
        "select passed, superseded_at is not null from raw_ops.lab_results where parameter = 'Salmonella' order by 1"
    ) == [(False, True), (True, False)]


@pytest.mark.parametrize("reason", [None, " ", "x" * 2001])
def test_a_failed_result_does_not_become_passed_without_a_reason(sql, reason):
    batch = sql.create()
    sql.record(batch, FAILING)
    answer = sql.record(batch, PASSING, reason=reason)
    assert (answer["success"], answer["failed_before"]) == (False, ["Salmonella"])
    assert not sql.release(batch)["success"]
    # One that passed before, or fails again, needs none.
    assert sql.record(batch, FAILING)["success"]


def test_who_let_a_failed_result_pass_and_why_is_a_warning(sql):
    batch = sql.create()
    sql.record(batch, FAILING)
    sql.run("set onceward.actor = 'ana'")
    assert sql.record(batch, PASSING, reason="the lab mixed two samples up")["can_be_released"]
    (warning,) = sql.all("select message, meta from raw_ops.ops_events where kind = 'WARNING'")
    assert "Salmonella" in warning[0]
    assert (warning[1]["by"], warning[1]["reason"]) == ("ana", "the lab mixed two samples up")


@pytest.mark.parametrize(
    ("found", "limit", "exceeds"),
    [
        ("7200 cfu/g", "5000 cfu/g", True),
        ("7,200 CFU / g", "5 000 cfu/g", True),
        ("5000.5", "5000", True),
        ("5000 cfu/g", "< 5000 cfu/g", False),
        ("< 7200 cfu/g", "5000 cfu/g", False),
        ("7,2 cfu/g", "50 cfu/g", False),
        ("7200 mpn/g", "5000 cfu/g", False),
        ("Not detected", "Absent in 25 g", False),
        ("30 g", "Absent in 25 g", False),
        ("PRESENT in 25 g", "Absent in 25 g", True),
        ("Detected", "Not detected in 25 g", True),
        ("Not present in 25 g", "Absent in 25 g", False),
        ("None found", "Absent", False),
        ("Nothing detected", "Not detected", False),
    ],
)
def test_what_is_above_its_limit_or_must_not_be_there_has_not_passed(sql, found, limit, exceeds):
    batch = sql.create()
    answer = sql.record(batch, [{**PASSING[1], "result": found, "limit": limit}])
    assert answer["success"] is not exceeds
    assert not exceeds or "cannot have passed" in answer["error"]
    assert sql.record(batch, [{**PASSING[1], "result": found, "limit": limit, "passed": False}])["success"]


def test_texts_without_end_and_days_to_come_are_refused(sql):
    batch = sql.create()
    assert sql.record(batch, lab="x" * 201)["error"] == "lab_name may have 200 characters, got 201"
    long = [{**PASSING[0], "result": "x" * 201}]
    assert sql.record(batch, long)["error"] == "result of Salmonella may have 200 characters, got 201"
    later = sql.clock.now().date() + timedelta(days=2)
    assert sql.record(batch, analysed=later)["error"] == f"analysis_date {later} lies in the future"
    for function in ("fn_reject_batch_v1", "fn_release_batch_v1"):
        answer = sql.one(f"select raw_ops.{function}(%s, %s)", batch["batch_id"], "x" * 2001)
        assert "may have 2000 characters" in answer["error"]
    job = sql.dead_letter(batch)
    for function in ("fn_requeue_proof_job_v1", "fn_resolve_proof_job_manually_v1"):
        answer = sql.one(f"select raw_ops.{function}(%s, %s)", job.id, "x" * 2001)
        assert "may have 2000 characters" in answer["error"]
    assert sql.batch(batch).status == "QA_HOLD"


@pytest.mark.parametrize(
    ("results", "error"),
    [
        ([], "results must be a list of 1 to 50 results"),
        ({}, "results must be a list of 1 to 50 results"),
        (["x"], "each result must be an object"),
        ([{**PASSING[0], "parameter": "Gluten"}], "parameter 'Gluten' is not known; known: Salmonella, Enterobacteriaceae, Listeria monocytogenes, E. coli"),
        ([{**PASSING[0], "passed": "yes"}], "passed of Salmonella must be true or false"),
        ([{**PASSING[0], "limit": " "}], "method, result and limit of Salmonella are required"),
        ([PASSING[0], PASSING[0]], "a parameter is named twice"),
        ([PASSING[1], {**PASSING[0], "method": None}], "method, result and limit of Salmonella are required"),
    ],
)  # fmt: skip
def test_results_that_are_not_complete_are_refused_as_a_whole(sql, results, error):
    batch = sql.create()
    assert sql.record(batch, results) == {"success": False, "error": error}
    assert sql.one("select count(*) from raw_ops.lab_results") == 0


def test_a_batch_is_rejected_with_a_reason_and_a_released_one_is_recalled(sql):
    held, sold = sql.create(), sql.create()
    sql.record(sold)
    sql.release(sold)

    def reject(batch, reason):
        return sql.one("select raw_ops.fn_reject_batch_v1(%s, %s)", batch["batch_id"], reason)

    assert reject(held, " ")["error"] == "reason is required"
    assert reject(held, "Salmonella found")["recalled"] is False
    assert reject(sold, "foreign body")["recalled"] is True
    assert reject(held, "again")["error"] == "Batch is already rejected"
    assert not sql.release(held)["success"]
    assert (
        sql.one(
            "select reason from raw_ops.batch_status_history where batch_id = %s and new_status = 'REJECTED'",
            held["batch_id"],
        )
        == "Salmonella found"
    )


@pytest.mark.race
def test_a_failing_result_and_a_release_at_once_never_release_a_failed_batch(sql):
    def race(batch):
        start, answers = threading.Barrier(2), {}
        calls = {
            "release": ("select raw_ops.fn_release_batch_v1(%s)", batch["batch_id"]),
            "record": (
                "select raw_ops.fn_record_lab_results_v1(%s, %s, 'Lab', 'C', '2026-03-21')",
                batch["batch_id"],
                Jsonb(FAILING),
            ),
        }

        def run(name):
            with sql.connect() as conn:
                start.wait(30)
                answers[name] = sql.one(*calls[name], conn=conn)["success"]

        threads = [threading.Thread(target=run, args=[name]) for name in calls]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        return answers

    for _ in range(10):
        batch = sql.create()
        sql.record(batch)
        answers = race(batch)
        # One of them came first, and the other was refused.
        assert answers["release"] != answers["record"]
