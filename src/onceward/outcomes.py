"""What a handler may return instead of a result.  Errors are exceptions; these are decisions."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True)
class Snooze:
    """Run me again after this time.  Uses up no attempt; snoozes are counted and bounded."""

    delay: timedelta
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Cancel:
    """There is nothing to do: end the job as cancelled."""

    reason: str | None = None
