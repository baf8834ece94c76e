"""What doctor's checks have in common: a finding, and the server they look at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol, TypeVar

import psycopg

from onceward.calls import Call
from onceward.doctor_calls import Reach

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.  `status` is ok, warn or fail; `action` says what to do about it."""

    name: str
    status: str
    value: str
    meaning: str
    action: str | None = None


class Server(Protocol):
    """What doctor needs; the session of the command line is one."""

    @property
    def connection(self) -> psycopg.Connection[tuple[Any, ...]]: ...
    @property
    def conninfo(self) -> str: ...
    @property
    def reach(self) -> Reach: ...
    def run(self, call: Call[T]) -> T: ...


def listed(items: Sequence[str], most: int = 4) -> str:
    return ", ".join(items[:most]) + (f" and {len(items) - most} more" if len(items) > most else "")


def span(span: timedelta) -> str:
    minutes = span.total_seconds() / 60
    if minutes < 2:
        return f"{minutes * 60:.0f} s"
    return f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.0f} h"
