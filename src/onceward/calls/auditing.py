"""Calls of the audit log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import date, timedelta
from typing import LiteralString
from uuid import UUID

from onceward import jsonsafe
from onceward.calls.base import Call, one, rows_of, scalar
from onceward.model_audit import (
    AuditEntry,
    AuditFilter,
    AuditStatus,
    DroppedAudit,
    EntryRow,
    EventRecord,
    Sealed,
    SealedEntry,
    SealRow,
)

ENTRY: LiteralString = "seq, at, kind, source, actor, role, tenant, job_id, jobs, entity_type, entity_id, before, after, message, meta"
_SEAL_NAMES = (
    "number", "previous", "day", "above_seq", "after_xact", "after_seq", "upto_xact", "upto_seq", "top_seq", "entries",
    "total", "root", "at",
)  # fmt: skip


def record_event(event: EventRecord) -> Call[int]:
    params = asdict(event)
    params["message"] = jsonsafe.printable(event.message) if event.message else None
    return Call(
        "select onceward.record_event(%(kind)s::text, %(message)s::text, %(entity_type)s::text, %(entity_id)s::text, "
        "%(before)s::jsonb, %(after)s::jsonb, %(meta)s::jsonb, %(job_id)s::uuid, %(actor)s::text, %(tenant)s::text)",
        params,
        scalar,
    )


def audit_entries(wanted: AuditFilter) -> Call[list[AuditEntry]]:
    """Newest first."""
    params = asdict(wanted)
    params["prefix"] = bool(wanted.kind and wanted.kind.endswith("."))
    return Call(
        "select " + ENTRY + " from onceward.audit_log "
        "where (%(kind)s::text is null or kind = %(kind)s::text or (%(prefix)s::boolean and starts_with(kind, %(kind)s::text))) "
        "and (%(actor)s::text is null or actor = %(actor)s::text) "
        "and (%(entity_type)s::text is null or entity_type = %(entity_type)s::text) "
        "and (%(entity_id)s::text is null or entity_id = %(entity_id)s::text) "
        "and (%(tenant)s::text is null or tenant = %(tenant)s::text) "
        "and (%(since)s::timestamptz is null or at >= %(since)s::timestamptz) "
        "and (%(until)s::timestamptz is null or at < %(until)s::timestamptz) "
        "and (%(before)s::bigint is null or seq < %(before)s::bigint) order by seq desc limit %(limit)s::int",
        params,
        rows_of(AuditEntry),
        repeatable=True,
    )


def audit_entry(seq: int) -> Call[AuditEntry | None]:
    return Call(
        "select " + ENTRY + " from onceward.audit_log where seq = %(seq)s::bigint",
        {"seq": seq},
        lambda rows: AuditEntry(*rows[0]) if rows else None,
        repeatable=True,
    )


def audit_of(job_id: UUID) -> Call[list[AuditEntry]]:
    """In order, the entries of batches among them."""
    return Call(
        "select " + ENTRY + " from onceward.audit_of(%(job_id)s::uuid) order by seq",
        {"job_id": job_id},
        rows_of(AuditEntry),
        repeatable=True,
    )


def audit_lane(name: str, mode: str) -> Call[bool]:
    return Call(
        "select onceward.audit_lane(%(name)s::text, %(mode)s::text)",
        {"name": name, "mode": mode},
        scalar,
        repeatable=True,
    )


def audit_status() -> Call[AuditStatus]:
    return Call(
        # Not what a driver cannot read: whoever verifies a log must be able to read one that was tampered with.
        "select seals, sealed, unsealed, held, case when isfinite(unsealed_since) then unsealed_since end, "
        "case when isfinite(sealed_at) then sealed_at end, head, root, log, restored from onceward.audit_status()",
        {},
        one(lambda row: AuditStatus(*row)),
        repeatable=True,
    )


def audit_dropped() -> Call[str | None]:
    """The day before which everything was dropped, as the log says itself."""
    return Call(
        "select max(meta ->> 'before') from onceward.audit_log where kind = 'audit.dropped' and source = 'engine'",
        {},
        scalar,
        repeatable=True,
    )


def seal(limit: int = 10_000, *, every: timedelta = timedelta(0)) -> Call[Sealed]:
    return Call(
        "select seals, entries, more from onceward.seal(%(limit)s::int, %(every)s::interval)",
        {"limit": limit, "every": every},
        one(lambda row: Sealed(*row)),
        repeatable=True,
    )


def seal_page(after: int, limit: int) -> Call[list[SealRow]]:
    return Call(
        "select fields, head, peaks from onceward.seal_page(%(after)s::bigint, %(limit)s::int)",
        {"after": after, "limit": limit},
        lambda rows: [SealRow(_seal_fields(row[0]), row[1], row[2]) for row in rows],
        repeatable=True,
    )


def seal_leaves(number: int) -> Call[tuple[list[int], bytes] | None]:
    """The numbers of the sealed entries and their hashes, end to end; None when they are gone."""
    return Call(
        "select seqs, leaves from onceward.seals where number = %(number)s::bigint and leaves is not null",
        {"number": number},
        lambda rows: (rows[0][0], rows[0][1]) if rows else None,
        repeatable=True,
    )


def seal_heads(after: int, limit: int) -> Call[list[bytes]]:
    return Call(
        "select head from onceward.seals where number > %(after)s::bigint order by number limit %(limit)s::int",
        {"after": after, "limit": limit},
        lambda rows: [row[0] for row in rows],
        repeatable=True,
    )


def seal_eras() -> Call[list[int]]:
    """Where the numbering of transactions began anew: 0, and one more for each restore into another cluster."""
    return Call(
        "select distinct above_seq from onceward.seals order by 1", {}, lambda rows: [row[0] for row in rows],
        repeatable=True,
    )  # fmt: skip


def seal_of(seq: int) -> Call[SealedEntry]:
    return Call(
        "select number, place, leaves, fields from onceward.seal_of(%(seq)s::bigint)",
        {"seq": seq},
        one(lambda row: SealedEntry(*row)),
        repeatable=True,
    )


def audit_page(
    eras: tuple[int | None, int | None],
    after: tuple[str, int] | None,
    upto: tuple[str, int] | None,
    limit: int = 1000,
) -> Call[list[EntryRow]]:
    """Entries between two places (xact, seq) of the order, whose seq lies between two others; None is no bound."""
    return Call(
        "select xact, seq, fields from onceward.audit_page(%(above)s::bigint, %(below)s::bigint, "
        "%(after_xact)s::text::xid8, %(after_seq)s::bigint, %(upto_xact)s::text::xid8, %(upto_seq)s::bigint, %(limit)s::int)",
        {
            "above": eras[0],
            "below": eras[1],
            "after_xact": after and after[0],
            "after_seq": after and after[1],
            "upto_xact": upto and upto[0],
            "upto_seq": upto and upto[1],
            "limit": limit,
        },
        rows_of(EntryRow),
        repeatable=True,
    )


def record_checkpoint(number: int, head: bytes, where: str, *, key: str | None = None) -> Call[int]:
    return Call(
        "select onceward.record_checkpoint(%(number)s::bigint, %(head)s::bytea, %(where)s::text, %(key)s::text)",
        {"number": number, "head": head, "where": where, "key": key},
        scalar,
    )


def drop_audit(before: date) -> Call[DroppedAudit]:
    return Call(
        "select days, entries from onceward.drop_audit(%(before)s::date)",
        {"before": before},
        one(lambda row: DroppedAudit(*row)),
    )


def _seal_fields(texts: Sequence[str | None]) -> dict[str, str | None]:
    # The first text is the tag, which says how the others are to be read.
    return dict(zip(_SEAL_NAMES, texts[1:], strict=True))
