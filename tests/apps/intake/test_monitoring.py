"""Every documented target and threshold is a monitor, and each is tripped here."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from uuid import UUID

import pytest

from onceward.worker import Worker
from tests.apps.intake.stage import Intake

BOUNDS = {
    "fast_queue_p95": 120, "ai_queue_p95": 600, "success_rate": 0.995, "retry_rate": 0.05, "dead_letter_rate": 0.001,
    "queue_depth": 1000, "error_rate": 0.1, "health": 3,
}  # fmt: skip


@pytest.fixture
def sql(intake):
    intake.clock.pin("2026-05-04T10:00:00Z")
    intake.conn.execute(
        "select set_config('request.jwt.claims', %s, false)", [f'{{"sub": "{intake.owner}"}}']
    )
    return intake


def file(intake: Intake) -> UUID:
    return intake.one(
        "with new as (select gen_random_uuid() as id) select (intake.accept_upload(id, %s, 'a.png', 'image/png', 10, sha256('x'), "
        "%s || '/' || id, id::text, 1500, id) ->> 'job_id')::uuid from new",
        intake.profile, str(intake.profile),
    )  # fmt: skip


def work(intake, *, fails: int = 0, dies: bool = False, after: str = "1 s") -> None:
    """One file through the fast queue, in SQL: some failures, then its end."""
    job = file(intake)
    intake.clock.advance(after)
    for _ in range(7 if dies else fails):
        assert (
            intake.one(
                "select (c).job_id from intake.claim_next_job_v3('w', array['shell_file_processing']) as c"
            )
            == job
        )
        intake.one("select intake.fail_job(%s, 'w', 'api_error', 'no')", job)
        intake.clock.advance("71 s")
    if not dies:
        assert (
            intake.one(
                "select (c).job_id from intake.claim_next_job_v3('w', array['shell_file_processing']) as c"
            )
            == job
        )
        assert intake.one("select intake.complete_job(%s, 'w')", job)


def found(intake, name) -> list[str]:
    intake.conn.execute("select set_config('request.jwt.claims', '', false)")
    status = intake.row_of("select * from onceward.run_monitor(%(name)s)", name=f"intake_{name}")
    assert status.status in {"ok", "firing"}, status
    alerts = intake.all(
        "select summary from onceward.alerts where monitor = %s and closed_at is null", f"intake_{name}"
    )
    intake.conn.execute(
        "select set_config('request.jwt.claims', %s, false)", [f'{{"sub": "{intake.owner}"}}']
    )
    return [summary for (summary,) in alerts]


def test_the_thresholds_are_the_documented_ones(sql):
    rows = sql.all("select monitor, value from onceward.thresholds where monitor like 'intake_%%'")
    assert {name.removeprefix("intake_"): float(value) for name, value in rows} == BOUNDS


def test_nothing_is_told_when_all_is_well(sql):
    for _ in range(3):
        work(sql)
    assert {name: found(sql, name) for name in BOUNDS} == {name: [] for name in BOUNDS}


def test_the_fast_queue_is_slower_than_two_minutes(sql):
    for _ in range(10):
        work(sql)
    assert found(sql, "fast_queue_p95") == []
    work(sql, after="200 s")
    work(sql, after="200 s")
    assert "fast queue takes" in found(sql, "fast_queue_p95")[0]


def test_the_ai_queue_is_slower_than_ten_minutes(sql):
    job = file(sql)
    sql.one(
        'select intake.finish_ocr(id, 1, 100, \'{"provider_name": "embedded"}\') from intake.shell_files where job_id = %s',
        job,
    )
    sql.clock.advance("11 min")
    got = sql.one("select (c).job_id from intake.claim_next_job_v3('w', array['ai_processing']) as c")
    assert sql.one("select intake.complete_job(%s, 'w')", got)
    assert "AI queue takes" in found(sql, "ai_queue_p95")[0]


def test_success_and_dead_letters(sql):
    work(sql, dies=True)
    for _ in range(3):
        work(sql)
    assert "only 75.00 % of the jobs" in found(sql, "success_rate")[0]
    assert "25.000 % of the jobs of the last hour are dead letters" in found(sql, "dead_letter_rate")[0]


def test_retries(sql):
    for _ in range(9):
        work(sql)
    assert found(sql, "retry_rate") == []
    work(sql, fails=1)
    assert "10.00 %" in found(sql, "retry_rate")[0]


def test_a_tenth_of_the_attempts_fails_within_five_minutes(sql):
    for _ in range(9):
        work(sql)
    assert found(sql, "error_rate") == []
    work(sql, fails=1)
    work(sql, fails=1)
    assert found(sql, "error_rate")
    sql.clock.advance("6 min")
    assert found(sql, "error_rate") == []


def test_a_thousand_jobs_wait(sql):
    sql.conn.execute(
        "select intake.enqueue_job_v3('report_generation', 'r', '{\"n\": 1}') from generate_series(1, 999)"
    )
    assert found(sql, "queue_depth") == []
    sql.conn.execute("select intake.enqueue_job_v3('report_generation', 'r', '{\"n\": 1}')")
    assert found(sql, "queue_depth") == ["1000 jobs are waiting"]


def test_three_health_checks_in_a_row_are_missed(sql):
    asyncio.run(Worker(sql.app, dsn=sql.dsn).drain())
    # A worker that stopped in good order is not missed; one that was lost is.
    sql.clock.advance("10 min")
    assert found(sql, "health") == []
    sql.conn.execute(
        "select onceward.register_worker('lost', array['fast_queue', 'ai_queue'], p_host => 'somewhere')"
    )
    for seconds, told in [(29, []), (60, []), (2, ["no worker has answered 3 health checks in a row"])]:
        sql.clock.advance(timedelta(seconds=seconds))
        assert found(sql, "health") == told


def test_the_levels_on_the_page_are_the_same(sql):
    work(sql)
    levels = {row[0]: (row[4], row[5]) for row in sql.all("select * from intake.service_levels()")}
    assert set(levels) == set(BOUNDS)
    assert all(met for _, met in levels.values())
