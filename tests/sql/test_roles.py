"""Who may do what: every role × table or view × operation × own, other, unset and all tenants; every role × function.

What is found in the catalogue has to be declared here, and every cell of the matrix follows from the declaration.  Then
each policy is weakened, each protection switched off, one at a time, and the matrix has to notice.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256

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
    "share_private",
    "shares",
    "audit_private",
    "audit_log",
    "alert_private",
    "alerts",
    "silence_private",
    "silences",
    "channel_private",
    "channels",
    "legal_hold_private",
    "legal_holds",
    "assignment_private",
    "assignments",
    "comment_private",
    "comments",
}
# Of any tenant, and so for those only who see all of them.
OF_ALL_TENANTS = {"monitor_run_private", "monitor_runs"}
OF_EVERYBODY = {
    "lane_private",
    "task_private",
    "worker_private",
    "migration_private",
    "code_private",
    "lanes",
    "tasks",
    "workers",
    "limit_private",
    "limits",
    "bounds",
    "seal_private",
    "seal_leaf_private",
    "seals",
    "monitor_private",
    "threshold_private",
    "monitors",
    "thresholds",
    "retention_private",
    "retention",
    "removal_private",
    "removals",
    "limit_level_private",
    "limit_history",
}
# Producers write into the audit log and read nothing of it.
NOT_OF_PRODUCERS = {"audit_private", "audit_log", "seal_private", "seal_leaf_private", "seals"}
OF_NOBODY = {
    "key_private", "concurrency_private", "admission_private", "dependency_private", "recheck_private",
    "delivery_content_private", "bucket_private", "hold_private", "bound_private", "pressure_private",
    "channel_target_private", "operator_private", "link_private", "session_private", "token_private",
}  # fmt: skip
# Which roles may act for all tenants at once.
FOR_ALL = {"worker", "operator", "auditor"}

EVERYBODY = {
    "now", "id_at", "current_tenant", "is_for_all", "sees_all_tenants", "caller", "actor", "fingerprint", "next_ticks", "run_key",
    "limit_now", "limit_levels", "bound_levels", "has_channel", "unsent_kinds",
    "explain", "explain_lane", "find_jobs", "count_found", "scan_end", "estimate_jobs", "activity", "pulse",
}  # fmt: skip
PRODUCING = {
    "enqueue", "enqueue_plain", "enqueue_many", "enqueue_set", "enqueue_workflow", "declare_lanes", "cancel", "cancel_workflow", "emit_event",
    "deliver", "add_schedule", "drop_schedule", "begin_run", "renew_run", "finish_run", "fail_run",
    "declare_limits", "acquire", "settle_hold", "release_hold",
    "record_event",
}  # fmt: skip
WORKING = {
    "register_worker", "retire_worker", "heartbeat", "claim", "adopt", "exchange", "complete", "fail", "snooze",
    "release", "progress", "promote", "rescue", "ensure_partitions", "tidy", "finish_step", "fail_step",
    "steps_of", "sleep", "wait_event", "receive_event", "spawn", "join_jobs", "outcomes_of", "declare_schedules",
    "tick", "begin_delivery", "settle_delivery", "delivery_content", "settle", "limited", "pause_limit", "seal", "audit_of",
    "begin_checks", "run_check", "finish_check", "fail_check", "check_monitors", "declare_monitors", "retain_due",
}  # fmt: skip
OPERATING = {
    "requeue", "requeue_workflow", "resolve", "run_now", "add_lane", "pause_lane", "resume_lane",
    "decide_delivery", "delivery_content", "pause_schedule", "resume_schedule", "run_schedule_now", "tick",
    "set_limit", "drop_limit", "pause_limit", "resume_limit", "set_share", "set_bound", "drop_bound", "audit_lane", "drop_audit",
    "check_monitors", "run_monitor", "set_monitor", "enable_monitor", "disable_monitor", "drop_monitor", "ack_alert",
    "close_alert", "silence_alerts", "end_silence", "add_channel", "drop_channel", "test_channel", "set_retention", "retain",
    "retain_due", "hold_tenant", "release_tenant", "assign_dead_letters", "comment_dead_letters",
    "add_operator", "disable_operator", "operators", "has_operators", "create_link", "link_operator", "use_link",
    "operator_named", "session_operator", "end_session", "create_token", "revoke_token", "token_scopes", "tokens",
}  # fmt: skip
AUDITING = {"seal", "audit_of", "audit_page", "seal_page", "audit_status", "seal_of", "record_checkpoint"}  # fmt: skip
# Of the database as a whole, without the name of a tenant.
MEASURING = {"metrics"}
MAY_CALL = {
    "producer": EVERYBODY | PRODUCING,
    "worker": EVERYBODY | PRODUCING | WORKING | MEASURING,
    "operator": EVERYBODY | PRODUCING | OPERATING | MEASURING | AUDITING,
    "auditor": EVERYBODY | MEASURING | AUDITING,
}
# Policies by the kind of table.  Partitions need none: they are reached through their parent only.
POLICIES = {
    "tenant": {"owner_all", "own_tenant"},
    "everybody": {"owner_all", "everyone_reads"},
    "all tenants": {"owner_all", "all_tenants"},
    "nobody": {"owner_all"},
}
# Read and appended to, by the owner too; partitions of theirs have those policies, or none.
APPEND_ONLY = {"audit_private", "seal_private", "seal_leaf_private"}
APPENDING = {"owner_reads", "owner_appends"}


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
                db.call("set_share", lane="default", tenant=tenant, share=2)
                db.call("add_channel", name=f"of-{tenant}", kind="slack", target={"to": "ops"}, tenant=tenant)
                db.run(
                    "select onceward.silence_alerts(onceward.now() + interval '1 hour', 'r', p_tenant => %s)",
                    tenant,
                )
                db.call("hold_tenant", tenant=tenant, reason="case 7")
                with db.conn.transaction():
                    db.run("select set_config('onceward.tenant', %s, true)", tenant)
                    (kind,) = db.run(
                        "select task, fingerprint from onceward.dead_letters where tenant = %s limit 1",
                        tenant,
                    )
                    db.run("select onceward.assign_dead_letters(%s, %s, 'ana')", kind.task, kind.fingerprint)
                    db.run(
                        "select onceward.comment_dead_letters(%s, %s, 'seen')", kind.task, kind.fingerprint
                    )
            db.run("select onceward.sample_limits()")
            # Alerts of both tenants, and a removal.
            db.call("run_monitor", name="dead_letters")
            db.run("update onceward.worker_private set retired_at = '2020-01-01' where name = 'w'")
            db.call("retain", kind="workers")
            db.call("register_worker", name="w", tasks=["ocr"])
            db.call("set_bound", lane="reports", max_depth=1000)
            db.run("select onceward.measure_pressure()")
            db.call("acquire", limit="openai")
            db.call("add_operator", name="jane")
            for number in (b"1", b"2"):
                db.call("create_link", operator="jane", hash=sha256(number).digest())
            db.call("use_link", hash=sha256(b"1").digest(), session_hash=sha256(b"3").digest())
            db.call("create_token", name="ci", hash=sha256(b"4").digest(), scopes=["read"])
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


def wrong_reads(db, only: set[str] | None = None) -> Iterator[str]:
    for relation in sorted(relations(db) if only is None else only):
        select = sql.SQL("select * from {}").format(sql.Identifier("onceward", relation))
        # Past every policy, as the superuser that the tests are.
        everything = db.conn.execute(select).fetchall()
        if not everything:
            yield f"{relation} has no rows, so nothing is shown about it"
        if attempt(db, "onceward_owner", None, select) != everything:
            yield f"the owner does not see every row of {relation}"
        for role in READERS:
            for tenant in TENANTS:
                seen = attempt(db, f"onceward_{role}", tenant, select)
                if not is_right(relation, role, tenant, seen, everything):
                    yield f"{role} of tenant {tenant} reads {relation}: {seen if isinstance(seen, str) else len(seen)}"


def is_right(relation: str, role: str, tenant: str | None, seen, everything) -> bool:
    """One cell: what a role of a tenant may see of a relation that has these rows."""
    if relation in OF_NOBODY or (role == "producer" and relation in NOT_OF_PRODUCERS):
        return seen == "42501"
    if relation in OF_EVERYBODY:
        return len(seen) == len(everything) > 0
    if tenant == "*" and role in FOR_ALL:
        return sorted(map(str, seen)) == sorted(map(str, everything))
    if relation in OF_ALL_TENANTS:
        return seen == []
    # What belongs to no tenant, as a paused lane in the audit log, is for those who see all.
    expected = [row for row in everything if tenant is not None and row.tenant == tenant]
    return sorted(map(str, seen)) == sorted(map(str, expected)) and (tenant != "acme" or len(seen) > 0)


def wrong_reads_past_policies(db, only: set[str] | None = None) -> Iterator[str]:
    """A superuser and an owner, whom no policy binds, see in views the rows of the tenant that they name."""
    views = {name for name in OF_A_TENANT | OF_ALL_TENANTS if not name.endswith("_private")}
    for relation in sorted(views if only is None else only & views):
        select = sql.SQL("select * from {}").format(sql.Identifier("onceward", relation))
        everything = db.conn.execute(select).fetchall()
        for role in ("onceward_owner", db.conn.info.user):
            for tenant in TENANTS:
                seen = attempt(db, role, tenant, select)
                expected = [
                    row
                    for row in everything
                    if tenant in (None, "", "*") or (relation in OF_A_TENANT and row.tenant == tenant)
                ]
                if isinstance(seen, str) or sorted(map(str, seen)) != sorted(map(str, expected)):
                    yield f"{role} of tenant {tenant} reads {relation}: {seen if isinstance(seen, str) else len(seen)}"


def wrong_writes(db, only: set[str] | None = None) -> Iterator[str]:
    for relation in sorted(relations(db) if only is None else only):
        for statement in statements(db, relation):
            for role in READERS:
                for tenant in ("acme", None, "*"):
                    answer = attempt(db, f"onceward_{role}", tenant, statement)
                    # Not permitted; or impossible for anybody: a view over several tables, an identity column.
                    if answer not in ("42501", "55000", "428C9", "0A000"):
                        yield f"{role} of tenant {tenant}: {statement.as_string(db.conn)}: {answer}"


def wrong_settings(db) -> Iterator[str]:
    """What the rows do not tell: that the owner is bound as well, partitions too, by which policies; and every grant."""
    for table in db.run(
        "select c.relname, c.relispartition, c.relrowsecurity and c.relforcerowsecurity as forced, "
        "       array(select p.polname::text from pg_policy as p where p.polrelid = c.oid) as policies "
        "  from pg_class as c where c.relnamespace = 'onceward'::regnamespace and c.relkind in ('r', 'p')"
    ):
        if not table.forced:
            yield f"{table.relname}: row-level security is not forced"
        if table.relispartition:
            declared = (APPENDING | {"owner_all"}) & set(table.policies)
        else:
            declared = POLICIES[kind_of(table.relname)]
        if table.relname in APPEND_ONLY:
            declared = declared - {"owner_all"} | APPENDING
        if set(table.policies) != declared:
            yield f"{table.relname}: policies {table.policies}"
    for grant in db.run(
        "select c.relname, r as role, o as operation from pg_class as c, unnest(%s::text[]) as r, "
        "       unnest(array['select', 'insert', 'update', 'delete', 'truncate', 'references', 'trigger']) as o "
        " where c.relnamespace = 'onceward'::regnamespace and c.relkind in ('r', 'p', 'v') and not c.relispartition "
        "   and has_table_privilege('onceward_' || r, c.oid, o)",
        list(READERS),
    ):
        hidden = kind_of(grant.relname) == "nobody" or (
            grant.role == "producer" and grant.relname in NOT_OF_PRODUCERS
        )
        if grant.operation != "select" or hidden:
            yield f"{grant.role} may {grant.operation} {grant.relname}"


def kind_of(relation: str) -> str:
    kinds = {"tenant": OF_A_TENANT, "all tenants": OF_ALL_TENANTS, "everybody": OF_EVERYBODY}
    return next((kind for kind, names in kinds.items() if relation in names), "nobody")


def wrong(db, only: set[str] | None = None) -> Iterator[str]:
    """Every cell that is not as it is declared."""
    yield from wrong_settings(db)
    yield from wrong_reads(db, only)
    yield from wrong_reads_past_policies(db, only)
    yield from wrong_writes(db, only)


def test_every_table_and_view_is_in_the_matrix(db):
    assert relations(db) == OF_A_TENANT | OF_ALL_TENANTS | OF_EVERYBODY | OF_NOBODY


def test_everybody_reads_the_rows_of_their_own_tenant_and_nothing_else(db):
    assert list(wrong_reads(db)) == []


def test_nor_do_those_whom_no_policy_binds_when_they_name_a_tenant(db):
    assert list(wrong_reads_past_policies(db)) == []


def test_nobody_writes_but_through_functions(db):
    assert list(wrong_writes(db)) == []


def test_partitions_are_read_through_their_parent_only(db):
    for partition in partitions(db):
        select = sql.SQL("select * from {}").format(sql.Identifier("onceward", partition))
        for role in READERS:
            assert attempt(db, f"onceward_{role}", "acme", select) == "42501"


def test_every_table_is_protected_as_its_kind_is(db):
    assert list(wrong_settings(db)) == []


def test_two_tenants_have_rows_in_every_table_of_tenants(db):
    for relation in sorted(OF_A_TENANT):
        select = sql.SQL("select * from {}").format(sql.Identifier("onceward", relation))
        tenants = {row.tenant for row in attempt(db, "onceward_owner", None, select)}
        assert tenants - {None} == {"acme", "globex"}, relation


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


# ------------------------------------------------------------ weakened, one at a time

TENANT_TABLES = sorted(name for name in OF_A_TENANT if name.endswith("_private"))
WEAKENED = {
    "lets all rows through": "(true)",
    "'*' without its test": "(tenant = (select onceward.current_tenant()) or (select onceward.current_tenant() = '*'))",
    "tenant as a pattern": "(tenant like (select onceward.current_tenant()) or (select onceward.sees_all_tenants()))",
    "unset tenant sees all": "(tenant = coalesce((select onceward.current_tenant()), tenant) or (select onceward.sees_all_tenants()))",
    "case does not count": "(lower(tenant) = lower((select onceward.current_tenant())) or tenant = 'globex')",
}


def unnoticed(db, hole: str, only: set[str], matrix=wrong) -> bool:
    """Whether everything is as declared although this was done; undone afterwards."""
    with db.conn.transaction(force_rollback=True):
        db.conn.execute(hole)
        return next(matrix(db, only), None) is None


def policies(db):
    return db.run("select tablename, policyname, qual from pg_policies where schemaname = 'onceward'")


def test_each_policy_that_is_dropped_is_noticed(db):
    found = [policy for policy in policies(db) if policy.tablename in relations(db)]

    assert len(found) > 2 * len(TENANT_TABLES)
    assert [
        f"{p.policyname} on {p.tablename}"
        for p in found
        if unnoticed(
            db,
            f"drop policy {p.policyname} on onceward.{p.tablename}",
            {p.tablename},
            # Reading does not need this one.
            wrong if p.policyname == "owner_appends" else wrong_reads,
        )
    ] == []


@pytest.mark.parametrize("weakness", WEAKENED)
def test_each_policy_of_a_tenant_that_is_weakened_is_noticed(db, weakness):
    of_tenants = [p for p in policies(db) if p.policyname == "own_tenant"]
    if weakness == "'*' without its test":
        # Whoever reads the audit log at all passes the test.
        of_tenants = [p for p in of_tenants if p.tablename not in NOT_OF_PRODUCERS]

    assert [p.tablename for p in of_tenants] != []
    assert [
        p.tablename
        for p in of_tenants
        if unnoticed(
            db,
            f"alter policy own_tenant on onceward.{p.tablename} using {WEAKENED[weakness]}",
            {p.tablename},
            wrong_reads,
        )
    ] == []


@pytest.mark.parametrize("switch", ["disable row level security", "no force row level security"])
def test_each_table_whose_protection_is_switched_off_is_noticed(db, switch):
    tables = [name for name in [*relations(db), *partitions(db)] if name.endswith("_private")] + partitions(
        db
    )

    assert [
        name
        for name in tables
        if unnoticed(db, f"alter table onceward.{name} {switch}", {name} & relations(db))
    ] == []


def test_each_view_that_runs_with_the_rights_of_its_owner_is_noticed(db):
    # Those two stand on other views, which still run with the rights of the reader.
    views = OF_A_TENANT - set(TENANT_TABLES) - {"partial_completions", "workflows"}

    assert [
        view
        for view in sorted(views)
        if unnoticed(db, f"alter view onceward.{view} set (security_invoker = false)", {view}, wrong_reads)
    ] == []


@pytest.mark.parametrize("operation", ["insert", "update", "delete", "truncate"])
@pytest.mark.parametrize("role", ["public", *(f"onceward_{role}" for role in READERS)])
def test_each_right_to_write_is_noticed(db, operation, role):
    tables = sorted(name for name in relations(db) if name.endswith("_private"))

    assert [
        name for name in tables if unnoticed(db, f"grant {operation} on onceward.{name} to {role}", {name})
    ] == []


def test_a_table_that_is_nobodys_and_becomes_readable_is_noticed(db):
    for name in sorted(OF_NOBODY):
        hole = f"grant select on onceward.{name} to onceward_auditor; create policy open on onceward.{name} using (true)"
        assert not unnoticed(db, hole, {name}), name


def test_a_new_table_has_to_be_declared(db):
    with db.conn.transaction(force_rollback=True):
        db.conn.execute("create table onceward.surprise_private (id uuid primary key)")
        assert relations(db) != OF_A_TENANT | OF_ALL_TENANTS | OF_EVERYBODY | OF_NOBODY
