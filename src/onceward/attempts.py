"""Attempts of a job by run: what happened before somebody requeued it is told apart from what came after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from onceward.model import AttemptInfo
from onceward.model_audit import AuditEntry

# After an attempt that ended so, the job runs again only when somebody requeues it.
LAST = frozenset({"dead_letter", "cancelled"})


@dataclass(frozen=True, slots=True)
class Run:
    """The attempts from one requeue to the next; each run numbers them from 1."""

    number: int
    # Of the requeue, when it is known; the first run has none.
    since: datetime | None
    by: str | None
    attempts: list[AttemptInfo]


def runs(attempts: Sequence[AttemptInfo], audited: Sequence[AuditEntry]) -> list[Run]:
    """Attempts by run.  The audit log, as far as it is kept, tells who began each; else the end of the one before."""
    requeued = [entry for entry in audited if entry.kind == "job.requeued"]
    found: list[Run] = []
    last: AttemptInfo | None = None
    for attempt in attempts:
        between = [entry for entry in requeued if last and last.started_at <= entry.at <= attempt.started_at]
        if last is None or between or last.outcome in LAST:
            entry = between[-1] if between else None
            found.append(Run(len(found) + 1, entry.at if entry else None, entry.actor if entry else None, []))
        found[-1].attempts.append(attempt)
        last = attempt
    return found
