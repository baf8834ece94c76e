"""Many batches from a table: what each row says, and what is wrong with it.  Nothing here touches a database."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal, InvalidOperation

MOST_ROWS = 500
COLUMNS = ("production_date", "kg_produced")


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the table, by its line, with what it says and what is wrong."""

    line: int
    given: tuple[str, str]
    production_date: date | None = None
    kg_produced: Decimal | None = None
    errors: Sequence[str] = field(default=())
    # Worth a look, and allowed.
    warning: str = ""

    def to_json(self) -> dict[str, str]:
        return {"production_date": str(self.production_date), "kg_produced": str(self.kg_produced)}


class UnreadableTable(ValueError):
    """The table as a whole cannot be read."""


def read(text: str) -> list[Row]:
    """The rows of a CSV whose first line names the columns.  Raises UnreadableTable."""
    lines = text.lstrip("\ufeff").strip()
    if not lines:
        raise UnreadableTable("The table is empty.")
    first = lines.splitlines()[0]
    delimiter = next((mark for mark in (";", "\t") if mark in first), ",")
    try:
        table = list(csv.reader(io.StringIO(lines), delimiter=delimiter, strict=True))
    except csv.Error as error:
        raise UnreadableTable(f"The table cannot be read: {error}.") from None
    head = [name.strip().lower() for name in table[0]]
    if sorted(head) != sorted(COLUMNS):
        raise UnreadableTable(
            f"The first line must name the columns {' and '.join(COLUMNS)}, got {', '.join(head)[:80]}."
        )
    body = [(number, cells) for number, cells in enumerate(table[1:], 2) if any(map(str.strip, cells))]
    if not body:
        raise UnreadableTable("There are no rows below the first line.")
    if len(body) > MOST_ROWS:
        raise UnreadableTable(f"A table may have {MOST_ROWS} rows, got {len(body)}.")
    seen: dict[tuple[str, str], int] = {}
    return [_row(number, cells, head, seen) for number, cells in body]


def _row(number: int, cells: list[str], head: list[str], seen: dict[tuple[str, str], int]) -> Row:
    if len(cells) != len(head):
        return Row(
            number, (", ".join(cells)[:40], ""), errors=[f"has {len(cells)} values instead of {len(head)}"]
        )
    named = dict(zip(head, (cell.strip() for cell in cells), strict=True))
    given = (named["production_date"], named["kg_produced"])
    errors: list[str] = []
    produced: date | None = None
    kilograms: Decimal | None = None
    try:
        produced = date.fromisoformat(given[0]) if len(given[0]) == 10 else None
    except ValueError:
        produced = None
    if produced is None:
        errors.append("production_date must be a date as 2026-03-20")
    try:
        kilograms = Decimal(given[1])
    except InvalidOperation:
        errors.append("kg_produced must be a number as 512.5")
    if kilograms is not None and not (kilograms.is_finite() and 0 < kilograms < 1_000_000):
        errors.append("kg_produced must be more than 0 and less than 1000000")
    before = seen.setdefault(given, number)
    return Row(
        number,
        (given[0][:40], given[1][:40]),
        produced,
        kilograms,
        errors,
        warning=f"same as line {before}" if before != number else "",
    )
