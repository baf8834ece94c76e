"""The traps J1 to J9 of the document, each as a promise that is kept."""

from __future__ import annotations

from datetime import date, timedelta

import psycopg
import pytest

from tests.apps.alerts.conftest import EVENING
from tests.apps.alerts.place import NORTH, SOUTH

HOUR = timedelta(hours=1)


@pytest.fixture
def low(place):
    place.values("revenue", [(EVENING - HOUR, 50.0)])
    place.rule()
    return place


def test_j1_uniqueness_is_by_indexes_over_real_columns(low):
    low.begin("detect-alerts")
    low.work()
    again = (
        "insert into alerts.alert_instances (tenant_id, alert_config_id, external_object_id, alert_date, metric_code, title, message, "
        "severity, triggered_at) select tenant_id, alert_config_id, external_object_id, alert_date, metric_code, title, message, severity, "
        "triggered_at + interval '1 hour' from alerts.alert_instances"
    )
    # Also where there is no object: null is one value.
    with pytest.raises(psycopg.errors.UniqueViolation, match="unique_alert_instance"):
        low.conn.execute(again)
    with pytest.raises(psycopg.errors.UniqueViolation, match="decision_card"):
        low.conn.execute(
            "insert into alerts.decision_cards (tenant_id, alert_instance_id, metric_code, period_start, title, options, due_on) "
            "select tenant_id, alert_instance_id, metric_code, period_start, title, options, due_on from alerts.decision_cards"
        )


def test_j2_the_second_run_of_a_window_does_not_start_when_the_first_has_finished(low):
    assert low.begin("detect-alerts")[0] == "started"
    low.work()
    assert low.begin("detect-alerts")[0] == "completed"
    low.clock.advance(timedelta(seconds=30))
    assert low.begin("detect-alerts")[0] == "completed"
    low.work()
    assert len(low.alerts()) == 1
    # The next window is another run, and the condition the same alert.
    low.clock.advance(timedelta(minutes=5))
    assert low.begin("detect-alerts")[0] == "started"
    low.work()
    assert len(low.alerts()) == 1


def test_j3_a_run_whose_worker_is_gone_does_not_hold_its_lock_for_ever(low):
    _, job, *_ = low.begin("detect-alerts")
    low.kill_in_the_middle(job)
    outcome, _, _, holder = low.begin("detect-alerts")
    assert (outcome, bool(holder)) == ("running", True)
    low.clock.advance(timedelta(seconds=31))
    assert low.begin("detect-alerts")[0] == "resumed"
    low.work()
    assert low.begin("detect-alerts")[0] == "completed"
    assert len(low.alerts()) == 1


def test_j4_and_j5_retries_are_counted_and_a_run_that_recovers_leaves_no_dead_letter(low):
    _, job, *_ = low.begin("detect-alerts")
    with low.broken():
        low.work()
        low.clock.advance(timedelta(seconds=1))
        low.work()
    low.clock.advance(timedelta(seconds=5))
    low.work()

    assert low.rows("select status, retry_count from alerts.job_runs where id = %s", job) == [
        ("completed", 2)
    ]
    assert low.rows("select * from alerts.sync_errors") == []


def test_j5_a_dead_letter_is_closed_when_a_person_has_settled_it(low):
    entity = '{"alert_id": "00000000-0000-4000-8000-000000000000"}'
    _, job, *_ = low.begin("process-alert-notifications", entity=entity)
    low.work()
    assert low.rows("select error_code, is_resolved from alerts.sync_errors") == [("EXECUTION_ERROR", False)]
    assert low.rows("select status from alerts.job_runs where id = %s", job) == [("failed",)]

    with low.acting(NORTH, "onceward_operator") as conn:
        conn.execute("select alerts.resolve_run(%s, 'it was a test')", [job])

    assert low.rows("select is_resolved, resolved_at is not null from alerts.sync_errors") == [(True, True)]
    assert low.rows("select status from alerts.job_runs where id = %s", job) == [("cancelled",)]
    # Settled is settled: a call does not start it again, a person can.
    assert low.begin("process-alert-notifications", entity=entity)[0] == "cancelled"


@pytest.mark.parametrize(
    "role", ["onceward_producer", "onceward_worker", "onceward_operator", "onceward_auditor"]
)
def test_j6_no_tenant_means_no_rows_and_no_error(low, role):
    low.begin("detect-alerts")
    low.work()
    readable = low.rows(
        "select c.relname::text from pg_class as c where c.relnamespace = 'alerts'::regnamespace and c.relkind in ('r', 'v') "
        "and has_table_privilege(%s, c.oid, 'select')", role,
    )  # fmt: skip
    assert len(readable) >= 4
    for tenant, expected in (("", 0), ("nobody", 0), (NORTH, 1)):
        with low.acting(tenant, role) as conn:
            for (table,) in readable:
                count = conn.execute(f"select count(*) from alerts.{table}").fetchone()[0]
                assert expected or count == 0, (role, tenant, table)
            assert conn.execute("select count(*) from alerts.job_runs").fetchone()[0] >= expected


def test_j7_the_token_decides_the_tenant(low):
    token = low.token(SOUTH)
    with low.served() as calls:
        for claimed in (NORTH, str(low.tenants[NORTH])):
            answer = calls.post("detect-alerts", token, {"tenant_id": claimed})
            assert (answer.status_code, answer.json()["error"]) == (
                403,
                "The token is bound to another tenant",
            )
        assert low.rows("select * from alerts.job_runs") == []
        assert calls.post("detect-alerts", token, {"tenant_id": str(low.tenants[SOUTH])}).status_code == 200
    assert low.runs("detect-alerts", NORTH) == []
    assert low.alerts(NORTH) == []


def test_j8_nested_entities_hash_alike_whatever_the_order_of_their_keys(low):
    def key(entity: str) -> str:
        with low.acting(NORTH) as conn:
            return conn.execute(
                "select lock_key from alerts.window_at('f', 'day', %s::jsonb)", [entity]
            ).fetchone()[0]

    assert key('{"rule": {"b": [1, {"y": 2, "x": 1}], "a": 1}}') == key(
        '{"rule": {"a": 1.0, "b": [1, {"x": 1, "y": 2}]}}'
    )
    assert key('{"rule": {"a": 1, "b": [1, 2]}}') != key('{"rule": {"a": 1, "b": [2, 1]}}')


def test_j9_a_day_is_that_of_the_tenant(low):
    low.values("revenue", [(EVENING - HOUR, 50.0)], tenant=SOUTH)
    low.rule(tenant=SOUTH)
    for tenant in (NORTH, SOUTH):
        low.begin("detect-alerts", tenant)
    low.work()
    assert [day for _, day, *_ in low.alerts(NORTH)] == [date(2026, 2, 6)]
    assert [day for _, day, *_ in low.alerts(SOUTH)] == [date(2026, 2, 7)]
