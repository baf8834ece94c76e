"""Waiting in crash tests, where time is real: poll for a condition with a deadline that only bounds a hang."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
# A fault that needs longer than this to come to rest hangs.
PATIENCE = 120.0


class Hang(AssertionError):
    """A condition was not met before its deadline."""


def until(condition: Callable[[], T], *, within: float = PATIENCE, what: str) -> T:
    """Wait for something true; a question that takes long is asked less often."""
    deadline = time.monotonic() + within
    while True:
        asked = time.monotonic()
        if answer := condition():
            return answer
        if asked > deadline:
            raise Hang(f"waited {within:g} s in vain for: {what}")
        time.sleep(max(0.01, 3 * (time.monotonic() - asked)))
