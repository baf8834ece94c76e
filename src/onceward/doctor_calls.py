"""What doctor asks the server: catalogs and statistics, never the engine's rows.  All of it only reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from onceward.calls import Call, Row

ROLES = ("onceward_owner", "onceward_producer", "onceward_worker", "onceward_operator", "onceward_auditor")


@dataclass(frozen=True, slots=True)
class Reach:
    """Who is connected, and how far they see."""

    user: str
    database: str
    superuser: bool
    # May read with the tenant '*'.
    sees_all: bool
    # May look at the sessions of other roles.
    sees_activity: bool


@dataclass(frozen=True, slots=True)
class Pin:
    """Something that keeps vacuum from removing dead rows."""

    kind: str
    pid: int | None
    who: str | None
    application: str | None
    state: str | None
    transactions: int | None
    since: timedelta | None


@dataclass(frozen=True, slots=True)
class TableHealth:
    name: str
    live: int
    dead: int
    heap_bytes: int
    vacuumed_at: datetime | None
    autovacuum: bool


@dataclass(frozen=True, slots=True)
class RoleInfo:
    name: str
    members: list[str]
    usable: bool


@dataclass(frozen=True, slots=True)
class PartitionHealth:
    parent: str
    days_ahead: int | None
    default_rows: int


@dataclass(frozen=True, slots=True)
class Relation:
    name: str
    kind: str
    owner: str
    rls_forced: bool
    security_invoker: bool


@dataclass(frozen=True, slots=True)
class Function:
    name: str
    owner: str
    definer: bool
    path_pinned: bool


@dataclass(frozen=True, slots=True)
class Right:
    """One privilege of one role on one object of the schema."""

    kind: str
    name: str
    privilege: str
    role: str


def reach() -> Call[Reach]:
    return Call(
        "select current_user::text, current_database()::text, "
        "coalesce(bool_or(rolsuper) filter (where rolname = current_user), false), "
        "coalesce(bool_or(pg_has_role(oid, 'usage')) filter (where rolname in "
        "('onceward_owner', 'onceward_operator', 'onceward_worker', 'onceward_auditor')), false), "
        "coalesce(bool_or(pg_has_role(oid, 'usage')) filter (where rolname = 'pg_read_all_stats'), false) "
        "from pg_catalog.pg_roles",
        {},
        lambda rows: Reach(*rows[0]),
        repeatable=True,
    )


def settings(names: Sequence[str]) -> Call[dict[str, str]]:
    return Call(
        "select name, setting from pg_catalog.pg_settings where name = any (%(names)s::text[])",
        {"names": list(names)},
        lambda rows: {row[0]: row[1] for row in rows},
        repeatable=True,
    )


def has_schema() -> Call[bool]:
    """Whether the schema is there, also for a role that may not look into it."""
    return Call(
        "select to_regnamespace('onceward') is not null", {}, lambda rows: bool(rows[0][0]), repeatable=True
    )


def in_recovery() -> Call[bool]:
    return Call("select pg_catalog.pg_is_in_recovery()", {}, lambda rows: bool(rows[0][0]), repeatable=True)


def server_clock() -> Call[datetime]:
    return Call("select pg_catalog.clock_timestamp()", {}, lambda rows: _moment(rows[0]), repeatable=True)


def engine_clock_offset() -> Call[timedelta]:
    """How far onceward.now() is from the server's clock; zero, except in tests."""
    return Call(
        "select onceward.now() - pg_catalog.statement_timestamp()",
        {},
        lambda rows: rows[0][0],
        repeatable=True,
    )


def backend_pid() -> Call[int]:
    return Call("select pg_catalog.pg_backend_pid()", {}, lambda rows: int(rows[0][0]), repeatable=True)


def pins(limit: int = 10) -> Call[list[Pin]]:
    """Sessions, prepared transactions, slots and standbys that hold back the xmin horizon of this database."""
    return Call(
        "select kind, pid, who, application, state, transactions, since from ("
        "select 'session' as kind, pid, usename::text as who, application_name as application, state, "
        "greatest(age(backend_xmin), age(backend_xid)) as transactions, clock_timestamp() - xact_start as since "
        "from pg_catalog.pg_stat_activity where datname = current_database() and pid <> pg_backend_pid() "
        "and (backend_xmin is not null or backend_xid is not null) "
        "union all select 'prepared transaction', null, owner::text, gid, 'prepared', age(transaction), "
        "clock_timestamp() - prepared from pg_catalog.pg_prepared_xacts where database = current_database() "
        "union all select case when xmin is null then 'replication slot (catalogs only)' else 'replication slot' end, "
        "active_pid, null, slot_name::text, case when active then 'active' else 'inactive' end, "
        "greatest(age(xmin), age(catalog_xmin)), null from pg_catalog.pg_replication_slots "
        "where xmin is not null or catalog_xmin is not null "
        "union all select 'standby feedback', pid, usename::text, application_name, state, age(backend_xmin), null "
        "from pg_catalog.pg_stat_replication where backend_xmin is not null"
        ") as p order by transactions desc nulls last, since desc nulls last limit %(limit)s::int",
        {"limit": limit},
        lambda rows: [Pin(*row) for row in rows],
        repeatable=True,
    )


def tables() -> Call[list[TableHealth]]:
    return Call(
        "select s.relname::text, s.n_live_tup, s.n_dead_tup, pg_relation_size(s.relid), "
        "greatest(s.last_autovacuum, s.last_vacuum), "
        "not coalesce('autovacuum_enabled=false' = any (c.reloptions), false) "
        "from pg_catalog.pg_stat_all_tables as s join pg_catalog.pg_class as c on c.oid = s.relid "
        "where s.schemaname = 'onceward' order by s.n_dead_tup desc, s.relname",
        {},
        lambda rows: [TableHealth(*row) for row in rows],
        repeatable=True,
    )


def roles() -> Call[list[RoleInfo]]:
    return Call(
        "select r.rolname::text, array(select m.rolname::text from pg_catalog.pg_auth_members as a "
        "join pg_catalog.pg_roles as m on m.oid = a.member where a.roleid = r.oid order by 1), "
        "pg_has_role(r.oid, 'usage') "
        "from pg_catalog.pg_roles as r where r.rolname = any (%(names)s::text[]) order by 1",
        {"names": list(ROLES)},
        lambda rows: [RoleInfo(*row) for row in rows],
        repeatable=True,
    )


def partitions() -> Call[list[PartitionHealth]]:
    return Call(
        "select p.relname::text, max(substring(c.relname from '_([0-9]{8})$')::date) - current_date, "
        "coalesce(sum(pg_stat_get_live_tuples(c.oid)) filter (where c.relname like '%%\\_default'), 0)::bigint "
        "from pg_catalog.pg_class as p join pg_catalog.pg_inherits as i on i.inhparent = p.oid "
        "join pg_catalog.pg_class as c on c.oid = i.inhrelid "
        "where p.relnamespace = to_regnamespace('onceward') and p.relkind = 'p' group by 1 order by 1",
        {},
        lambda rows: [PartitionHealth(*row) for row in rows],
        repeatable=True,
    )


def connections() -> Call[int]:
    return Call(
        "select coalesce(sum(numbackends), 0)::int from pg_catalog.pg_stat_database",
        {},
        lambda rows: int(rows[0][0]),
        repeatable=True,
    )


def relations() -> Call[list[Relation]]:
    return Call(
        "select relname::text, relkind::text, pg_get_userbyid(relowner)::text, relrowsecurity and relforcerowsecurity, "
        "coalesce('security_invoker=true' = any (reloptions), false) from pg_catalog.pg_class "
        "where relnamespace = to_regnamespace('onceward') and relkind in ('r', 'p', 'v', 'S') order by 1",
        {},
        lambda rows: [Relation(*row) for row in rows],
        repeatable=True,
    )


def functions() -> Call[list[Function]]:
    return Call(
        "select proname::text, pg_get_userbyid(proowner)::text, prosecdef, "
        "coalesce(array_to_string(proconfig, ' ') like '%%search_path=%%', false) from pg_catalog.pg_proc "
        "where pronamespace = to_regnamespace('onceward') order by 1",
        {},
        lambda rows: [Function(*row) for row in rows],
        repeatable=True,
    )


def rights() -> Call[list[Right]]:
    """What PUBLIC and the four roles that are not the owner may do in the schema."""
    return Call(
        "select kind, name, privilege_type, case grantee when 0 then 'PUBLIC' else pg_get_userbyid(grantee)::text end "
        "from (select 'schema' as kind, n.nspname::text as name, a.* from pg_catalog.pg_namespace as n, "
        "aclexplode(coalesce(n.nspacl, acldefault('n', n.nspowner))) as a where n.nspname = 'onceward' "
        "union all select case c.relkind when 'S' then 'sequence' else 'table' end, c.relname::text, a.* "
        "from pg_catalog.pg_class as c, "
        "aclexplode(coalesce(c.relacl, acldefault(case c.relkind when 'S' then 's' else 'r' end::\"char\", c.relowner))) as a "
        "where c.relnamespace = to_regnamespace('onceward') and c.relkind in ('r', 'p', 'v', 'S') "
        "union all select 'function', f.proname::text, a.* from pg_catalog.pg_proc as f, "
        "aclexplode(coalesce(f.proacl, acldefault('f', f.proowner))) as a "
        "where f.pronamespace = to_regnamespace('onceward')) as r "
        "where grantee = 0 or pg_get_userbyid(grantee) = any (%(roles)s::text[])",
        {"roles": list(ROLES[1:])},
        lambda rows: [Right(*row) for row in rows],
        repeatable=True,
    )


def _moment(row: Row) -> datetime:
    moment = row[0]
    assert isinstance(moment, datetime)
    return moment
