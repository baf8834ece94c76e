"""The order of a table that is shown as a whole, as it stands in the address: `sort=ready`, or `sort=-ready` from the other end.

Lists that are read page by page keep the order of their index; see query.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from onceward.web.query import Query

T = TypeVar("T")
# By column: what a row is compared by.  None comes last, from whichever end.
Columns = Mapping[str, Callable[[T], Any]]


@dataclass(frozen=True, slots=True)
class Sorting(Generic[T]):
    """One table's order, and the addresses of the others."""

    query: Query
    columns: Columns[T]
    column: str
    falls: bool

    def sorted(self, rows: Iterable[T]) -> list[T]:
        key = self.columns[self.column]
        listed = list(rows)
        known = sorted((row for row in listed if key(row) is not None), key=key, reverse=self.falls)
        return known + [row for row in listed if key(row) is None]

    def direction(self, column: str) -> str | None:
        """As readers of screens are told."""
        if column != self.column:
            return None
        return "descending" if self.falls else "ascending"

    def address(self, column: str) -> str:
        """Once more on the same column turns it round."""
        turned = column == self.column and not self.falls
        return self.query.with_(sort=f"-{column}" if turned else column)


def sorting(query: Query, columns: Columns[T], default: str) -> Sorting[T]:
    """Raises InvalidArgument for a column that the table does not have."""
    known = [*columns, *(f"-{column}" for column in columns)]
    chosen = (query.many("sort", known) or [default])[0]
    return Sorting(query, columns, chosen.removeprefix("-"), chosen.startswith("-"))
