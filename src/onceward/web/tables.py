"""Tables to take away: the rows of a page as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import fields
from datetime import datetime, timedelta
from typing import Any

from starlette.responses import Response

from onceward.web import words

# As many rows at once; more are had page by page.
MOST_ROWS = 10_000
# What a spreadsheet would take for a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def csv_of(name: str, kind: type[Any], rows: Iterable[Any], *, without: Sequence[str] = ()) -> Response:
    """One column per field of the dataclass."""
    columns = [field.name for field in fields(kind) if field.name not in without]
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(columns)
    for row in rows:
        writer.writerow([_cell(getattr(row, column)) for column in columns])
    return Response(
        out.getvalue(),
        media_type="text/csv; charset=utf-8",
        headers={"content-disposition": f'attachment; filename="{name}.csv"'},
    )


def _cell(value: Any) -> str:
    match value:
        case None:
            return ""
        case datetime():
            return words.iso(value)
        case timedelta():
            return f"{value.total_seconds():g}"
        case list():
            return " ".join(map(str, value))
        case bool():
            return "true" if value else "false"
        case int() | float():
            return str(value)
        case _:
            text = str(value)
            return "'" + text if text.startswith(_FORMULA) else text
