"""Who may do what: every role × table or view × operation × own, other, unset and all tenants; every role × function."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from psycopg import sql

from tests.support.engine import Engine

READERS = ("producer", "worker", "operator", "auditor")
TENANTS = ("acme", "globex", None, "*", "%", "")
OF_A_TENANT = {
    "job_private",
    "archive_private",
    "attempt_private",
    "payload_edit_private",
    "step_private",
    "event_private",
    "jobs",
    "attempts",
    "dead_letters",
    "payload_edits",
    "steps",
    "partial_completions",
    "events",
    "workflows",
    "workflow_members",
    "dependencies",
    "schedule_private",
    "tick_private",
    "run_private",
    "schedules",
    "ticks",
    "runs",
    "delivery_private",
    "deliveries",
    "audit_private",
    "audit_log",
}
OF_EVERYBODY = {
    "lane_private",
    "task_private",
    "worker_private",
    "migration_private",
    "code_private",
    "lanes",
    "tasks",
    "workers",
    "seal_private",
    "seal_leaf_private",
    "seals",
}
# Producers write into the audit log and read nothing of it.
NOT_OF_PRODUCERS = {"audit_private", "audit_log", "seal_private", "seal_leaf_private", "seals"}
OF_NOBODY = {
    "key_private", "concurrency_private", "admission_private", "dependency_private", "recheck_private",
    "delivery_content_private",
}  # fmt: skip
# Which roles may act for all tenants at once.
FOR_ALL = {"worker", "operator", "auditor"}

EVERYBODY = {
    "now", "id_at", "current_tenant", "sees_all_tenants", "caller", "actor", "fingerprint", "next_ticks", "run_key",
}  # fmt: skip
PRODUCING = {
    "enqueue", "enqueue_many", "enqueue_workflow", "declare_lanes", "cancel", "cancel_workflow", "emit_event",
    "deliver", "add_schedule", "drop_schedule", "begin_run", "renew_run", "finish_run", "fail_run",
    "record_event",
}  # fmt: skip
WORKING = {
    "register_worker", "retire_worker", "heartbeat", "claim", "adopt", "exchange", "complete", "fail", "snooze",
    "release", "progress", "promote", "rescue", "ensure_partitions", "tidy", "finish_step", "fail_step",
    "steps_of", "sleep", "wait_event", "receive_event", "spawn", "join_jobs", "outcomes_of", "declare_schedules",
    "tick", "begin_delivery", "settle_delivery", "delivery_content", "seal", "audit_of",
}  # fmt: skip
OPERATING = {
    "requeue",
    "requeue_workflow",
    "resolve",
    "run_now",
    "add_lane",
    "pause_lane",
    "resume_lane",
    "decide_delivery",
    "delivery_content",
    "pause_schedule",
    "resume_schedule",
    "run_schedule_now",
    "tick",
    "audit_lane",
    "drop_audit",
}
AUDITING = {"seal", "audit_of", "audit_page", "seal_page", "audit_status", "seal_of", "record_checkpoint"}  # fmt: skip
MAY_CALL = {
    "producer": EVERYBODY | PRODUCING,
    "worker": EVERYBODY | PRODUCING | WORKING,
    "operator": EVERYBODY | PRODUCING | OPERATING | AUDITING,
    "auditor": EVERYBODY | AUDITING,
}


@pytest.fixture(scope="module")
def template(onceward_server):
    """A database in which two tenants have rows in every table."""
    with onceward_server.cloned() as database:
        with Engine(database) as db:
            for tenant in ("acme", "globex"):
                letter = db.dead_letter("ocr", {"n": 1}, tenant=tenant)
                db.requeue(letter, payload={"n": 2})
                db.fail(db.claim(), permanent=True)
                db.done(tenant=tenant, key=f"{tenant} was here", key_window="forever")
                claim = db.running(tenant=tenant, concurrency_key="k")
                db.finish_step(claim)
                # Some steps are done, and the job has failed.
                partial = db.running(tenant=tenant)
                db.finish_step(partial)
                db.fail(partial, permanent=True)
                db.enqueue(tenant=tenant, after=[claim.job_id])
                db.emit("paid", tenant=tenant)
                db.enqueue(tenant=tenant, concurrency_key="k")
                db.call("register_worker", name="w", tasks=["ocr"])
                db.cancel(db.enqueue(tenant=tenant))
                db.call("deliver", kind="slack", key="k", content={"text": "hello"}, tenant=tenant)
                db.run("select onceward.ask_admission(%s, 'k')", tenant)
                db.call("add_lane", name="reports")
                db.call(
                    "add_schedule", name="report", task="report", spec="1 hour", lane="reports", tenant=tenant
                )
                db.call("run_schedule_now", name="report", tenant=tenant)
                db.call("begin_run", key="k", holder="h", tenant=tenant)
                db.call("seal")
        yield database


@pytest.fixture
def db(onceward_server, template):
    """A copy of it."""
    copy = onceward_server.create("roles", template=template.name)
    with Engine(copy) as engine:
        yield engine
    onceward_server.drop(copy)


def relations(db) -> set[str]:
    return {
        row.relname
        for row in db.run(
            "select relname from pg_class where relnamespace = 'onceward'::regnamespace "
            "   and relkind in ('r', 'p', 'v', 'm', 'f') and not relispartition"
        )
    }


def partitions(db) -> list[str]:
    rows = db.run(
        "select relname from pg_class where relnamespace = 'onceward'::regnamespace and relispartition and relkind = 'r'"
    )
    return [row.relname for row in rows]


def attempt(db, role: str, tenant: str | None, statement: sql.Composed):
    """The rows, or the SQLSTATE, of a statement of this role and tenant; undone in any case."""
    with db.conn.transaction(force_rollback=True):
        if tenant is not None:
            db.run("select set_config('onceward.tenant', %s, true)", tenant)
        db.conn.execute(sql.SQL("set local role {}").format(sql.Identifier(role)))
        try:
            with db.conn.transaction():
                cursor = db.conn.execute(statement)
                return cursor.fetchall() if cursor.description else []
        except psycopg.Error as error:
            return error.sqlstate


def statements(db, relation: str):
    columns = [row.attname for row in db.run(
        "select attname from pg_attribute where attrelid = %s::regclass and attnum > 0 and not attisdropped",
        f"onceward.{relation}",
    )]  # fmt: skip
    name, column = sql.Identifier("onceward", relation), sql.Identifier(columns[0])
    yield sql.SQL("insert into {} select * from {} limit 0").format(name, name)
    yield sql.SQL("insert into {} default values").format(name)
    yield sql.SQL("update {} set {} = {}").format(name, column, column)
    yield sql.SQL("delete from {}").format(name)
    if relation.endswith("_private"):
        yield sql.SQL("truncate {}").format(name)
        yield sql.SQL("select * from {} for update").format(name)
        yield sql.SQL("alter table {} disable row level security").format(name)


def wrong_reads(db) -> Iterator[str]:
    for relation in sorted(relations(db)):
        select = sql.SQL("select * from {}").format(sql.Identifier("onceward", relation))
        everything = attempt(db, "onceward_owner", None, select)
        for role in READERS:
            for tenant in TENANTS:
                seen = attempt(db, f"onceward_{role}", tenant, select)
                if relation in OF_NOBODY or (role == "producer" and relation in NOT_OF_PRODUCERS):
                    right = seen == "42501"
                elif relation in OF_EVERYBODY:
                    right = len(seen) == len(everything) > 0
                elif tenant == "*" and role in FOR_ALL:
                    right = sorted(map(str, seen)) == sorted(map(str, everything))
                else:
                    # What belongs to no tenant, as a paused lane in the audit log, is for those who see all.
                    expected = [row for row in everything if tenant is not None and row.tenant == tenant]
                    right = sorted(map(str, seen)) == sorted(map(str, expected)) and (
                        tenant != "acme" or len(seen) > 0
                    )
                if not right:
                    yield f"{role} of tenant {tenant} reads {relation}: {seen if isinstance(seen, str) else len(seen)}"


def wrong_writes(db) -> Iterator[str]:
    for relation in sorted(relations(db)):
        for statement in statements(db, relation):
            for role in READERS:
                answer = attempt(db, f"onceward_{role}", "acme", statement)
                # Not permitted; or impossible for anybody: a view over several tables, an identity column.
                if answer not in ("42501", "55000", "428C9", "0A000"):
                    yield f"{role}: {statement.as_string(db.conn)}: {answer}"


def test_every_table_and_view_is_in_the_matrix(db):
    assert relations(db) == OF_A_TENANT | OF_EVERYBODY | OF_NOBODY


def test_everybody_reads_the_rows_of_their_own_tenant_and_nothing_else(db):
    assert list(wrong_reads(db)) == []


def test_nobody_writes_but_through_functions(db):
    assert list(wrong_writes(db)) == []


def test_partitions_are_read_through_their_parent_only(db):
    for partition in partitions(db):
        select = sql.SQL("select * from {}").format(sql.Identifier("onceward", partition))
        for role in READERS:
            assert attempt(db, f"onceward_{role}", "acme", select) == "42501"


def test_the_owner_sees_every_row(db):
    for relation in sorted(OF_A_TENANT):
        rows = attempt(
            db,
            "onceward_owner",
            None,
            sql.SQL("select * from {}").format(sql.Identifier("onceward", relation)),
        )
        assert {row.tenant for row in rows if row.tenant is not None} == {"acme", "globex"}


def test_a_role_that_was_granted_nothing_can_do_nothing(db):
    db.run("drop role if exists onceward_test_stranger")
    db.run("create role onceward_test_stranger")
    try:
        for relation in sorted(relations(db)):
            name = sql.Identifier("onceward", relation)
            assert (
                attempt(db, "onceward_test_stranger", "acme", sql.SQL("select * from {}").format(name))
                == "42501"
            )
        for function in db.run(
            "select oid::regprocedure::text as name from pg_proc where pronamespace = 'onceward'::regnamespace"
        ):
            assert not db.value(
                "select has_function_privilege('onceward_test_stranger', %s, 'execute')", function.name
            )
        assert attempt(db, "onceward_test_stranger", None, sql.SQL("select onceward.now()")) == "42501"
        assert attempt(db, "onceward_test_stranger", None, sql.SQL("create table onceward.x ()")) == "42501"
    finally:
        db.run("drop role onceward_test_stranger")


@pytest.mark.parametrize("role", READERS)
def test_a_role_calls_its_functions_and_no_others(db, role):
    rows = db.run(
        "select proname, has_function_privilege(%s, oid, 'execute') as may from pg_proc where pronamespace = 'onceward'::regnamespace",
        f"onceward_{role}",
    )

    assert {row.proname for row in rows if row.may} == MAY_CALL[role]


@pytest.mark.parametrize("role", READERS)
def test_a_role_cannot_make_anything_in_the_schema_nor_use_its_sequences(db, role):
    for statement in (
        "create table onceward.mine ()",
        "select nextval('onceward.ready_seq')",
        "set session_replication_role = replica",
    ):
        assert attempt(db, f"onceward_{role}", "acme", sql.SQL(statement)) == "42501"


TENANT_TABLES = (
    "job_private", "archive_private", "attempt_private", "payload_edit_private", "step_private", "event_private",
    "delivery_private", "schedule_private", "tick_private", "run_private", "audit_private",
)  # fmt: skip
READ_HOLES = {
    **{f"{t}: policy lets all rows through": f"alter policy own_tenant on onceward.{t} using (true)" for t in TENANT_TABLES},
    **{f"{t}: no row-level security": f"alter table onceward.{t} disable row level security" for t in TENANT_TABLES},
    **{
        f"{t}: '*' without its test": f"alter policy own_tenant on onceward.{t} using "
        "(tenant = (select onceward.current_tenant()) or (select onceward.current_tenant() = '*'))"
        # Only producers may not use '*', and of the audit log they read nothing anyway.
        for t in TENANT_TABLES if t not in NOT_OF_PRODUCERS
    },
    **{
        f"{t}: tenant as a pattern": f"alter policy own_tenant on onceward.{t} using "
        "(tenant like (select onceward.current_tenant()) or (select onceward.sees_all_tenants()))"
        for t in TENANT_TABLES
    },
    **{
        f"{t}: unset tenant sees all": f"alter policy own_tenant on onceward.{t} using "
        "(tenant = coalesce((select onceward.current_tenant()), tenant) or (select onceward.sees_all_tenants()))"
        for t in TENANT_TABLES
    },
    **{
        f"{view}: rights of the owner": f"alter view onceward.{view} set (security_invoker = false)"
        # Those two stand on other views, which still run with the rights of the reader.
        for view in sorted(OF_A_TENANT - set(TENANT_TABLES) - {"partial_completions", "workflows"})
    },
    "producers read the audit log": "grant select on onceward.audit_private, onceward.audit_log to onceward_producer",
    "keys are readable": "grant select on onceward.key_private to onceward_producer; "
    "create policy open on onceward.key_private using (true)",
}  # fmt: skip
WRITE_HOLES = {
    "everybody inserts": "grant insert on onceward.job_private to public",
    "workers update": "grant update on onceward.job_private to onceward_worker",
    "operators delete": "grant delete on onceward.lane_private to onceward_operator",
    "auditors truncate": "grant truncate on onceward.archive_private to onceward_auditor",
    "auditors write entries": "grant insert on onceward.audit_private to onceward_auditor",
}


@pytest.mark.parametrize("hole", list(READ_HOLES.values()), ids=list(READ_HOLES))
def test_a_hole_for_readers_would_be_noticed(db, hole):
    db.conn.execute(hole)

    assert next(wrong_reads(db), None)


@pytest.mark.parametrize("hole", list(WRITE_HOLES.values()), ids=list(WRITE_HOLES))
def test_a_hole_for_writers_would_be_noticed(db, hole):
    db.conn.execute(hole)

    assert next(wrong_writes(db), None)
