"""The outcome of one fault."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any


class CannotInject(Exception):
    """This machine does not let the fault happen; the text says what is missing."""


@dataclass(slots=True)
class Verdict:
    """What a fault did, and what the ledger says."""

    fault: str
    seed: int
    injected: dict[str, int]
    ledger: dict[str, int]
    facts: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0
    # Why it was not injected.
    skipped: str | None = None

    @property
    def clean(self) -> bool:
        return self.skipped is None and not any(self.ledger.values()) and not self.problems

    def to_json(self) -> str:
        return json.dumps({**asdict(self), "clean": None if self.skipped else self.clean})
