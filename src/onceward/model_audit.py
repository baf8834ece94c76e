"""What the audit log's calls take and return."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from onceward.model import Json


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One row of the view `audit_log`."""

    seq: int
    at: datetime
    kind: str
    source: str
    actor: str
    role: str
    tenant: str | None
    job_id: UUID | None
    jobs: list[UUID] | None
    entity_type: str | None
    entity_id: str | None
    before: Json
    after: Json
    message: str | None
    meta: Json


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Which entries to list, newest first.  `kind` is a whole kind, or the beginning of one when it ends in a dot."""

    kind: str | None = None
    actor: str | None = None
    entity_type: str | None = None
    entity_id: str | None = None
    tenant: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    before: int | None = None
    limit: int = 100


@dataclass(frozen=True, slots=True)
class EventRecord:
    """What an application writes into the audit log; `before`, `after` and `meta` are JSON text."""

    kind: str
    message: str | None = None
    entity_type: str | None = None
    entity_id: str | None = None
    before: str | None = None
    after: str | None = None
    meta: str | None = None
    job_id: UUID | None = None
    actor: str | None = None
    tenant: str | None = None


class Sealed(NamedTuple):
    """The answer of seal: how much was sealed, and whether there is more to do at once."""

    seals: int
    entries: int
    more: bool


class AuditStatus(NamedTuple):
    """How far the log is sealed.  `held`: entries that wait for open transactions."""

    seals: int
    sealed: int
    unsealed: int
    held: int
    unsealed_since: datetime | None
    sealed_at: datetime | None
    head: bytes
    root: bytes
    log: bytes
    restored: bool


class SealRow(NamedTuple):
    """A seal as what is hashed: texts by the names of `verifier.SEAL`, and what stands beside them."""

    fields: dict[str, str | None]
    head: bytes
    peaks: list[bytes]


class EntryRow(NamedTuple):
    """An entry as what is hashed: texts by the names of `verifier.ENTRY`."""

    xact: str
    seq: int
    fields: list[str | None]


class SealedEntry(NamedTuple):
    """Where an entry is sealed; `number` is None while it is not."""

    number: int | None
    place: int | None
    leaves: bytes | None
    fields: list[str | None]


class DroppedAudit(NamedTuple):
    days: int
    entries: int
