"""Calls about who may sign in: operators, links, sessions, tokens.  Secrets come as their SHA-256."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

from onceward.calls.base import Call, rows_of, scalar
from onceward.model_web import OperatorInfo, TokenInfo


def add_operator(
    name: str,
    role: str | None = None,
    tenant: str | None = None,
    *,
    all_tenants: bool = False,
    enable: bool = False,
) -> Call[str]:
    """`created`, `changed` or `unchanged`.  What is not given stays as it is."""
    return Call(
        "select onceward.add_operator(%(name)s::text, %(role)s::text, %(tenant)s::text,"
        " %(all_tenants)s::boolean, %(enable)s::boolean)",
        {"name": name, "role": role, "tenant": tenant, "all_tenants": all_tenants, "enable": enable},
        scalar,
        repeatable=True,
    )


def disable_operator(name: str) -> Call[bool]:
    return Call("select onceward.disable_operator(%(name)s::text)", {"name": name}, scalar, repeatable=True)


def operators() -> Call[list[OperatorInfo]]:
    return Call(
        "select name, role, tenant, created_at, created_by, seen_at, disabled_at, sessions from onceward.operators()",
        {},
        rows_of(OperatorInfo),
        repeatable=True,
    )


def has_operators() -> Call[bool]:
    return Call("select onceward.has_operators()", {}, scalar, repeatable=True)


def create_link(operator: str, digest: bytes, life: timedelta) -> Call[datetime]:
    return Call(
        "select onceward.create_link(%(operator)s::text, %(hash)s::bytea, %(life)s::interval)",
        {"operator": operator, "hash": digest, "life": life},
        scalar,
    )


def link_operator(digest: bytes) -> Call[str | None]:
    return Call("select onceward.link_operator(%(hash)s::bytea)", {"hash": digest}, scalar, repeatable=True)


def use_link(digest: bytes, session: bytes) -> Call[str]:
    return Call(
        "select onceward.use_link(%(hash)s::bytea, %(session)s::bytea)",
        {"hash": digest, "session": session},
        scalar,
    )


def operator_named(name: str) -> Call[tuple[str, str, str | None] | None]:
    """Name, role and tenant."""
    return Call(
        "select name, role, tenant from onceward.operator_named(%(name)s::text)",
        {"name": name},
        lambda rows: (rows[0][0], rows[0][1], rows[0][2]) if rows else None,
        repeatable=True,
    )


def session_operator(digest: bytes) -> Call[tuple[str, str, str | None] | None]:
    """Name, role and tenant."""
    return Call(
        "select name, role, tenant from onceward.session_operator(%(hash)s::bytea)",
        {"hash": digest},
        lambda rows: (rows[0][0], rows[0][1], rows[0][2]) if rows else None,
        repeatable=True,
    )


def end_session(digest: bytes) -> Call[bool]:
    return Call("select onceward.end_session(%(hash)s::bytea)", {"hash": digest}, scalar, repeatable=True)


def create_token(
    name: str,
    digest: bytes,
    scopes: Sequence[str],
    *,
    tenant: str | None = None,
    life: timedelta | None = None,
) -> Call[UUID]:
    return Call(
        "select onceward.create_token(%(name)s::text, %(hash)s::bytea, %(scopes)s::text[], %(tenant)s::text, %(life)s::interval)",
        {"name": name, "hash": digest, "scopes": list(scopes), "tenant": tenant, "life": life},
        scalar,
    )


def revoke_token(token_id: UUID) -> Call[bool]:
    return Call("select onceward.revoke_token(%(id)s::uuid)", {"id": token_id}, scalar, repeatable=True)


def token_scopes(digest: bytes) -> Call[tuple[str, list[str], str | None] | None]:
    """Name, scopes and tenant."""
    return Call(
        "select name, scopes, tenant from onceward.token_scopes(%(hash)s::bytea)",
        {"hash": digest},
        lambda rows: (rows[0][0], rows[0][1], rows[0][2]) if rows else None,
        repeatable=True,
    )


def tokens() -> Call[list[TokenInfo]]:
    return Call(
        "select id, name, scopes, tenant, created_at, created_by, expires_at, seen_at, revoked_at, revoked_by "
        "from onceward.tokens()",
        {},
        rows_of(TokenInfo),
        repeatable=True,
    )
