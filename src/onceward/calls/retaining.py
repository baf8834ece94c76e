"""Calls about retention and legal holds."""

from __future__ import annotations

from datetime import timedelta

from onceward import jsonsafe
from onceward.calls.base import Call, nothing, rows_of, scalar
from onceward.model_monitors import LegalHoldInfo, Removed, RetentionInfo


def retain(kind: str | None = None, *, dry_run: bool = False, limit: int = 10_000) -> Call[list[Removed]]:
    return Call(
        'select kind, "before", row_count, partitions, more, note '
        "from onceward.retain(%(kind)s::text, %(dry_run)s::boolean, %(limit)s::int)",
        {"kind": kind, "dry_run": dry_run, "limit": limit},
        rows_of(Removed),
    )


def retain_due(limit: int = 10_000) -> Call[Removed | None]:
    """One kind whose hour has come; None when there is none."""
    return Call(
        'select kind, "before", row_count, partitions, more, note from onceward.retain_due(%(limit)s::int)',
        {"limit": limit},
        lambda rows: Removed(*rows[0]) if rows else None,
        repeatable=True,
    )


def retention_is_due() -> Call[bool]:
    return Call(
        "select exists (select from onceward.retention where next_at <= onceward.now())",
        {},
        scalar,
        repeatable=True,
    )


def set_retention(kind: str, keep: timedelta | None) -> Call[None]:
    return Call(
        "select onceward.set_retention(%(kind)s::text, %(keep)s::interval)",
        {"kind": kind, "keep": keep},
        nothing,
        repeatable=True,
    )


def retention() -> Call[list[RetentionInfo]]:
    return Call(
        "select kind, description, keep, default_keep, least_keep, next_at, last_run_at, last_removed, last_note, set_at, set_by "
        "from onceward.retention order by kind",
        {},
        rows_of(RetentionInfo),
        repeatable=True,
    )


def hold_tenant(tenant: str, reason: str) -> Call[bool]:
    return Call(
        "select onceward.hold_tenant(%(tenant)s::text, %(reason)s::text)",
        {"tenant": tenant, "reason": jsonsafe.printable(reason)},
        scalar,
        repeatable=True,
    )


def release_tenant(tenant: str, reason: str) -> Call[bool]:
    return Call(
        "select onceward.release_tenant(%(tenant)s::text, %(reason)s::text)",
        {"tenant": tenant, "reason": jsonsafe.printable(reason)},
        scalar,
        repeatable=True,
    )


def legal_holds(*, all_of_them: bool = False) -> Call[list[LegalHoldInfo]]:
    return Call(
        "select tenant, active, held_at, held_by, reason, released_at, released_by, release_reason from onceward.legal_holds "
        "where active or %(all)s::boolean order by held_at desc",
        {"all": all_of_them},
        rows_of(LegalHoldInfo),
        repeatable=True,
    )
