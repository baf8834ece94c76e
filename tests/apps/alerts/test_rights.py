"""Who may read or change what: role by role, table by table, tenant by tenant."""

from __future__ import annotations

from datetime import timedelta

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from onceward.testing import Kit
from tests.apps.alerts.place import NORTH, SOUTH

pytestmark = pytest.mark.slow
ROLES = ("anybody", "onceward_producer", "onceward_worker", "onceward_operator", "onceward_auditor")
WRITERS = {
    "onceward_worker": {"metric_definitions", "metric_values", "orders", "customer_profiles", "sync_cursors"},
    "onceward_operator": {"metric_definitions", "metric_values", "sync_sources"},
}


@pytest.fixture
def filled(place):
    """Rows of both tenants in as many tables as functions fill."""
    place.conn.execute(
        "do $$ begin create role anybody nologin; exception when duplicate_object then null; end $$"
    )
    place.fill()
    for tenant in (NORTH, SOUTH):
        for name in place.functions:
            place.begin(name, tenant)
    place.work()
    return place


def outcome(place, role: str, statement: str, tenant: str, *params: object) -> str:
    with place.conn.transaction(force_rollback=True):
        place.conn.execute("select set_config('onceward.tenant', %s, true)", [tenant])
        place.conn.execute(f"set local role {role}")
        try:
            done = place.conn.execute(statement, params or None)
            return str(done.fetchone()[0] if statement.startswith("select") else done.rowcount)
        except psycopg.errors.InsufficientPrivilege:
            return "denied"
        except psycopg.DatabaseError as error:
            return error.sqlstate


def relations(place, kinds: str) -> list[str]:
    return [name for (name,) in place.rows(
        "select relname::text from pg_class where relnamespace = 'alerts'::regnamespace and relkind = any (%s) order by 1", list(kinds)
    )]  # fmt: skip


def test_the_matrix_of_reading(filled):
    south = str(filled.tenants[SOUTH])
    keyed = [name for name in relations(filled, "rv") if name != "job_health_summary"]
    assert len(keyed) >= 16
    seen = set()
    for role in ROLES:
        for table in keyed:
            column = "id" if table == "tenants" else "tenant_id"
            every, others = (
                f"select count(*) from alerts.{table}",
                f"select count(*) from alerts.{table} where {column} = '{south}'",
            )
            # One's own rows and no others; none without a tenant, or with one that does not exist.
            own = outcome(filled, role, every, NORTH)
            if own not in {"denied", "0"}:
                seen.add((role, table))
            assert outcome(filled, role, others, NORTH) in {"denied", "0"}, (role, table)
            for tenant in ("", "stranger", "northwind'; --"):
                assert outcome(filled, role, every, tenant) in {"denied", "0"}, (role, table, tenant)
            # All of them for those who see all of them.
            allowed = role in {"onceward_worker", "onceward_operator", "onceward_auditor"}
            assert (outcome(filled, role, others, "*") in {"denied", "0"}) or allowed, (role, table)
    assert ("onceward_auditor", "alert_instances") in seen
    assert ("onceward_producer", "job_runs") in seen
    assert not any(role == "anybody" for role, _ in seen)


def test_the_matrix_of_writing(filled):
    for role in ROLES:
        for table in relations(filled, "r"):
            may = table in WRITERS.get(role, set())
            column = "id" if table == "tenants" else "tenant_id"
            for statement in (
                f"delete from alerts.{table}",
                f"update alerts.{table} set {column} = {column}",
                f"insert into alerts.{table} select * from alerts.{table}",
            ):
                assert may or outcome(filled, role, statement, NORTH) == "denied", (role, statement)
            if may:
                theirs = f"delete from alerts.{table} where {column} = %s"
                assert outcome(filled, role, theirs, NORTH, filled.tenants[SOUTH]) == "0", (role, table)
    # A row of another tenant is refused on its way in, too.
    new = "insert into alerts.metric_definitions (tenant_id, metric_code, title) values (%s, 'sneaky', 'x')"
    assert outcome(filled, "onceward_worker", new, NORTH, filled.tenants[SOUTH]) == "denied"
    assert outcome(filled, "onceward_worker", new, NORTH, filled.tenants[NORTH]) == "1"


def test_functions_refuse_what_is_another_tenants(filled):
    theirs = {
        "card": filled.value("select id from alerts.decision_cards where tenant_id = %s and status = 'OPEN' limit 1", filled.tenants[SOUTH]),
        "alert": filled.value("select id from alerts.alert_instances where tenant_id = %s limit 1", filled.tenants[SOUTH]),
        "run": filled.value("select job_id from alerts.runs where tenant_id = %s limit 1", filled.tenants[SOUTH]),
    }  # fmt: skip
    for statement, what in (
        ("select alerts.move_card(%s, 'IN_PROGRESS')", "card"),
        ("select alerts.settle_alert(%s, 'resolved')", "alert"),
        ("select alerts.retry_run(%s)", "run"),
        ("select alerts.resolve_run(%s, 'mine')", "run"),
    ):
        for tenant in (NORTH, ""):
            assert outcome(filled, "onceward_operator", statement, tenant, theirs[what]) == "OW011", (
                statement,
                tenant,
            )
    for statement in ("select alerts.detect(now(), current_date)", "select alerts.make_cards()", "select alerts.measure_outcomes(current_date)",
                      "select alerts.reserve_notifications()"):  # fmt: skip
        for tenant in ("", "*", "stranger"):
            assert outcome(filled, "onceward_worker", statement, tenant) == "AL001", (statement, tenant)


def test_functions_are_for_those_who_need_them(filled):
    for name, callers in filled.rows(
        "select p.proname::text, array(select r::text from unnest(%s::text[]) as r where has_function_privilege(r, p.oid, 'execute') order by 1) "
        "from pg_proc as p where p.pronamespace = 'alerts'::regnamespace", list(ROLES),
    ):  # fmt: skip
        assert "anybody" not in callers, name
        if name in {
            "move_card",
            "settle_alert",
            "retry_run",
            "resolve_run",
            "add_tenant",
            "save_rule",
            "enable_rule",
        }:
            assert callers == ["onceward_operator"], name
        if name in {"detect", "make_cards", "measure_outcomes", "reserve_notifications"}:
            assert callers == ["onceward_worker"], name
        if name in {
            "take_over",
            "enqueue_run",
            "requeue_run",
            "measure",
            "judge",
            "rule_of",
            "check_failed_jobs",
        }:
            assert callers == [], name


def test_a_worker_works_with_the_rights_it_has(filled):
    """As a login of its own: a member of onceward_worker, and of nothing else."""
    name = f"alerts_worker_{filled.conn.info.backend_pid}"
    filled.conn.execute(f"create role {name} login in role onceward_worker")
    try:
        filled.clock.advance(timedelta(days=1))
        for function in filled.functions:
            assert filled.begin(function)[0] == "started"
        with Kit(make_conninfo(filled.kit.dsn, options=f"-c role={name}")) as kit:
            kit.drain(filled.app)
        failed = filled.rows(
            "select function_name, error_message from alerts.job_runs where status <> 'completed'"
        )
        assert failed == []
    finally:
        filled.conn.execute(f"drop owned by {name}; drop role {name}")
