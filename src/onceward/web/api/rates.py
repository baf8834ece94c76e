"""How often somebody may ask: a bucket for each, in the memory of this process."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable

# More callers than this are not told apart for long: those who have not asked for a while are forgotten.
MOST = 10_000


class Rates:
    """`rate` requests a second; after a pause, `burst` at once."""

    def __init__(self, rate: float, burst: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate, self._burst, self._clock = rate, burst, clock
        # What is left, and when that was so.
        self._left: dict[Hashable, tuple[float, float]] = {}

    def knows(self, who: Hashable) -> bool:
        return who in self._left

    def wait(self, who: Hashable) -> float:
        """Seconds until they may ask again; 0 when they may now.  Nothing is taken."""
        return max(0.0, (1 - self._now(who)[0]) / self._rate)

    def take(self, who: Hashable) -> float:
        """Like wait, and takes one when there is one."""
        left, now = self._now(who)
        if left < 1:
            return (1 - left) / self._rate
        if len(self._left) >= MOST and who not in self._left:
            self._forget(now)
        self._left[who] = (left - 1, now)
        return 0.0

    def _now(self, who: Hashable) -> tuple[float, float]:
        now = self._clock()
        left, since = self._left.get(who, (self._burst, now))
        return min(self._burst, left + (now - since) * self._rate), now

    def _forget(self, now: float) -> None:
        """Those whose bucket is full again; if all are busy, everybody: better a burst than a leak."""
        self._left = {
            who: (left, since)
            for who, (left, since) in self._left.items()
            if left + (now - since) * self._rate < self._burst
        }
        if len(self._left) >= MOST:
            self._left.clear()
