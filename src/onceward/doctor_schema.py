"""Whether what is installed in the database fits this version: the checks behind `onceward db check`."""

from __future__ import annotations

import re
from collections.abc import Iterable

from onceward import doctor_calls, install
from onceward.doctor_calls import ROLES, Right
from onceward.doctor_model import Finding, Server, listed

_GRANT = re.compile(
    r"^grant\s+(?P<privilege>execute|select|usage)\s+on\s+(?P<kind>function\s+|schema\s+)?(?P<objects>[^;]+?)"
    r"\s+to\s+(?P<roles>[^;]+);",
    re.MULTILINE,
)
_UPGRADE = 'Run "onceward db upgrade".'


def check(server: Server) -> list[Finding]:
    """Everything, or the one finding that nothing is installed."""
    found = version(server)
    if not install.status(server.connection).installed:
        return found
    return [*found, roles(server), ownership(server), row_level_security(server), *rights(server)]


def version(server: Server) -> list[Finding]:
    status = install.status(server.connection)
    if not status.installed:
        return [
            Finding(
                "schema version",
                "fail",
                "not installed",
                f'Database "{server.reach.database}" has no schema onceward.',
                'Install it with "onceward db init".',
            )
        ]
    newest = status.applied[-1].removesuffix(".sql") if status.applied else "none"
    meaning = "The tables are those of this version."
    action, level, value = None, "ok", newest
    if status.newer:
        level, value = "fail", f"newer: {listed(status.newer)}"
        meaning, action = (
            "The database was upgraded by a later version of Onceward.",
            "Upgrade the package on this machine.",
        )
    elif status.pending:
        level, value = "fail", f"pending: {listed(status.pending)}"
        meaning, action = "The tables are older than this version.", _UPGRADE
    code = (
        Finding("schema code", "ok", "current", "Functions, views and grants are those of this version.")
        if status.code_is_current
        else Finding(
            "schema code", "fail", "differs", "Functions, views and grants are of another version.", _UPGRADE
        )
    )
    return [Finding("schema version", level, value, meaning, action), code]


def roles(server: Server) -> Finding:
    known = {role.name for role in server.run(doctor_calls.roles())}
    missing = [name for name in ROLES if name not in known]
    if missing:
        return Finding(
            "roles exist",
            "fail",
            f"missing: {listed(missing)}",
            "Grants and row-level security are made for these roles.",
            'Run "onceward db upgrade", or let an administrator run what "onceward db sql --roles" prints.',
        )
    return Finding("roles exist", "ok", f"{len(ROLES)} of {len(ROLES)}", "All roles are there.")


def ownership(server: Server) -> Finding:
    relations = server.run(doctor_calls.relations())
    functions = server.run(doctor_calls.functions())
    owners = [(item.name, item.owner) for item in relations] + [(item.name, item.owner) for item in functions]
    foreign = [name for name, owner in owners if owner != "onceward_owner"]
    loose = [item.name for item in functions if item.definer and not item.path_pinned]
    if foreign:
        return Finding(
            "ownership",
            "fail",
            f"not of onceward_owner: {listed(foreign)}",
            "Functions run with the rights of their owner; a foreign owner breaks or widens them.",
            "Give them back: alter table (or function) … owner to onceward_owner.",
        )
    if loose:
        return Finding(
            "ownership",
            "fail",
            f"search_path not pinned: {listed(loose)}",
            "A caller could make these functions call others of the same name.",
            _UPGRADE,
        )
    return Finding("ownership", "ok", f"{len(owners)} objects", "All belong to onceward_owner.")


def row_level_security(server: Server) -> Finding:
    relations = server.run(doctor_calls.relations())
    tables = [item for item in relations if item.kind in {"r", "p"}]
    open_tables = [item.name for item in tables if not item.rls_forced]
    open_views = [item.name for item in relations if item.kind == "v" and not item.security_invoker]
    if open_tables or open_views:
        return Finding(
            "row-level security",
            "fail",
            f"not forced on {listed([*open_tables, *open_views])}",
            "Rows of one tenant could be seen by another.",
            _UPGRADE + " It is forced again by every upgrade that changes code; when nothing is pending, run "
            "alter table … enable row level security, force row level security.",
        )
    return Finding(
        "row-level security", "ok", f"forced on {len(tables)} tables", "Tenants see only their rows."
    )


def rights(server: Server) -> list[Finding]:
    held = server.run(doctor_calls.rights())
    actual = set(held)
    public = sorted(_shown(right) for right in actual if right.role == "PUBLIC")
    named = {right for right in actual if right.role != "PUBLIC"}
    wanted = expected_rights()
    missing = sorted(_shown(right) for right in wanted - named)
    surplus = sorted(_shown(right) for right in named - wanted)
    found = [
        Finding(
            "PUBLIC",
            "fail",
            listed(public),
            "Everyone who can connect has these rights.",
            "Revoke them: revoke all on … from public.",
        )
        if public
        else Finding("PUBLIC", "ok", "nothing", "Only the roles of Onceward have rights.")
    ]
    if missing:
        what, action = f"missing: {listed(missing)}", 'Grant them as grants.sql says; see "onceward db sql".'
        found.append(
            Finding("grants", "fail", what, "Programs with these roles cannot do their work.", action)
        )
    elif surplus:
        what, action = f"too many: {listed(surplus)}", "Revoke them."
        found.append(Finding("grants", "fail", what, "These roles can do more than intended.", action))
    else:
        found.append(
            Finding("grants", "ok", f"{len(wanted)} as declared", "Each role can do its work, and no more.")
        )
    return found


def expected_rights() -> set[Right]:
    """What grants.sql grants."""
    text = next(script.text for script in install.code() if script.name == "grants.sql")
    # Comments end with their line; the blocks of PL/pgSQL hold no grants in the schema.
    text = re.sub(r"--[^\n]*", "", text)
    wanted: set[Right] = set()
    for grant in _GRANT.finditer(text):
        kind = (grant["kind"] or "table").strip()
        for name in _names(grant["objects"]):
            for role in _names(grant["roles"]):
                wanted.add(Right(kind, name.removeprefix("onceward."), grant["privilege"].upper(), role))
    return wanted


def _names(text: str) -> Iterable[str]:
    return (part.strip() for part in text.split(",") if part.strip())


def _shown(right: Right) -> str:
    return f"{right.privilege.lower()} on {right.kind} {right.name} to {right.role}"
