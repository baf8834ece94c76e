"""Short retries of a step, inside one attempt: a blip does not use one up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onceward.errors import InvalidArgument, LeaseLost, PermanentFailure

# A server may ask for patience, in seconds; more than this is for the job's own retries, which hold no slot.
LONGEST_ASKED = 60.0


@dataclass(frozen=True, slots=True)
class Tries:
    """How often a step is tried within one attempt, and when it is given up."""

    tries: int
    waits: Sequence[float]
    timeout: float | None
    on: tuple[type[Exception], ...]

    def check(self) -> None:
        if self.tries < 1:
            raise InvalidArgument(f"tries must be at least 1, got {self.tries}")
        if any(wait < 0 for wait in self.waits) or (self.timeout is not None and self.timeout <= 0):
            raise InvalidArgument("waits and timeout must be positive numbers of seconds")

    def is_over(self, error: Exception, tried: int) -> bool:
        return (
            tried >= self.tries
            or not isinstance(error, self.on)
            or isinstance(error, (PermanentFailure, LeaseLost))
        )

    def wait(self, tried: int, error: Exception) -> float:
        wait = self.waits[min(tried, len(self.waits)) - 1] if self.waits else 0.0
        asked = getattr(error, "retry_after", None)
        return max(wait, min(asked, LONGEST_ASKED)) if isinstance(asked, int | float) else wait
