"""What the calls about access and about browsing return."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

ROLES: tuple[str, ...] = ("viewer", "operator", "admin")
SCOPES: tuple[str, ...] = ("read", "enqueue", "operate")


@dataclass(frozen=True, slots=True)
class OperatorInfo:
    """Somebody who signs in to the web pages.  Without a tenant: for all of them."""

    name: str
    role: str
    tenant: str | None
    created_at: datetime
    created_by: str
    seen_at: datetime | None
    disabled_at: datetime | None
    sessions: int


@dataclass(frozen=True, slots=True)
class TokenInfo:
    """A token for programs, without its secret."""

    id: UUID
    name: str
    scopes: list[str]
    tenant: str | None
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    seen_at: datetime | None
    revoked_at: datetime | None
    revoked_by: str | None


@dataclass(frozen=True, slots=True)
class FoundJob:
    """One line of a search for jobs: a job without its payload and result."""

    id: UUID
    tenant: str
    lane: str
    task: str
    state: str
    priority: int
    attempt: int
    max_attempts: int
    created_at: datetime
    run_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    key: str | None
    error_type: str | None
    message: str | None
    note: str | None


@dataclass(frozen=True, slots=True)
class Count:
    """How many, and whether that is exact: `exactly`, `about` or `more than`."""

    number: int
    kind: str = "exactly"


@dataclass(frozen=True, slots=True)
class Activity:
    """Jobs done and attempts failed in one minute of one lane."""

    minute: datetime
    lane: str
    done: int
    failed: int
    about: bool


@dataclass(frozen=True, slots=True)
class LimitQueues:
    """How many jobs are ready and use a limit, by its name and key; `is_part` when not all ready jobs were looked at."""

    by_key: dict[tuple[str, str], int]
    is_part: bool

    def of(self, name: str, key: str | None = None) -> int:
        """Of one key, or of all keys together."""
        return sum(n for (other, k), n in self.by_key.items() if other == name and key in {None, k})
