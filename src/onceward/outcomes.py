"""What a handler may return instead of a result.  Errors are exceptions; these are decisions."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from onceward.errors import InvalidArgument

if TYPE_CHECKING:
    from onceward.calls import Call

# As the database counts ten years: in months of thirty days.
LONGEST_SNOOZE = timedelta(days=3600)


@dataclass(frozen=True, slots=True)
class Snooze:
    """Run me again after this time.  Uses up no attempt; snoozes are counted and bounded."""

    delay: timedelta
    reason: str | None = None

    def check(self) -> None:
        """Raises InvalidArgument for a time that no job can wait."""
        if not isinstance(self.delay, timedelta):
            raise InvalidArgument(
                f"a snooze must be a timedelta, got {self.delay!r:.60}",
                hint="Return Snooze(timedelta(seconds=5)).",
            )
        if not timedelta(0) <= self.delay <= LONGEST_SNOOZE:
            raise InvalidArgument(f"a snooze must be between 0 and 10 years, got {self.delay}")
        _check_reason(self.reason)


@dataclass(frozen=True, slots=True)
class Cancel:
    """There is nothing to do: end the job as cancelled."""

    reason: str | None = None

    def check(self) -> None:
        """Raises InvalidArgument for a reason that cannot be recorded."""
        _check_reason(self.reason)


@dataclass(frozen=True, slots=True)
class Settle:
    """End the attempt by this call.  For the engine's own tasks, whose end changes more than the job."""

    call: Call[Any]


def _check_reason(reason: object) -> None:
    if reason is not None and not isinstance(reason, str):
        raise InvalidArgument(f"a reason must be text, got {reason!r:.60}")
