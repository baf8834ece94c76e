"""Dates as they are printed, in English and German."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from typing import Final

_MONTHS: Final = {
    name: number
    for number, names in enumerate(
        (
            "january jan januar jän jänner",
            "february feb februar",
            "march mar märz maerz mrz marz",
            "april apr",
            "may mai",
            "june jun juni",
            "july jul juli",
            "august aug",
            "september sep sept",
            "october oct oktober okt",
            "november nov",
            "december dec dezember dez",
        ),
        1,
    )
    for name in names.split()
}
_MONTH: Final = "|".join(sorted(_MONTHS, key=len, reverse=True))
_PATTERNS: Final = (
    re.compile(r"(?<![\d.])(?P<year>(?:19|20)\d\d)-(?P<month>\d\d)-(?P<day>\d\d)(?!\d)"),
    # OCR puts a space behind a full stop now and then, and loses a full stop for a comma.
    re.compile(
        r"(?<!\d)(?<!\d[.,])(?P<day>\d{1,2})[.,] ?(?P<month>\d{1,2})[.,] ?(?P<year>(?:19|20)\d\d|\d\d)(?![\d.]*\d)"
    ),
    re.compile(r"(?<![\d/])(?P<first>\d{1,2})/(?P<second>\d{1,2})/(?P<year>(?:19|20)\d\d)(?![\d/])"),
    re.compile(
        rf"(?<!\d)(?P<day>\d{{1,2}})(?:\.|st|nd|rd|th)? ?[.·,]?(?P<name>{_MONTH})\.?,? ?(?P<year>(?:19|20)\d\d)(?!\d)",
        re.IGNORECASE,
    ),
    re.compile(
        rf"(?<!\w)(?P<name>{_MONTH})\.? ?(?P<day>\d{{1,2}})(?:st|nd|rd|th)?,? ?(?P<year>(?:19|20)\d\d)(?!\d)",
        re.IGNORECASE,
    ),
)


@dataclass(frozen=True, slots=True)
class Found:
    """A date in a text, with the place where it is printed."""

    start: int
    end: int
    day: date
    # 03/04/2024: the third of April here, and the fourth of March elsewhere.
    ambiguous: bool = False


def find(text: str) -> list[Found]:
    """Dates from left to right.  Those that no calendar has are left out."""
    found: list[Found] = []
    for pattern in _PATTERNS:
        for match in pattern.finditer(text):
            if any(other.start < match.end() and match.start() < other.end for other in found):
                continue
            found.extend(_made(match))
    return sorted(found, key=lambda each: each.start)


def parse(text: str) -> Found | None:
    """The date that a text is."""
    return next(iter(find(text.strip())), None)


def _made(match: re.Match[str]) -> Iterator[Found]:
    parts = match.groupdict()
    year = int(parts["year"])
    if year < 100:
        # Birthdays of people alive and dates of documents: neither lies far in the future.
        year += 1900 if year > 40 else 2000
    ambiguous = False
    if "first" in parts:
        day, month = int(parts["first"]), int(parts["second"])
        if month > 12:
            day, month = month, day
        ambiguous = day <= 12 and month <= 12 and day != month
    else:
        day = int(parts["day"])
        month = _MONTHS[parts["name"].lower()] if "name" in parts else int(parts["month"])
    try:
        yield Found(match.start(), match.end(), date(year, month, day), ambiguous)
    except ValueError:
        return
