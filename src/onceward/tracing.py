"""What a tracing library has to offer to be hung into an application: `app.tracing`.

`onceward.contrib.opentelemetry` is one.  Without any, nothing here costs more than a look at None.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

# Says how the traced work ended; "done" when nobody says so.
Outcome = Callable[[str], None]


class TracedJob(Protocol):
    """What is known of an attempt that begins."""

    ref: str
    task: str
    lane: str
    attempt: int
    epoch: int
    headers: dict[str, str] | None


class Tracing(Protocol):
    """Spans around what the engine does."""

    def enqueue(
        self, task: str, headers: Mapping[str, str], *, count: int
    ) -> AbstractContextManager[dict[str, str]]:
        """Around an enqueue; gives the headers that the jobs carry to their workers."""
        ...

    def attempt(self, job: TracedJob) -> AbstractContextManager[Outcome]:
        """Around a handler."""
        ...

    def part(
        self, name: str, attributes: Mapping[str, str], *, outside: bool
    ) -> AbstractContextManager[Outcome]:
        """Around a step of a job, or the sending of a delivery (outside)."""
        ...


class Traceable(Protocol):
    """An application."""

    tracing: Tracing | None


def _nothing(outcome: str) -> None:
    pass


# Stands for a span when nobody traces.  One for all: it has no state.
UNTRACED: AbstractContextManager[Outcome] = nullcontext(_nothing)
