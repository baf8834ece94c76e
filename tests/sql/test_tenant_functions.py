"""Functions and other tenants: whoever acts for one tenant reaches nothing of another, through any function.

Read from the catalogue: a function that people and producers may call, and that takes an id or a tenant, is called with
those of another tenant.  One that takes neither has to be declared below, with the reason why that is harmless.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.types.json import Jsonb

# Workers serve every tenant; what they may do to a job is bound by its epoch.  The others act for people.
PEOPLE = ("producer", "operator", "auditor")
WITHOUT_A_TENANT = {
    "now": "the clock",
    "id_at": "arithmetic",
    "current_tenant": "of the session itself",
    "is_for_all": "of the session itself",
    "sees_all_tenants": "of the session itself",
    "caller": "of the session itself",
    "fingerprint": "arithmetic",
    "run_key": "arithmetic: it makes a name and looks at nothing",
    "next_ticks": "arithmetic on a spec",
    "declare_lanes": "lanes are of everybody",
    "add_lane": "lanes are of everybody",
    "pause_lane": "lanes are of everybody",
    "resume_lane": "lanes are of everybody",
    "explain_lane": "counts the jobs that the caller sees; see test_explain",
    "metrics": "numbers of the whole database, without the name of a tenant; see test_metrics",
    "enqueue_plain": "for the default tenant alone: with another one set it writes nothing; see test_enqueue_plain",
    "tick": "does for every tenant what its schedules say, and tells how many",
    "actor": "of the session itself",
    **dict.fromkeys(
        ("assign_dead_letters", "comment_dead_letters"),
        "for the tenant of the session, or for all; see test_care",
    ),
    **dict.fromkeys(
        ("set_limit", "drop_limit", "pause_limit", "resume_limit", "declare_limits", "acquire"),
        "limits are of everybody",
    ),
    "limit_now": "refuses keys that are other tenants; see test_limits",
    "limit_levels": "shows the keys that the caller sees; see test_limits",
    "bound_levels": "shows the tenants that the caller sees; see test_pressure",
    "audit_lane": "lanes are of everybody",
    "seal": "hashes, for everybody's entries alike",
    "seal_page": "hashes",
    **dict.fromkeys(
        ("audit_page", "audit_status", "seal_of", "record_checkpoint", "drop_audit"),
        "the log as a whole, for those who see all; see test_audit",
    ),
    **dict.fromkeys(
        ("check_monitors", "run_monitor", "set_monitor", "enable_monitor", "disable_monitor", "drop_monitor"),
        "monitors watch over everybody",
    ),
    **dict.fromkeys(
        ("drop_channel", "test_channel"),
        "by name, and refused for a channel of another tenant; see test_alerts",
    ),
    "unsent_kinds": "counts the deliveries that the caller sees; see test_alert_channels",
    **dict.fromkeys(("retain", "retain_due", "set_retention"), "retention is the same for everybody"),
    **dict.fromkeys(
        ("disable_operator", "operators", "create_link", "operator_named", "tokens"),
        "access is managed by those who see all; see test_access",
    ),
    **dict.fromkeys(
        ("has_operators", "link_operator", "use_link", "session_operator", "end_session", "token_scopes"),
        "known by a secret, and not by a name; see test_access",
    ),
    **dict.fromkeys(
        ("scan_end", "estimate_jobs", "activity", "pulse"), "shows what the caller sees; see test_browsing"
    ),
}
# Values for parameters that have no default: by name, else by type.
BY_PARAMETER: dict[str, Any] = {
    "p_decision": "abandon",
    "p_note": "as agreed",
    "p_name": "report",
    "p_lane": "default",
    "p_key": "k",
    "p_kind": "slack",
    "p_content": Jsonb({"text": "hello"}),
    "p_holder": "h",
    "p_spec": "1 hour",
    "p_nodes": Jsonb([{"name": "a", "task": "ocr"}]),
    "p_payloads": [Jsonb({})],
    "p_until": datetime.now(UTC) + timedelta(hours=1),
}
BY_TYPE: dict[str, Any] = {
    "text": "ocr",
    "jsonb": Jsonb({}),
    "bigint": 1,
    "integer": 1,
    "boolean": True,
    "text[]": ["default"],
}
# Names a call and not a row, so that the call can be repeated; or a place in the order of ids.
NAMES_NOTHING = {"p_token", "p_before"}
# Written on the new job and not looked up: a workflow is the jobs with its id and the same tenant.
LABELS = {
    (function, parameter)
    for function in ("enqueue", "enqueue_many", "enqueue_set")
    for parameter in ("p_workflow_id", "p_parent_id")
} | {
    ("record_event", "p_job_id"),
    ("deliver", "p_made_by"),
    ("emit_event", "p_made_by"),
    # Among the dead letters that the caller sees; see test_care.
    ("comment_dead_letters", "p_job_id"),
}
# Managed by those who see all: a session of one tenant is refused whatever the id.
FOR_ALL = {"revoke_token"}
# A filter on what the caller sees, and no more.
FILTERS = {"find_jobs", "count_found"}
# What another tenant's may be answered with: it belongs to another, or there is none.
REFUSALS = {"OW011", "OW006"}
# No such hold, alert.
MISSING = {"OW032", "OW039"}


@dataclass(frozen=True)
class Function:
    name: str
    # Name and type of each parameter, and whether it may be left out.
    parameters: tuple[tuple[str, str, bool], ...]

    def ids(self) -> list[tuple[str, str]]:
        return [
            (name, kind)
            for name, kind, _ in self.parameters
            if kind in {"uuid", "uuid[]"} and name not in NAMES_NOTHING and (self.name, name) not in LABELS
        ]

    @property
    def has_tenant(self) -> bool:
        return any(name == "p_tenant" for name, _, _ in self.parameters)

    def arguments(self, given: dict[str, Any]) -> dict[str, Any]:
        """What is given, and something for every other parameter that needs a value."""
        needed = {
            name: kind for name, kind, optional in self.parameters if not optional and name not in given
        }
        return {**{name: BY_PARAMETER.get(name, BY_TYPE.get(kind)) for name, kind in needed.items()}, **given}


def functions(db, role: str) -> list[Function]:
    rows = db.run(
        "select p.proname, p.pronargdefaults, p.proargnames[1 : p.pronargs] as names, "
        "       array(select format_type(t, null) from unnest(p.proargtypes) with ordinality as a (t, i) order by a.i) as types "
        "  from pg_proc as p where p.pronamespace = 'onceward'::regnamespace and has_function_privilege(%s, p.oid, 'execute') "
        " order by p.proname",
        f"onceward_{role}",
    )
    return [
        Function(
            row.proname,
            tuple(
                (name, kind, place >= len(row.types) - row.pronargdefaults)
                for place, (name, kind) in enumerate(zip(row.names or [], row.types, strict=True))
            ),
        )
        for row in rows
    ]


def call(
    db, role: str, function: Function, given: dict[str, Any], tenant: str | None = "acme", past_policies=False
):
    """The rows or the SQLSTATE, and whether anything was written; undone in any case."""
    arguments = function.arguments(given)
    statement = sql.SQL("select * from onceward.{}({})").format(
        sql.Identifier(function.name),
        sql.SQL(", ").join(
            sql.SQL("{} => {}").format(sql.Identifier(name), sql.Placeholder(name)) for name in arguments
        ),
    )
    with db.conn.transaction(force_rollback=True):
        if tenant is not None:
            db.run("select set_config('onceward.tenant', %s, true)", tenant)
        if not past_policies:
            db.conn.execute(sql.SQL("set local role {}").format(sql.Identifier(f"onceward_{role}")))
        try:
            with db.conn.transaction():
                rows = db.conn.execute(statement, arguments).fetchall()
        except psycopg.Error as error:
            # What was refused is undone, whatever it had begun.
            return error.sqlstate, False
        return rows, db.value("select pg_current_xact_id_if_assigned() is not null")


@pytest.fixture(scope="module")
def template(onceward_server):
    """Another tenant, globex, has a job in every state; so has acme."""
    from tests.support.engine import Engine

    with onceward_server.cloned() as database:
        with Engine(database) as db:
            for tenant in ("acme", "globex"):
                db.dead_letter(
                    "mine", {"secret": f"of {tenant}"}, tenant=tenant, message=f"secret of {tenant}"
                )
                db.done("mine", result={"secret": f"of {tenant}"}, tenant=tenant)
                db.cancel(db.enqueue("mine", tenant=tenant), f"secret of {tenant}")
                db.running("mine", tenant=tenant)
            for tenant in ("acme", "globex"):
                db.enqueue("mine", tenant=tenant, concurrency_key=f"secret of {tenant}")
                db.workflow({"name": "a"}, {"name": "b", "after": ["a"]}, tenant=tenant)
                db.enqueue(tenant=tenant, run_at=db.now() + db.value("select interval '1 day'"))
                db.call(
                    "deliver", kind="slack", key="k", content={"text": f"secret of {tenant}"}, tenant=tenant
                )
                db.call("add_schedule", name="report", task="ocr", spec="1 hour", tenant=tenant)
                db.call("begin_run", key="k", holder="h", tenant=tenant)
                db.emit("ocr", tenant=tenant)
                db.run(
                    "select onceward.silence_alerts(onceward.now() + interval '1 hour', 'r', p_tenant => %s)",
                    tenant,
                )
            db.call("run_monitor", name="dead_letters")
        yield database


@pytest.fixture
def db(onceward_server, template):
    from tests.support.engine import Engine

    copy = onceward_server.create("functions", template=template.name)
    with Engine(copy) as engine:
        engine.clock.pin()
        yield engine
    onceward_server.drop(copy)


def ids_of(db, tenant: str) -> list[uuid.UUID]:
    rows = db.run(
        "select distinct on (state, awaits) id from onceward.jobs where tenant = %s "
        "union select workflow_id from onceward.workflow_members where tenant = %s "
        "union select id from onceward.deliveries where tenant = %s "
        "union select id from onceward.alerts where tenant = %s "
        "union select id from onceward.silences where tenant = %s",
        tenant, tenant, tenant, tenant, tenant,
    )  # fmt: skip
    return [row[0] for row in rows]


def told_nothing(answer: Any) -> bool:
    """Refused, or answered as if there were no such thing."""
    if isinstance(answer, str):
        return answer in REFUSALS | MISSING
    values = [value for row in answer for value in row if value is not None]
    return not values or values == [0] or "unknown" in values


def leaks(db, past_policies: bool = False) -> Iterator[str]:
    """Every call with the id of another tenant that is not refused, changes something, or tells something."""
    theirs = ids_of(db, "globex")
    for role in PEOPLE:
        for function in functions(db, role):
            for parameter, kind in function.ids():
                for job in theirs:
                    value = [job] if kind == "uuid[]" else job
                    answer, changed = call(
                        db, role, function, {parameter: value}, past_policies=past_policies
                    )
                    # Bad input may be noticed first: then the call was refused, and nothing was looked at.
                    refused = isinstance(answer, str) and answer in REFUSALS | MISSING | {"OW008"}
                    if changed or not (refused or told_nothing(answer)) or "globex" in str(answer):
                        yield f"{role}: {function.name}({parameter}): {answer}"


def test_every_function_that_people_call_is_covered_or_declared(db):
    found = {function for role in PEOPLE for function in functions(db, role)}

    assert {f.name for f in found if not f.ids() and not f.has_tenant} | {"run_key"} == set(WITHOUT_A_TENANT)


def test_no_function_reaches_the_job_of_another_tenant_by_its_id(db):
    assert list(leaks(db)) == []


def test_nor_does_a_superuser_that_names_a_tenant(db):
    assert list(leaks(db, past_policies=True)) == []


def test_searches_of_a_superuser_that_names_a_tenant_find_the_jobs_of_that_one(db):
    with db.conn.transaction():
        db.run("select set_config('onceward.tenant', 'acme', true)")
        own = db.value("select count(*) from onceward.jobs")
        assert {row.tenant for row in db.run("select tenant from onceward.find_jobs()")} == {"acme"}
        assert db.one("select * from onceward.count_found()") == (own, True)
        done = db.value("select count(*) from onceward.jobs where state = 'done'")
        assert db.value("select sum(done) from onceward.activity()") == done > 0
        before = db.value("select onceward.pulse()")
    db.cancel(db.enqueue(tenant="globex"))
    with db.conn.transaction():
        db.run("select set_config('onceward.tenant', 'acme', true)")
        assert db.value("select onceward.pulse()") == before
        db.cancel(db.enqueue(tenant="acme"))
        assert db.value("select onceward.pulse()") != before


def test_a_definer_function_of_another_role_answers_for_whom_it_likes(db):
    db.run(
        "create function public.waiting() returns bigint language sql security definer "
        "as $$ select count(*) from onceward.jobs where state = 'ready' $$"
    )
    db.run("alter function public.waiting() owner to onceward_owner")
    ready = db.value("select count(*) from onceward.jobs where state = 'ready'")
    db.enqueue(tenant="globex")
    with db.conn.transaction():
        db.run("select set_config('onceward.tenant', 'acme', true)")
        assert db.value("select public.waiting()") == ready + 1
        assert db.value("select count(*) from onceward.jobs where state = 'ready'") <= ready


@pytest.mark.parametrize("tenant", [None, "", "%", "GLOBEX"])
def test_nor_does_a_session_without_a_tenant_or_with_a_pattern(db, tenant):
    for role in PEOPLE:
        for function in functions(db, role):
            for parameter, kind in function.ids():
                if parameter == "p_after":
                    # An enqueue without a tenant is for the default one; see test_dependencies.
                    continue
                for job in ids_of(db, "globex"):
                    given = {parameter: [job] if kind == "uuid[]" else job}
                    answer, changed = call(db, role, function, given, tenant)
                    assert not changed, (role, function.name)
                    assert told_nothing(answer) or answer == "OW008", (role, function.name, answer)


def test_the_same_calls_reach_the_own_jobs(db):
    """So that the refusals above are not for another reason."""
    mine = ids_of(db, "acme")
    for role in PEOPLE:
        for function in functions(db, role):
            for parameter, kind in function.ids():
                answers = [
                    call(db, role, function, {parameter: [job] if kind == "uuid[]" else job})[0]
                    for job in mine
                ]
                if function.name in FOR_ALL:
                    assert set(map(str, answers)) == {"OW011"}
                    continue
                assert "OW011" not in [a for a in answers if isinstance(a, str)], (role, function.name)
                assert any(not isinstance(a, str) or a not in REFUSALS for a in answers), (
                    role,
                    function.name,
                )


def test_no_function_takes_the_name_of_another_tenant(db):
    for role in PEOPLE:
        for function in functions(db, role):
            if function.has_tenant and function.name in FILTERS:
                answer, changed = call(db, role, function, {"p_tenant": "globex"})
                assert ("globex" in str(answer), changed) == (False, False), (role, function.name)
            elif function.has_tenant and function.name != "run_key":
                answer, changed = call(db, role, function, {"p_tenant": "globex"})
                assert (answer, changed) == ("OW011", False), (role, function.name)


def test_a_job_that_names_the_workflow_of_another_tenant_does_not_become_part_of_it(db):
    theirs = db.value("select id from onceward.workflows where tenant = 'globex' and jobs = 2")
    acme = db.on(db.connect(role="onceward_operator", tenant="acme"))
    globex = db.on(db.connect(role="onceward_operator", tenant="globex"))
    before = globex.run("select * from onceward.workflows where id = %s", theirs)

    mine = acme.enqueue("ocr", workflow_id=theirs, parent_id=theirs)

    assert globex.run("select * from onceward.workflows where id = %s", theirs) == before
    assert globex.answer("cancel_workflow", workflow_id=theirs) == 2
    assert db.state(mine) == "ready"


HOLES = {
    "check_tenant lets everybody pass": "create or replace function onceward.check_tenant(p_tenant text, p_what text default 'job') "
    "returns void language sql stable as 'select'",
    "sees_tenant says yes": "create or replace function onceward.sees_tenant(p_tenant text) "
    "returns boolean language sql stable as 'select true'",
    "an id that is not looked at": "create or replace function onceward.cancel(p_job_id uuid, p_reason text default null, "
    "p_epoch bigint default null) returns text language sql security definer as "
    "$$ update onceward.job_private set cancel_at = now() where id = p_job_id returning state $$",
    "a function that tells": "create function onceward.peek(p_job_id uuid) returns jsonb language sql stable security definer as "
    "'select payload from onceward.job_private where id = p_job_id'; "
    "grant execute on function onceward.peek to onceward_auditor",
}


@pytest.mark.parametrize("hole", HOLES)
def test_a_hole_in_a_function_would_be_noticed(db, hole):
    db.conn.execute(HOLES[hole])

    assert next(leaks(db), None)


@pytest.mark.parametrize("tenant", [None, "", "%", "acme"])
def test_what_is_for_those_who_see_all_is_not_for_a_session_without_a_tenant(db, tenant):
    """`not null` is null: a test that asks whether somebody does not see all has to get an answer."""
    for role in ("operator", "auditor"):
        mine = {function.name: function for function in functions(db, role)}
        for name in {"audit_page", "audit_status", "seal_of", "operators", "tokens", "create_token"} & set(
            mine
        ):
            given = {parameter: None for parameter, _, optional in mine[name].parameters if not optional}
            if name == "create_token":
                given = {"p_name": "ci", "p_hash": b"\0" * 32, "p_scopes": ["read"]}
            assert call(db, role, mine[name], given, tenant) == ("OW011", False), (role, name)
