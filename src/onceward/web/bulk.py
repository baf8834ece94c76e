"""One thing done to many jobs: some at a time in a transaction, a failure stops none of the others."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from onceward.calls import Call
from onceward.errors import InvalidArgument, OncewardError, UnknownJob, WrongState
from onceward.web import words
from onceward.web.database import Database
from onceward.web.identity import Actor

# Locks are held for as long as a transaction takes.
AT_ONCE = 50
# One press of a button.
MOST = 2000


@dataclass(slots=True)
class Outcome:
    done: int = 0
    # Somebody else has dealt with them since the preview.
    gone: int = 0
    failed: int = 0
    reasons: list[str] = field(default_factory=list)

    def said(self, verb: str, noun: str = "job") -> str:
        parts = [f"{verb} {words.counted(self.done, noun)}"]
        parts += [f"{self.gone:,} had changed meanwhile"] if self.gone else []
        parts += [f"{self.failed:,} could not be: {self.reasons[0]}"] if self.failed else []
        return "; ".join(parts)


def packed(ids: Sequence[UUID]) -> str:
    """The jobs that a person was asked about, for the form that comes back: those are meant, and none that came since."""
    return base64.urlsafe_b64encode(b"".join(job.bytes for job in ids)).decode()


def unpacked(text: str) -> list[UUID]:
    try:
        read = base64.b64decode(text, altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        read = b"?"
    if not read or len(read) % 16 or len(read) > 16 * MOST:
        raise InvalidArgument("the form does not say which jobs", hint="Open the page that asks once more.")
    return [UUID(bytes=read[start : start + 16]) for start in range(0, len(read), 16)]


async def act_on_each(
    database: Database, who: Actor, ids: Sequence[UUID], make: Callable[[int, UUID], Call[Any]]
) -> Outcome:
    """`make` gets the position, for what is spread over time, and the id."""
    outcome = Outcome()
    for part in _parts(list(enumerate(ids))):
        async with database.acting(who, writes=True) as db:
            for position, job in part:
                try:
                    await db.attempt(make(position, job))
                    outcome.done += 1
                except (WrongState, UnknownJob):
                    outcome.gone += 1
                except OncewardError as error:
                    outcome.failed += 1
                    outcome.reasons.append(error.message)
    return outcome


def _parts(items: list[tuple[int, UUID]]) -> list[list[tuple[int, UUID]]]:
    return [items[start : start + AT_ONCE] for start in range(0, len(items), AT_ONCE)]
