"""The standard's checklist, for every function there is.  A new one joins by being registered."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest

from onceward_apps.alerts.jobs import known
from tests.apps.alerts.place import NORTH, SOUTH, at_once

pytestmark = pytest.mark.slow
NAMES = sorted(known())
CALLS = 100
# Where each function of the standard writes; what the tests count is no empty input.
OUTPUTS = {
    "detect-alerts": "alert_instances", "generate-decision-cards": "decision_cards", "auto-measure-outcomes": "outcomes",
    "process-alert-notifications": "ledger", "scheduled-cdp-build": "customer_profiles", "sync-bigquery": "metric_values",
    "sync-ecommerce-data": "orders",
}  # fmt: skip


@pytest.fixture
def filled(place):
    place.fill()
    return place


def test_every_function_of_the_standard_is_registered():
    assert {name: found.every for name, found in known().items() if name in OUTPUTS} == {
        "detect-alerts": "5m", "generate-decision-cards": "15m", "auto-measure-outcomes": "day", "process-alert-notifications": None,
        "scheduled-cdp-build": "day", "sync-bigquery": "hour", "sync-ecommerce-data": "hour",
    }  # fmt: skip


def assert_counted(name, before, after) -> None:
    """It had something to do: a set of effects that is empty is one set, whatever a function does wrong."""
    written = {table for table in after if after[table] != before[table]}
    assert written >= {OUTPUTS[name]} if name in OUTPUTS else written, written


@pytest.mark.parametrize("name", NAMES)
def test_a_hundred_calls_at_once_are_one_run(filled, name):
    """Lock key, run recorded at its start and at its end, one set of effects."""
    token, untouched = filled.token(), filled.effects()
    with filled.served() as calls:
        answers = at_once([lambda: calls.post(name, token)] * CALLS)

        assert Counter(answer.status_code for answer in answers) == {200: 1, 409: CALLS - 1}
        (winner,) = [answer.json() for answer in answers if answer.status_code == 200]
        for answer in answers:
            if answer.status_code == 409:
                body = answer.json()
                assert body["existing_job_id"] == winner["job_id"]
                assert body["reason"] in {"Job already running", "Job already completed"}
                assert body["holder"]
                assert body["since"]
    # What follows the run in its chain, too.
    filled.work()
    before = filled.effects()
    assert_counted(name, untouched, before)
    # The same after the run has completed.
    with filled.served(workers=False) as calls:
        again = at_once([lambda: calls.post(name, token)] * 10)
        assert {answer.json()["reason"] for answer in again} == {"Job already completed"}
    assert filled.effects() == before
    rows = filled.rows(
        "select status, duration_ms >= 0, result is not null, retry_count from alerts.job_runs where id = %s",
        winner["job_id"],
    )
    assert rows == [("completed", True, True, 0)]
    ours = [row for row in filled.runs(name) if row[0] == filled.begin(name)[2]]
    assert len(ours) == 1


@pytest.mark.parametrize("name", NAMES)
def test_a_run_that_was_cut_off_is_finished_by_the_next_call(filled, name):
    """Its transaction was written and not committed when the worker was killed."""
    outcome, job, *_ = filled.begin(name)
    assert outcome == "started"
    untouched = filled.effects()

    filled.kill_in_the_middle(job)

    assert filled.effects() == untouched
    # As long as the lease holds, it is somebody's.
    assert filled.begin(name)[0] == "running"
    filled.clock.advance(timedelta(seconds=31))
    assert (
        sorted(row[0] for row in at_once([lambda: filled.begin(name)] * 5)) == ["resumed"] + ["running"] * 4
    )
    filled.work()
    assert filled.rows("select status, retry_count from alerts.job_runs where id = %s", job) == [
        ("completed", 1)
    ]
    done = filled.effects()
    assert_counted(name, untouched, done)
    assert filled.begin(name)[0] == "completed"
    filled.work()
    assert filled.effects() == done


@pytest.mark.parametrize("name", NAMES)
def test_a_run_that_fails_is_retried_with_growing_waits_and_then_waits_for_a_person(filled, name):
    """1 s, 5 s, 25 s; sync_errors only when they are used up, and closed when a later try succeeds."""
    _, job, lock_key, _ = filled.begin(name)
    with filled.broken():
        for wait in (1, 5, 25):
            filled.work()
            run_at, status = filled.rows("select run_at, status from alerts.job_runs where id = %s", job)[0]
            assert (run_at - filled.clock.now(), status) == (timedelta(seconds=wait), "running")
            assert filled.rows("select * from alerts.sync_errors where source_entity_id = %s", job) == []
            filled.clock.advance(timedelta(seconds=wait))
        filled.work()
    assert filled.rows("select status, retry_count from alerts.job_runs where id = %s", job) == [
        ("failed", 3)
    ]
    ((error, details, resolved),) = filled.rows(
        "select error_code, error_details, is_resolved from alerts.sync_errors where source_entity_id = %s",
        job,
    )
    assert (error, resolved) == ("MAX_RETRIES_EXCEEDED", False)
    assert (details["function_name"], details["lock_key"], details["retry_count"]) == (name, lock_key, 3)

    # A failed window may be called again.
    assert filled.begin(name)[0] == "resumed"
    filled.work()
    assert (
        filled.rows("select status, error_message from alerts.job_runs where id = %s", job)[0][0]
        == "completed"
    )
    assert filled.rows("select is_resolved from alerts.sync_errors where source_entity_id = %s", job) == [
        (True,)
    ]


@pytest.mark.parametrize("name", NAMES)
def test_a_run_is_for_its_own_tenant_only(filled, name):
    others = filled.effects(SOUTH)
    filled.begin(name, NORTH)
    filled.work()
    assert filled.effects(SOUTH) == others
    # And the other tenant's window is another.
    assert filled.begin(name, SOUTH)[0] == "started"


def test_every_output_has_a_unique_index(place):
    outputs = {
        "alert_instances", "decision_cards", "outcomes", "notifications", "customer_profiles", "metric_values", "orders",
        "sync_cursors", "runs",
    }  # fmt: skip
    found = dict(place.rows(
        "select c.relname::text, count(*) from pg_index as i join pg_class as c on c.oid = i.indrelid "
        "where c.relnamespace = 'alerts'::regnamespace and i.indisunique and i.indpred is null and i.indexprs is null "
        # Of the data, not of an id that is made up.
        "  and not exists (select from pg_attrdef as d where d.adrelid = c.oid and d.adnum = any (i.indkey) "
        "                   and pg_get_expr(d.adbin, d.adrelid) like '%%random%%') group by 1"
    ))  # fmt: skip
    assert outputs <= set(found)
