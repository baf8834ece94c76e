"""Who may read or call what: role by role, table by table, tenant by tenant."""

from __future__ import annotations

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from onceward.testing import Kit
from tests.apps.meals.place import Place, correction_token, text_of

pytestmark = pytest.mark.slow
ROLES = (
    "anybody",
    "onceward_producer",
    "onceward_worker",
    "onceward_operator",
    "onceward_auditor",
    "meals_app",
    "meals_staff",
)


@pytest.fixture
def filled(place):
    place.conn.execute(
        "do $$ begin create role anybody nologin; exception when duplicate_object then null; end $$"
    )
    place.customer(email="jane+rcpt_450@example.com")
    place.cron("issue-qr")
    place.work()
    return place


def outcome(place, role: str, statement: str, tenant: str = "") -> str:
    with place.kit.connect(autocommit=False) as conn:
        conn.execute("select set_config('onceward.tenant', %s, false)", [tenant])
        conn.execute(f"set role {role}")
        try:
            return str(
                len(conn.execute(statement).fetchall())
                if statement.startswith("select")
                else conn.execute(statement).rowcount
            )
        except psycopg.errors.InsufficientPrivilege:
            return "denied"
        finally:
            conn.rollback()


def test_no_role_reads_or_writes_a_table(filled):
    tables = [name for (name,) in filled.rows(
        "select relname from pg_class where relnamespace = 'meals'::regnamespace and relkind = 'r'"
    )]  # fmt: skip
    assert len(tables) == 13
    for role in ROLES:
        for table in tables:
            for statement in (
                f"select * from meals.{table}",
                f"delete from meals.{table}",
                f"insert into meals.{table} default values",
            ):
                assert outcome(filled, role, statement) == "denied", (role, statement)


def test_even_a_granted_table_shows_no_rows_to_others(filled):
    """The second wall: row-level security."""
    filled.conn.execute("grant usage on schema meals to anybody")
    filled.conn.execute("grant select, delete on meals.customers to anybody")

    assert outcome(filled, "anybody", "select * from meals.customers") == "0"
    assert outcome(filled, "anybody", "delete from meals.customers") == "0"


def test_views_are_for_staff_whatever_their_tenant_and_for_nobody_else(filled):
    views = [name for (name,) in filled.rows(
        "select relname from pg_class where relnamespace = 'meals'::regnamespace and relkind = 'v'"
    )]  # fmt: skip
    assert len(views) == 17
    for role in ROLES:
        for tenant in ("", "meals", "another"):
            for view in views:
                got = outcome(filled, role, f"select * from meals.{view}", tenant)
                assert (got == "denied") == (role != "meals_staff"), (role, view)
    assert (
        outcome(filled, "meals_staff", "select html from meals.email_retry where html like '%sealed%'") == "1"
    )


def test_functions_are_for_the_application(filled):
    functions = list(filled.rows(
        "select p.oid::regprocedure::text, p.prosecdef, p.proconfig, "
        "       array(select r.rolname::text from unnest(%s::text[]) as r (rolname) "
        "              where has_function_privilege(r.rolname, p.oid, 'execute')) "
        "  from pg_proc as p where p.pronamespace = 'meals'::regnamespace", list(ROLES),
    ))  # fmt: skip
    assert len(functions) > 30
    staff = {
        "ledger",
        "email_content",
        "service_date",
        "zone",
        "local_time",
        "served_customers",
        "is_service_day",
        "bound",
        "customer_calendar",
        "service_days",
        "redemptions_of",
        "weekdays",
        "last_planned_day",
    }
    for name, definer, settings, callers in functions:
        short = name.removeprefix("meals.").partition("(")[0]
        assert set(callers) <= {"meals_app", *(["meals_staff"] if short in staff else [])}, name
        # What runs with the owner's rights looks names up nowhere else.
        assert not definer or settings == ["search_path=pg_catalog, pg_temp"], name


def test_the_application_works_with_the_rights_it_has(filled, onceward_server):
    """As a login of its own: a member of meals_app and onceward_worker, and of nothing else."""
    name = f"app_{filled.kit.connect().info.backend_pid}"
    filled.conn.execute(f"create role {name} login in role meals_app, onceward_worker")
    try:
        with (
            Kit(make_conninfo(filled.kit.dsn, options=f"-c role={name}")) as kit,
            Place(kit, filled.mail_sink, filled.chat_sink) as place,
        ):
            assert place.check_out("Joe").body["outcome"] == "applied"
            filled.work()
            token = correction_token(text_of(filled.mails("joe@")[0]))
            assert place.consume(token).status == 200
            assert place.cron("issue-qr").body["issued"] == 1
            assert place.telegram("/today").status == 200
            assert place.cron("process-email-retry").body["sent"] >= 1
            assert place.call("GET", "/api/health").status == 200
    finally:
        filled.conn.execute(f"drop owned by {name}; drop role {name}")
