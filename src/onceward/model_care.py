"""What people do about dead letters, besides requeueing and resolving them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID


@dataclass(frozen=True, slots=True)
class AssignmentInfo:
    """One row of the view `assignments`: who looks after a kind of failure.  Without a tenant, of all of them."""

    tenant: str | None
    task: str
    fingerprint: str | None
    assigned_to: str
    assigned_by: str
    assigned_at: datetime


@dataclass(frozen=True, slots=True)
class CommentInfo:
    """One row of the view `comments`."""

    id: UUID
    tenant: str | None
    task: str
    fingerprint: str | None
    # The dead letter that was looked at, where it was one.
    job_id: UUID | None
    author: str
    said_at: datetime
    body: str
