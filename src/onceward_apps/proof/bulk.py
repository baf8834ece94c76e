"""Many batches from a table: what each row says, and what is wrong with it.  Nothing here touches a database."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal, InvalidOperation

MOST_ROWS = 500
# Several times what so many rows take; what is larger is not shown again, either.
MOST_BYTES = 64 * 1024
MUCH = 100_000
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


def decode(content: bytes) -> str:
    """The text of a file.  Raises UnreadableTable."""
    _check_size(len(content))
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    # Every other byte of UTF-16.
    if "\0" in text:
        raise UnreadableTable("The file is not UTF-8 text. In the spreadsheet, save it as “CSV UTF-8”.")
    return text


def _check_size(size: int) -> None:
    if size > MOST_BYTES:
        raise UnreadableTable(f"A table may have {MOST_BYTES // 1024} KiB, got {size // 1024:,}.")


def doubts(produced: date, kilograms: Decimal, today: date) -> list[str]:
    """What is allowed, and probably a slip of the finger."""
    found = []
    if produced > today:
        found.append(f"{produced} lies in the future")
    if kilograms > MUCH:
        found.append(f"{kilograms:,f} kg is more than {MUCH:,} kg")
    return found


def read(text: str, *, today: date) -> list[Row]:
    """The rows of a CSV whose first line names the columns.  Raises UnreadableTable."""
    _check_size(len(text.encode("utf-8", "replace")))
    lines = text.lstrip("\ufeff").strip()
    if not lines:
        raise UnreadableTable("The table is empty.")
    first = lines.splitlines()[0]
    delimiter = next((mark for mark in (";", "\t") if mark in first), ",")
    reader = csv.reader(io.StringIO(lines), delimiter=delimiter, strict=True)
    try:
        table = list(reader)
    except csv.Error:
        raise UnreadableTable(
            f"Line {reader.line_num} cannot be read: a quotation mark is not closed, or something follows it."
        ) from None
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
    return [_row(number, cells, head, seen, today) for number, cells in body]


def _row(
    number: int, cells: list[str], head: list[str], seen: dict[tuple[str, str], int], today: date
) -> Row:
    if len(cells) != len(head):
        values = "1 value" if len(cells) == 1 else f"{len(cells)} values"
        return Row(number, (", ".join(cells)[:40], ""), errors=[f"has {values} instead of {len(head)}"])
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
    warnings = [f"same as line {before}"] if before != number else []
    if produced is not None and kilograms is not None and not errors:
        warnings += doubts(produced, kilograms, today)
    return Row(
        number,
        (given[0][:40], given[1][:40]),
        produced,
        kilograms,
        errors,
        warning="; ".join(warnings),
    )
