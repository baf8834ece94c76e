"""The thresholds as alerts of the engine, what people did in its audit log, and what it forgets."""

from __future__ import annotations

import pytest

from onceward_apps.proof.settings import NOBODY, Settings

RUN = "select status from onceward.run_monitor('proof_system_health')"
OPEN = "select key, severity, summary from onceward.alerts where monitor = 'proof_system_health' and closed_at is null order by key"


def stuck(sql):
    sql.create()
    (job,) = sql.claim()
    for _ in range(2):
        sql.clock.advance("4 min")
        sql.one("select raw_ops.fn_heartbeat_proof_jobs_v1(array[%s::uuid])", job.id)


def failing(sql):
    for _ in range(4):
        sql.create()
    for job in sql.claim(4):
        sql.fail(job)


def partial(sql):
    sql.create()
    (job,) = sql.claim()
    sql.set_qr(job)
    sql.fail(job)


def slow(sql):
    batch = sql.create()
    (job,) = sql.claim()
    sql.set_qr(job)
    sql.set_label(job)
    sql.one("select raw_ops.fn_finalize_proof_job_v1(%s, 'q', 'l', 60001)", job.id)
    assert sql.job(batch).state == "done"


@pytest.mark.parametrize(
    ("trouble", "key", "severity"),
    [
        (lambda sql: sql.dead_letter(), "dead_letters", "critical"),
        (stuck, "stuck", "critical"),
        (partial, "partial_completions", "warning"),
        (failing, "failed", "warning"),
        (slow, "slow", "warning"),
    ],
)
def test_every_threshold_of_the_table_is_an_alert_of_the_engine__trap_p14(sql, trouble, key, severity):
    assert sql.one(RUN) == "ok"
    trouble(sql)
    for _ in range(2):
        assert sql.one(RUN) == "firing"
    # Opened once, however often it is found.
    assert [row[:2] for row in sql.all(OPEN)] == [(key, severity)]


def test_an_alert_closes_by_itself_and_its_threshold_can_be_moved(sql):
    job = sql.dead_letter()
    sql.one(RUN)
    assert [row[0] for row in sql.all(OPEN)] == ["dead_letters"]
    sql.one("select raw_ops.fn_resolve_proof_job_manually_v1(%s, 'by hand', true)", job.id)
    assert sql.one(RUN) == "ok"
    assert sql.all(OPEN) == []
    sql.dead_letter()
    sql.run("select onceward.set_monitor('proof_system_health', '{\"dead_letters\": 1}')")
    assert sql.one(RUN) == "ok"


def test_what_people_decide_is_in_the_sealed_log_with_who_and_why(sql):
    sql.run("select set_config('onceward.actor', 'maya@example.com', false)")
    released, rejected = sql.create(), sql.create()
    sql.record(released)
    sql.release(released)
    sql.one("select raw_ops.fn_reject_batch_v1(%s, 'Salmonella')", rejected["batch_id"])
    (first, second) = sql.claim()
    for job in (first, second):
        sql.set_qr(job)
    for _ in range(5):
        for job in (first, second):
            sql.fail(job)
        sql.clock.advance("31 s")
        first, second = sql.claim() or (first, second)
    sql.one("select raw_ops.fn_requeue_proof_job_v1(%s, 'mended')", first.id)
    sql.one("select raw_ops.fn_resolve_proof_job_manually_v1(%s, 'by hand', true)", second.id)
    entries = sql.all(
        "select kind, actor, tenant, entity_type, before ->> 'status', after ->> 'status' from onceward.audit_log"
        " where source = 'application' order by seq"
    )
    assert {entry[1:4] for entry in entries} == {("maya@example.com", "default", "batch")}
    assert [(kind, before, after) for kind, _, _, _, before, after in entries] == [
        ("proof.batch_created", None, "QA_HOLD"),
        ("proof.batch_created", None, "QA_HOLD"),
        ("proof.lab_results_recorded", None, None),
        ("proof.batch_released", "QA_HOLD", "RELEASED"),
        ("proof.batch_rejected", "QA_HOLD", "REJECTED"),
        ("proof.job_requeued", None, None),
        ("proof.job_resolved", None, None),
    ]


def test_lines_of_jobs_are_written_down_before_the_engine_forgets_them__trap_p18(sql):
    batch = sql.create()
    (job,) = sql.claim()
    sql.set_qr(job)
    sql.set_label(job)
    sql.finalize(job)
    lines = "select message from raw_ops.ops_events where entity_id = %s order by message"
    before = sql.all(lines, batch["batch_id"])
    assert ("Proof job completed successfully",) in before
    sql.clock.advance("85 days")
    assert sql.one("select raw_ops.fn_apply_retention_v1()")["proof_jobs"] == 0
    # None stands there twice.
    assert sql.all(lines, batch["batch_id"]) == before
    # The engine is faster by some hours.
    sql.clock.advance("6 days")
    sql.run("select onceward.retain('archive')")
    assert sql.all(lines, batch["batch_id"]) == before
    assert sql.one("select raw_ops.fn_apply_retention_v1()")["proof_jobs"] == 1
    assert sql.all(lines, batch["batch_id"]) == before
    assert sql.one("select count(*) from raw_ops.proof_job_links") == 0


def test_nobody_is_written_to_by_mistake(tmp_path):
    home = {"ONCEWARD_HOME": str(tmp_path)}
    assert Settings.from_environ(home).copacker_email == NOBODY
    assert Settings.from_environ({**home, "ONCEWARD_EMAIL": "outbox:/x"}).copacker_email == NOBODY
    with pytest.raises(Exception, match="COPACKER_EMAIL is not set"):
        Settings.from_environ({**home, "ONCEWARD_EMAIL": "smtp://mail.example"})
