"""What a source gives, and what can be wrong with it.

OncewardError
└── SourceError            names the source; retried by the run's policy, and a dead letter when that is used up
    ├── Misconfigured      its settings cannot be used
    ├── Unavailable        it does not answer, or answers with an error that may pass
    ├── Refused            it answers that we may not, or that there is nothing
    ├── Unreadable         what it answers is not what its kind promises
    ├── SchemaChanged      a column has vanished, or is of another type
    └── BadRow             a row lacks what its target needs
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, Self
from uuid import UUID

from onceward import OncewardError

# Where the next page begins, in the source's own words; JSON.
Cursor = dict[str, Any] | None


class SourceError(OncewardError):
    """A source could not be read."""


class Misconfigured(SourceError):
    """The settings of a source cannot be used."""


class Unavailable(SourceError):
    """A source does not answer, or answers with an error that may pass."""


class Refused(SourceError):
    """A source answers that we may not read it, or that there is nothing to read."""


class Unreadable(SourceError):
    """What a source answers is not what its kind promises."""


class SchemaChanged(SourceError):
    """A column has vanished, or is of another type than before."""


class BadRow(SourceError):
    """A row lacks what its target needs."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row, and where it stands, for those who have to find it again."""

    place: str
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Page:
    rows: list[Row]
    # Column → type, in the words of `values.kind_of`.
    columns: Mapping[str, str]
    # Whether the source itself declares its columns.  Otherwise they are what the rows happen to have.
    declared: bool
    # After this page.
    cursor: Cursor
    # Whether there may be another page now.
    more: bool


class Reader(Protocol):
    """An open source."""

    async def fetch(self, cursor: Cursor) -> Page:
        """The page after this cursor; None is the beginning.  The same cursor gives the same rows again, and later ones."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *unused: object) -> None: ...


@dataclass(frozen=True, slots=True)
class Source:
    """A row of alerts.sync_sources with its cursor."""

    id: UUID
    name: str
    kind: str
    target: str
    settings: Mapping[str, Any]
    cursor: Cursor
    columns: Mapping[str, str]
