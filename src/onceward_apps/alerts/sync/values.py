"""Reading single values: whatever a source writes becomes the type that its target has, or is refused by name and value.

Nothing is guessed: a number with a thousands separator, a day without a month or NaN is refused rather than read wrongly.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any
from uuid import UUID

from onceward.errors import shown

# More digits than any amount has; a text such as 1e400000 must not become a number of as many digits.
MOST_DIGITS = 38
LONGEST_TEXT = 10_000
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,6})?")
_CODE = re.compile(r"[a-z0-9][a-z0-9_.-]{0,99}")
_UNWRITABLE = re.compile("[\x00\ud800-\udfff]")


class Unfit(ValueError):
    """Says what a value must be, and what it is."""


def kind_of(value: object) -> str | None:
    """text, number, boolean, timestamp, json or binary; None for a null, which tells nothing."""
    match value:
        case None:
            return None
        case bool():
            return "boolean"
        case int() | float() | Decimal():
            return "number"
        case str() | UUID():
            return "text"
        case date():
            return "timestamp"
        case dict() | list() | tuple():
            return "json"
        case bytes():
            return "binary"
        case _:
            return type(value).__name__


def text(value: object) -> str:
    """Ids come as numbers or as texts, and are the same id."""
    match value:
        case bool() | None:
            raise Unfit(f"must be a text, got {value}")
        case str():
            found = value
        case float() if not value.is_integer():
            raise Unfit(f"must be a text, got the number {value}")
        case Decimal() if (
            not value.is_finite() or value != value.to_integral_value() or value.adjusted() > MOST_DIGITS
        ):
            raise Unfit(f"must be a text, got the number {shown(value)}")
        case int() | float() | Decimal():
            found = str(int(value))
        case UUID():
            found = str(value)
        case date():
            found = value.isoformat()
        case _:
            raise Unfit(f"must be a text, got {kind_of(value)}")
    if _UNWRITABLE.search(found):
        raise Unfit(f"must not contain NUL or lone surrogates, got {shown(found)!r}")
    if len(found) > LONGEST_TEXT:
        raise Unfit(f"must be at most {LONGEST_TEXT} characters, got {len(found)}")
    return found


def code(value: object) -> str:
    """The code of a metric, as alerts.metric_definitions takes it."""
    found = text(value)
    if not _CODE.fullmatch(found):
        raise Unfit(f"must be at most 100 of a-z, 0-9, _, . and -, got {shown(found)!r}")
    return found


def number(value: object) -> Decimal:
    match value:
        case bool() | None:
            raise Unfit(f"must be a number, got {value}")
        case int() | Decimal():
            found = Decimal(value)
        case float():
            # The shortest text that reads back as the same number: 0.1, not 0.1000000000000000055.
            found = Decimal(repr(value))
        case str() if _NUMBER.fullmatch(value.strip()):
            try:
                found = Decimal(value.strip())
            except InvalidOperation:
                raise Unfit(f"must be a number, got {shown(value)!r}") from None
        case _:
            raise Unfit(f"must be a number, got {shown(value)!r}")
    if not found.is_finite():
        raise Unfit(f"must be a finite number, got {value}")
    if found and (abs(found.adjusted()) > MOST_DIGITS or len(found.as_tuple().digits) > MOST_DIGITS):
        raise Unfit(f"must have at most {MOST_DIGITS} digits, got {shown(value)}")
    return found or Decimal(0)


def measure(value: object) -> float:
    """A number that a double precision can hold."""
    return float(number(value))


def timestamp(value: object) -> datetime:
    """What has no time zone is UTC; a day is its beginning."""
    found: datetime
    match value:
        case datetime():
            found = value
        case date():
            found = datetime(value.year, value.month, value.day, tzinfo=UTC)
        case str():
            try:
                found = datetime.fromisoformat(value.strip().removesuffix(" UTC"))
            except ValueError:
                raise Unfit(f"must be a time in ISO 8601, got {shown(value)!r}") from None
        case _:
            raise Unfit(f"must be a time, got {shown(value)!r}")
    try:
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (OverflowError, ValueError):
        raise Unfit(f"must be a time between the years 1 and 9999, got {shown(value)!r}") from None


def truth(value: object) -> bool:
    """Whether a column says that a row is gone: true, a time of deletion, any text but an empty one and "false"."""
    if isinstance(value, str):
        return value.strip().lower() not in {"", "0", "false", "f", "no", "n", "null"}
    return bool(value)


def plain(value: object) -> Any:
    """As JSON, for what is kept beside the named fields."""
    match value:
        case None | bool() | str():
            return value if not isinstance(value, str) else text(value)
        case int() | float() | Decimal():
            return str(number(value)) if isinstance(value, Decimal | float) else value
        case date():
            return value.isoformat()
        case dict():
            return {text(key): plain(inner) for key, inner in value.items()}
        case list() | tuple():
            return [plain(inner) for inner in value]
        case _:
            return text(value)


Reading = Callable[[object], Any]
