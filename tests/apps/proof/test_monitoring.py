"""The monitor, the saved questions and retention."""

from __future__ import annotations

import pytest

CHECK = "select raw_ops.fn_check_proof_system_health_v2()"


def failing(sql, count):
    for _ in range(count):
        sql.create()
    for job in sql.claim(count):
        sql.fail(job)


def dead(sql):
    sql.dead_letter()


def stuck(sql):
    sql.create()
    sql.claim()
    sql.clock.advance("5 min 1 s")


def partial(sql):
    sql.create()
    (job,) = sql.claim()
    sql.set_qr(job)
    sql.fail(job)


def four_failed(sql):
    failing(sql, 4)


def slow(sql):
    sql.create()
    (job,) = sql.claim()
    sql.set_qr(job)
    sql.set_label(job)
    sql.one("select raw_ops.fn_finalize_proof_job_v1(%s, 'q', 'l', 60001)", job.id)


@pytest.mark.parametrize(
    ("trouble", "channel", "severity", "title", "message"),
    [
        (dead, "ops-urgent", "critical", "Proof System: Dead Letter Jobs", "1 proof job(s) in dead letter queue. Manual intervention required."),
        (stuck, "ops-urgent", "critical", "Proof System: Stuck Jobs", "1 proof job(s) stuck in claimed state for >5 minutes."),
        (partial, "ops-alerts", "warning", "Proof System: Partial Completions", "1 proof job(s) with partial step completion."),
        (four_failed, "ops-alerts", "warning", "Proof System: Elevated Failures", "4 proof job(s) in failed state awaiting retry."),
        (slow, "ops-alerts", "warning", "Proof System: Slow Processing", "Proof jobs took 60001ms on average in the last 24 hours (limit 60000ms)."),
    ],
)  # fmt: skip
def test_every_threshold_of_the_table_alerts__trap_p14(sql, trouble, channel, severity, title, message):
    assert sql.one(CHECK)["alert_config"] is None
    trouble(sql)

    alert = sql.one(CHECK)["alert_config"]

    assert (alert["channel"], alert["severity"], alert["title"], alert["message"]) == (
        channel,
        severity,
        title,
        message,
    )
    assert [field["label"] for field in alert["fields"]] == [
        "Dead Letter",
        "Stuck",
        "Failed",
        "Partial",
        "Queue",
        "Avg Duration",
    ]
    assert sql.all("select status, alert_triggered from raw_ops.monitoring_runs order by created_at, alert_triggered") == [
        ("success", False),
        ("success", True),
    ]  # fmt: skip


def test_just_below_the_thresholds_nobody_is_woken(sql):
    failing(sql, 3)
    assert sql.one(CHECK)["alert_config"] is None
    sql.clock.advance("31 s")
    sql.claim(1)
    sql.clock.advance("4 min 59 s")
    assert sql.one(CHECK)["alert_config"] is None


def test_the_figures_are_in_the_run(sql):
    slow(sql)
    failing(sql, 2)
    sql.create()
    answer = sql.one(CHECK)
    (summary, figures) = sql.all("select result_summary, result_json from raw_ops.monitoring_runs")[0]
    assert summary == "Queue: 3, Done 24h: 1, Failed: 2, DLQ: 0"
    assert figures == {
        "stuck_claimed": 0, "dead_letter_count": 0, "failed_count": 2, "partial_completion_count": 0,
        "avg_duration_ms": 60001, "queue_depth": 3, "completed_24h": 1,
    }  # fmt: skip
    assert answer["check_name"] == "proof_system_health"
    sql.clock.advance("25 hours")
    assert sql.one("select raw_ops.fn_proof_figures()")["completed_24h"] == 0


def test_a_run_that_fails_leaves_its_row__trap_p10(sql):
    sql.conn.execute(
        "create or replace function raw_ops.fn_proof_alert(p_figures jsonb) returns jsonb language sql as"
        " 'select to_jsonb(1 / 0)'"
    )

    answer = sql.one(CHECK)

    assert (answer["success"], answer["error"]) == (False, "division by zero")
    assert sql.all("select id::text, status, error_message from raw_ops.monitoring_runs") == [
        (answer["run_id"], "error", "division by zero")
    ]


def test_the_saved_questions_answer(sql):
    partial(sql)
    slow(sql)
    sql.clock.advance("31 s")
    status = dict(sql.all("select state, jobs from raw_ops.proof_queue_status"))
    assert list(status) == ["queued", "claimed", "failed", "dead_letter", "resolved_manual", "done"]
    assert (status["failed"], status["done"]) == (1, 1)
    trend = sql.all("select * from raw_ops.proof_duration_trend")
    assert (len(trend), trend[-1][1:]) == (7, (60001, 60001, 1))
    history = sql.all("select * from raw_ops.proof_failure_history")
    assert (len(history), history[-1][1:]) == (30, (0, 1, 0))
    ((code, qr, label),) = sql.all(
        "select batch_code, qr_uploaded, label_uploaded from raw_ops.proof_partial_completions"
    )
    assert (code, qr, label) == ("PR-260320-001", True, False)
    volume = sql.all("select * from raw_ops.proof_batch_volume")
    assert len(volume) == 36
    assert [row[1:3] for row in volume[-3:]] == [("RELEASED", 0), ("QA_HOLD", 2), ("REJECTED", 0)]


def test_ended_jobs_go_after_90_days_and_their_lines_stay__trap_p18(sql):
    slow(sql)
    kept = sql.dead_letter(sql.create())
    lines = "select id, kind, message, created_at from raw_ops.ops_events where entity_type = 'proof_job' order by created_at, id"
    before = sql.all(lines)
    retain = "select raw_ops.fn_apply_retention_v1()"
    sql.clock.advance("89 days")
    assert sql.one(retain)["proof_jobs"] == 0
    sql.clock.advance("2 days")

    assert sql.one(retain)["proof_jobs"] == 1

    # The dead letter waits for a person, however old it is.
    assert [row[0] for row in sql.all("select id from raw_ops.proof_jobs")] == [kept.id]
    assert sql.all(lines) == before
    assert sql.all("select message from raw_ops.ops_events where entity_type = 'retention'") == [
        ("Retention removed 1 proof jobs",)
    ]
    assert sql.one("select count(*) from raw_ops.batches") == 2
    assert sql.one(retain)["proof_jobs"] == 0
    # A batch whose job is gone gets no second one.
    assert sql.one("select raw_ops.fn_enqueue_missing_proof_jobs_v1()") == 0


def test_labels_are_due_after_two_years_and_not_before__trap_p18(sql):
    slow(sql)
    batch = sql.one("select id from raw_ops.batches")
    due = "select batch_code from raw_ops.fn_expired_labels_v1()"
    sql.clock.advance("729 days")
    assert sql.all(due) == []
    assert sql.one("select raw_ops.fn_forget_label_v1(%s)", batch) is False
    sql.clock.advance("3 days")
    assert sql.all(due) == [("PR-260320-001",)]
    assert [sql.one("select raw_ops.fn_forget_label_v1(%s)", batch) for _ in range(2)] == [True, False]
    assert sql.one("select label_pdf_url from raw_ops.batches") is None
    assert sql.one("select qr_image_url from raw_ops.batches") == "q"
