"""Which role may make a call, and what to tell a caller who may not."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources

from onceward.errors import NotAllowed, driver_error

PRODUCER, WORKER, OPERATOR, AUDITOR = (
    "onceward_producer", "onceward_worker", "onceward_operator", "onceward_auditor",
)  # fmt: skip
_GRANT = re.compile(r"^grant execute on function\s(?P<functions>[^;]+?)\sto\s(?P<roles>[^;]+);", re.MULTILINE)
# Who lacks the role itself is told so by its name; there is no function in that statement.
_SET_ROLE = re.compile(r'^permission denied to set role "(?P<role>onceward_[a-z]+)"')
_CALLED = re.compile(r"\bonceward\.(\w+)\(")


def role_for(sql: str) -> str:
    """The role to ask for; a statement that calls nothing but what everybody may call only reads."""
    needed = (_roles().get(name, AUDITOR) for name in _CALLED.findall(sql))
    return next((role for role in needed if role != AUDITOR), AUDITOR)


@cache
def _roles() -> dict[str, str]:
    """For each function, the least role that the grants name.  Read when it is first needed: after an error."""
    grants = resources.files("onceward").joinpath("sql/grants.sql").read_text(encoding="utf-8")
    granted: dict[str, str] = {}
    for found in _GRANT.finditer(grants):
        role = next(role for role in (AUDITOR, PRODUCER, WORKER, OPERATOR) if role in found["roles"])
        for function in re.findall(r"onceward\.(\w+)", found["functions"]):
            granted.setdefault(function, role)
    # A producer cancels for its own tenant only, and has its role already: who is refused is a person.
    granted["cancel"] = OPERATOR
    return granted


def _identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def not_allowed(
    error: BaseException, sql: str, *, user: str | None, role: str | None = None
) -> NotAllowed | None:
    """The error for a call that the database refused for want of rights, or None when that is not the reason."""
    found = driver_error(error)
    if found is None or found.sqlstate != "42501" or not found.message.startswith("permission denied"):
        return None
    refused = _SET_ROLE.match(found.message)
    needed = refused["role"] if refused else role or role_for(sql)
    return NotAllowed(
        found.message,
        detail=f'Connected as role "{user}".' if user else None,
        hint=f"An administrator can allow it: grant {needed} to "
        + (f"{_identifier(user)}." if user else "the role that connects."),
    )
