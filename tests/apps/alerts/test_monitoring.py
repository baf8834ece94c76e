"""Section 9: the three checks, and the summary."""

from __future__ import annotations

from datetime import timedelta

from tests.apps.alerts.conftest import EVENING
from tests.apps.alerts.place import NORTH, SOUTH

GHOST = '{{"alert_id": "00000000-0000-4000-8000-0000000000{:02d}"}}'


def findings(place, monitor: str) -> list[tuple[str, str]]:
    place.conn.execute("select onceward.run_monitor(%s)", [monitor])
    return place.rows(
        "select tenant, summary from onceward.alerts where monitor = %s and state <> 'closed' order by tenant",
        monitor,
    )


def fail(place, count: int) -> None:
    for number in range(count):
        place.begin("process-alert-notifications", entity=GHOST.format(number + 10))
    place.work()


def test_more_than_five_failed_runs_in_a_day_are_an_alert(place):
    fail(place, 5)
    assert findings(place, "alerts_failed_jobs") == []
    fail(place, 6)
    assert findings(place, "alerts_failed_jobs") == [(NORTH, "6 runs of functions failed within 24 hours")]
    # A day later they do not count any more.
    place.clock.advance(timedelta(hours=24))
    assert findings(place, "alerts_failed_jobs") == []


def test_a_run_of_more_than_half_an_hour_is_an_alert(place):
    place.begin("detect-alerts", SOUTH)
    place.clock.advance(timedelta(minutes=30))
    assert findings(place, "alerts_long_running") == []
    place.clock.advance(timedelta(seconds=1))
    found = findings(place, "alerts_long_running")
    assert found[0] == (SOUTH, "detect-alerts has been running since 2026-02-07 01:32 UTC")


def test_more_than_a_tenth_of_retried_runs_is_an_alert(place):
    for hour in range(9):
        place.begin("auto-measure-outcomes", at=EVENING - timedelta(days=hour))
    place.work()
    _, job, *_ = place.begin("auto-measure-outcomes", at=EVENING - timedelta(days=20))
    with place.broken():
        place.work()
    place.clock.advance(timedelta(seconds=1))
    place.work()
    # One of ten is not more than a tenth.
    assert findings(place, "alerts_retry_rate") == []
    _, job, *_ = place.begin("auto-measure-outcomes", at=EVENING - timedelta(days=21))
    with place.broken():
        place.work()
    place.clock.advance(timedelta(seconds=1))
    place.work()
    assert findings(place, "alerts_retry_rate") == [
        (NORTH, "18.2 % of the runs of functions had to be retried within 24 hours")
    ]
    assert place.value("select retry_count from alerts.job_runs where id = %s", job) == 1


def test_a_run_that_a_person_sets_going_again_counts_its_last_try_and_no_retry(place):
    """The wait for a person is no time that a run takes, and what a person does is no retry."""
    _, job, *_ = place.begin("process-alert-notifications", entity=GHOST.format(1))
    place.work()
    for _ in range(2):
        place.clock.advance(timedelta(hours=1))
        with place.acting(NORTH, "onceward_operator") as conn:
            conn.execute("select alerts.retry_run(%s)", [job])
        # It waits for its turn from now on, not from when it was made.
        assert findings(place, "alerts_long_running") == []
        place.work()

    begun = place.clock.now()
    statement = (
        "select status, retry_count, started_at, completed_at, duration_ms from alerts.job_runs where id = %s"
    )
    assert place.rows(statement, job) == [("failed", 0, begun, begun, 0)]
    assert place.rows("select error_details ->> 'retry_count' from alerts.sync_errors") == [("0",)]
    assert findings(place, "alerts_retry_rate") == []
    summary = "select max_duration_ms, retried_count from alerts.job_health_summary where status = 'failed'"
    assert place.rows(summary) == [(0, 0)]

    place.clock.advance(timedelta(hours=1))
    with place.acting(NORTH, "onceward_operator") as conn:
        conn.execute("select alerts.resolve_run(%s, 'A test')", [job])
    assert place.rows(statement, job) == [("cancelled", 0, begun, begun, 0)]
    ((resolved_at, note),) = place.rows("select resolved_at, resolved_note from alerts.sync_errors")
    assert resolved_at == begun + timedelta(hours=1)
    assert note.startswith("A test (by ")


def test_retries_of_the_machine_stay_counted_when_a_person_sets_the_run_going_again(place):
    _, job, *_ = place.begin("auto-measure-outcomes")
    with place.broken():
        for wait in (1, 5, 25, 3600):
            place.work()
            place.clock.advance(timedelta(seconds=wait))
    with place.acting(NORTH, "onceward_operator") as conn:
        conn.execute("select alerts.retry_run(%s)", [job])
    place.work()
    assert place.rows("select status, retry_count, duration_ms from alerts.job_runs where id = %s", job) == [
        ("completed", 3, 0)
    ]
    assert place.rows("select error_details ->> 'retry_count' from alerts.sync_errors") == [("3",)]


def test_the_summary_is_that_of_the_standard(place):
    fail(place, 2)
    place.begin("auto-measure-outcomes")
    place.work()
    found = place.rows(
        "select function_name, status, count, retried_count, avg_duration_ms is not null from alerts.job_health_summary"
    )
    assert found == [
        ("auto-measure-outcomes", "completed", 1, 0, True), ("process-alert-notifications", "failed", 2, 0, True),
    ]  # fmt: skip


def test_job_runs_has_the_columns_of_the_standard(place):
    columns = [name for (name,) in place.rows(
        "select column_name::text from information_schema.columns where table_schema = 'alerts' and table_name = 'job_runs' "
        "order by ordinal_position"
    )]  # fmt: skip
    assert columns[:13] == [
        "id", "tenant_id", "function_name", "lock_key", "status", "input_params", "result", "error_message", "retry_count",
        "started_at", "completed_at", "created_at", "duration_ms",
    ]  # fmt: skip
