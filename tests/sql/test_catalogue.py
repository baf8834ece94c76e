"""What the catalogue must say about every object, also about those that are yet to come."""

from __future__ import annotations

import re

import pytest

from onceward.errors import BY_SQLSTATE

ROLES = ("onceward_producer", "onceward_worker", "onceward_operator", "onceward_auditor")
CONTRACT = {
    "enqueue", "enqueue_many", "claim", "exchange", "heartbeat", "progress", "complete", "fail", "snooze", "cancel",
    "requeue", "resolve", "rescue", "promote", "pause_lane", "resume_lane", "register_worker", "retire_worker",
    "finish_step", "fail_step", "steps_of", "sleep", "wait_event", "receive_event", "emit_event", "spawn", "join_jobs",
    "outcomes_of", "enqueue_workflow", "cancel_workflow", "requeue_workflow",
}  # fmt: skip


@pytest.fixture(scope="module")
def catalogue(onceward_server):
    """A database as an installation leaves it; these tests only look."""
    from onceward.install import upgrade
    from tests.support.engine import Engine

    database = onceward_server.create("catalogue")
    upgrade(database.dsn)
    with Engine(database) as engine:
        yield engine
    onceward_server.drop(database)


def functions(db):
    return db.run(
        "select p.*, l.lanname, pg_get_userbyid(p.proowner) as owner, obj_description(p.oid, 'pg_proc') as comment, "
        "       coalesce(p.proconfig, '{}') as config, "
        "       array(select r from unnest(%s::text[]) as r where has_function_privilege(r, p.oid, 'execute')) as callers "
        "  from pg_proc as p join pg_language as l on l.oid = p.prolang "
        " where p.pronamespace = 'onceward'::regnamespace",
        list(ROLES),
    )


def test_the_contract_is_complete(catalogue):
    names = {function.proname for function in functions(catalogue)}
    views = {
        row.viewname for row in catalogue.run("select viewname from pg_views where schemaname = 'onceward'")
    }

    assert names >= CONTRACT
    assert views >= {
        "jobs",
        "attempts",
        "lanes",
        "workers",
        "dead_letters",
        "steps",
        "partial_completions",
        "events",
    }
    assert views >= {"workflows", "workflow_members", "dependencies"}


def test_no_search_path_can_change_what_a_function_means(catalogue):
    """It is pinned; or the body was parsed when the function was made, which alone PostgreSQL can inline."""
    for function in functions(catalogue):
        pinned = "search_path=pg_catalog, pg_temp" in function.config
        parsed = function.prosqlbody is not None and not function.prosecdef
        assert pinned or parsed, function.proname


def test_what_people_and_monitors_read_is_not_compiled_first(catalogue):
    """Each partition of the archive adds to the estimated cost, and the compiler takes seconds for what takes milliseconds."""
    read = [
        function
        for function in functions(catalogue)
        if function.proname in {"explain", "explain_lane", "find_jobs", "count_found"}
        or function.proname.startswith("metrics")
        or (function.proname.startswith("check_") and "p_thresholds" in (function.proargnames or ()))
    ]

    assert {function.proname for function in read} >= {
        "check_stuck",
        "metrics_of_jobs",
        "explain",
        "find_jobs",
    }
    assert [function.proname for function in read if "jit=off" not in function.config] == []


def test_functions_that_pin_the_planner_are_not_compiled_at_each_call(catalogue):
    """Until 17, a plan with a switched-off node seems dear enough for the just-in-time compiler: 50 ms instead of one."""
    pinned = [
        function
        for function in functions(catalogue)
        if any(setting.startswith("enable_") for setting in function.config)
    ]

    assert {function.proname for function in pinned} >= {
        "claim_lane",
        "finish_many",
        "tell_dependents",
        "hear_events",
    }
    assert [function.proname for function in pinned if "jit=off" not in function.config] == []


def test_no_function_is_overloaded(catalogue):
    names = [function.proname for function in functions(catalogue)]

    assert len(names) == len(set(names))


def test_everything_belongs_to_the_owner(catalogue):
    strays = catalogue.run(
        "select 'function ' || oid::regprocedure as what from pg_proc "
        " where pronamespace = 'onceward'::regnamespace and proowner <> 'onceward_owner'::regrole "
        "union all select 'relation ' || oid::regclass from pg_class "
        " where relnamespace = 'onceward'::regnamespace and relowner <> 'onceward_owner'::regrole "
        "union all select 'schema' from pg_namespace where nspname = 'onceward' and nspowner <> 'onceward_owner'::regrole"
    )
    assert strays == []


def test_functions_that_run_with_the_rights_of_the_owner_are_those_that_others_call(catalogue):
    for function in functions(catalogue):
        if function.prosecdef:
            assert function.callers, f"{function.proname} has the rights of the owner and nobody calls it"


def test_private_helpers_can_be_called_by_nobody_else(catalogue):
    private = {f.proname for f in functions(catalogue) if f.comment is None}

    assert {f.proname for f in functions(catalogue) if f.callers} & private == set()


def test_every_function_that_somebody_may_call_has_a_comment(catalogue):
    assert [f.proname for f in functions(catalogue) if f.callers and not f.comment] == []


def test_every_view_has_a_comment_and_the_rights_of_its_reader(catalogue):
    views = catalogue.run(
        "select relname, obj_description(oid, 'pg_class') as comment, reloptions from pg_class "
        " where relnamespace = 'onceward'::regnamespace and relkind in ('v', 'm')"
    )
    assert [view.relname for view in views if not view.comment] == []
    assert {tuple(view.reloptions or ()) for view in views} == {("security_invoker=true",)}


def test_nothing_is_granted_to_everybody(catalogue):
    granted = catalogue.run(
        "select 'function ' || p.oid::regprocedure as what "
        "  from pg_proc as p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) as a "
        " where p.pronamespace = 'onceward'::regnamespace and a.grantee = 0 "
        "union all "
        "select 'relation ' || c.oid::regclass "
        "  from pg_class as c, aclexplode(coalesce(c.relacl, acldefault((case c.relkind when 'S' then 's' else 'r' end)::\"char\", c.relowner))) as a "
        " where c.relnamespace = 'onceward'::regnamespace and a.grantee = 0 "
        "union all "
        "select 'type ' || c.oid::regclass "
        "  from pg_class as c join pg_type as t on t.oid = c.reltype, aclexplode(coalesce(t.typacl, acldefault('T', t.typowner))) as a "
        " where c.relnamespace = 'onceward'::regnamespace and c.relkind = 'c' and a.grantee = 0 "
        "union all "
        "select 'schema' from pg_namespace as n, aclexplode(coalesce(n.nspacl, acldefault('n', n.nspowner))) as a "
        " where n.nspname = 'onceward' and a.grantee = 0 "
        "union all "
        "select 'column ' || attrelid::regclass || '.' || attname from pg_attribute "
        " where attacl is not null and attrelid in (select oid from pg_class where relnamespace = 'onceward'::regnamespace)"
    )
    assert granted == []


def test_a_function_made_later_is_not_open_to_everybody_either(catalogue):
    with catalogue.conn.transaction(force_rollback=True):
        catalogue.run("set local role onceward_owner")
        catalogue.run("create function onceward.made_later() returns int language sql as 'select 1'")
        assert not catalogue.value(
            "select has_function_privilege('onceward_auditor', 'onceward.made_later()', 'execute')"
        )


def test_roles_cannot_log_in_and_have_no_special_rights(catalogue):
    roles = catalogue.run("select * from pg_roles where rolname like 'onceward\\_%' and rolname !~ 'test'")

    assert {role.rolname for role in roles} >= {"onceward_owner", *ROLES}
    for role in roles:
        special = (
            role.rolcanlogin,
            role.rolsuper,
            role.rolcreaterole,
            role.rolcreatedb,
            role.rolbypassrls,
            role.rolreplication,
        )
        assert special == (False,) * 6


def test_every_table_has_row_level_security_that_binds_its_owner_too(catalogue):
    loose = catalogue.run(
        "select relname from pg_class where relnamespace = 'onceward'::regnamespace and relkind in ('r', 'p') "
        "   and not (relrowsecurity and relforcerowsecurity)"
    )
    assert loose == []


def test_every_table_has_a_primary_key_and_says_that_it_is_private(catalogue):
    tables = catalogue.run(
        "select relname, exists (select from pg_index as i where i.indrelid = c.oid and i.indisprimary) as keyed from pg_class as c "
        " where relnamespace = 'onceward'::regnamespace and relkind in ('r', 'p') and not relispartition"
    )
    assert [table.relname for table in tables if not table.keyed] == []
    assert [table.relname for table in tables if not table.relname.endswith("_private")] == []


def test_ids_and_counters_cannot_run_out(catalogue):
    narrow = catalogue.run(
        "select attrelid::regclass || '.' || attname as what from pg_attribute "
        " where attrelid in (select oid from pg_class where relnamespace = 'onceward'::regnamespace and relkind in ('r', 'p')) "
        "   and attnum > 0 and atttypid in ('int2'::regtype, 'int4'::regtype, 'oid'::regtype) "
        "   and (attname ~ '(^|_)(id|epoch|seq|pid|count)$' or attidentity <> '')"
    )
    assert narrow == []
    assert (
        catalogue.value("select data_type::text from pg_sequences where sequencename = 'ready_seq'")
        == "bigint"
    )


def test_a_later_pg_upgrade_is_not_refused(catalogue):
    """pg_upgrade refuses columns that hold object ids of the old cluster."""
    held = catalogue.run(
        "select attrelid::regclass || '.' || attname as what from pg_attribute "
        " where attrelid in (select oid from pg_class where relnamespace = 'onceward'::regnamespace and relkind in ('r', 'p', 'm')) "
        "   and atttypid in ('regproc'::regtype, 'regprocedure'::regtype, 'regoper'::regtype, 'regoperator'::regtype, "
        "                    'regconfig'::regtype, 'regdictionary'::regtype, 'regnamespace'::regtype, 'regcollation'::regtype)"
    )
    assert held == []


def test_times_have_a_zone(catalogue):
    assert catalogue.run(
        "select attrelid::regclass || '.' || attname as what from pg_attribute "
        " where attrelid in (select oid from pg_class where relnamespace = 'onceward'::regnamespace) "
        "   and atttypid = 'timestamp'::regtype"
    ) == []  # fmt: skip


def test_every_foreign_key_has_an_index(catalogue):
    bare = catalogue.run(
        "select conname from pg_constraint as k where k.contype = 'f' and k.connamespace = 'onceward'::regnamespace "
        "   and not exists (select from pg_index as i where i.indrelid = k.conrelid and i.indpred is null "
        "                     and (i.indkey::int2[])[0 : cardinality(k.conkey) - 1] @> k.conkey)"
    )
    assert bare == []


def test_the_looks_at_the_catalogue_would_find_what_is_wrong(catalogue):
    """A foreign key without an index, a serial id, a definer function with an open path, a view with other rights."""
    looks = [
        test_every_foreign_key_has_an_index,
        test_ids_and_counters_cannot_run_out,
        test_no_search_path_can_change_what_a_function_means,
        test_every_view_has_a_comment_and_the_rights_of_its_reader,
        test_nothing_is_granted_to_everybody,
        test_every_table_has_row_level_security_that_binds_its_owner_too,
    ]
    with catalogue.conn.transaction(force_rollback=True):
        catalogue.conn.execute(
            "create table onceward.a_private (id serial primary key, lane text references onceward.lane_private); "
            "create function onceward.f() returns int language sql security definer as 'select 1'; "
            "create view onceward.v as select 1 as one; grant select on onceward.v to public"
        )
        for look in looks:
            with pytest.raises(AssertionError):
                look(catalogue)


def test_the_clock_is_the_only_source_of_time_in_functions(catalogue):
    """clock_timestamp() orders edits of one moment and ids, and measures; ids and days of partitions tell the machine's time."""
    allowed = {
        "now": "statement_timestamp",
        "new_id": "clock_timestamp",
        "requeue": "clock_timestamp",
        "run_check": "clock_timestamp",
        "ensure_partitions": "current_date",
    }
    pattern = re.compile(
        r"(?<!onceward\.)\b(now\(\)|clock_timestamp|statement_timestamp|transaction_timestamp|current_timestamp|current_date|localtime)"
    )
    for function in functions(catalogue):
        found = {match.rstrip("()") for match in pattern.findall(function.prosrc)}
        assert found <= {allowed.get(function.proname)}, function.proname


def test_every_sqlstate_that_is_raised_has_its_class_and_the_other_way_round(catalogue):
    raised = {state for f in functions(catalogue) for state in re.findall(r"'(OW\d\d\d)'", f.prosrc)}

    assert raised == set(BY_SQLSTATE)


def test_maintenance_by_other_roles_is_not_needed_for_a_new_database(catalogue):
    assert catalogue.value("select count(*) from onceward.lane_private where name = 'default'") == 1
    assert catalogue.value("select onceward.ensure_partitions()") == 0
