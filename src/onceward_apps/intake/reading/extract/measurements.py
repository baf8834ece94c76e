"""Measurements: a name of the table, a value, a unit and a range, in whatever order a laboratory prints the rest."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from onceward_apps.intake.reading import dates, lexicon, units
from onceward_apps.intake.reading.extract.rows import Row
from onceward_apps.intake.reading.model import Fact, Span

_TOKEN: Final = re.compile(
    r"(?P<number>\d+(?:[.,]\d+)*)|(?P<dash>[-–—−‐~])|(?P<bound>[<>≤≥]=?)|(?P<bracket>[()\[\]{}])"
    r"|(?P<mark>[:=;,*↑↓+])|(?P<text>[^\s\d\-–—−‐~<>≤≥()\[\]{}:=;,*↑↓+]+)"
)
_FLAGS: Final = frozenset(
    ("h", "l", "hh", "ll", "high", "low", "hoch", "niedrig", "erhöht", "erniedrigt", "n")
)
_RANGE_WORDS: Final = frozenset(
    (
        "ref",
        "ref.",
        "reference",
        "range",
        "referenz",
        "referenzbereich",
        "normal",
        "norm",
        "normbereich",
        "target",
        "ziel",
    )
)
_UPPER: Final = frozenset(("bis", "upto", "to", "unter", "below"))
_LOWER: Final = frozenset(("ab", "über", "above", "from"))
# Between a name and its value: nothing that changes what is measured.
_FILLERS: Final = frozenset(
    (
        "is",
        "was",
        "of",
        "at",
        "ist",
        "war",
        "lag",
        "beträgt",
        "betrug",
        "von",
        "bei",
        "mit",
        "level",
        "wert",
        "a",
        "the",
        ",",
    )
)
_UNIT_TOKENS: Final = 7


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    word: int
    # Whether a space stands before it.
    apart: bool


@dataclass(frozen=True, slots=True)
class _Reading:
    """What stands behind a name."""

    value: str
    last: int
    unit: str | None = None
    low: str | None = None
    high: str | None = None
    quality: float = 1.0


def find(row: Row, day: str | None) -> Iterator[Fact]:
    """The measurements of a line.  `day` is the one that the document gives for them, as printed."""
    at = 0
    while at < len(row.words):
        match = lexicon.measured().at(_bare(row.words), at)
        if match is None:
            at += 1
            continue
        analyte = lexicon.analytes()[match.code]
        reading = _behind(row, at + match.words, analyte)
        if reading is None:
            at += match.words
            continue
        name = " ".join(row.words[at : at + match.words]).strip(" :=*,;")
        span = row.span(at, reading.last)
        confidence = round(row.seen(span) * match.quality * reading.quality, 4)
        yield from _facts(analyte, name, reading, span=span, confidence=confidence, day=day)
        at = reading.last + 1


def _facts(
    analyte: lexicon.Analyte, name: str, reading: _Reading, *, span: Span, confidence: float, day: str | None
) -> Iterator[Fact]:
    if analyte.pair:
        upper, _, lower = reading.value.partition("/")
        values = [(f"{name} {half}", value) for half, value in (("systolic", upper), ("diastolic", lower))]
    else:
        values = [(name, reading.value)]
    for title, value in values:
        yield Fact(
            kind="measurement",
            name=title,
            source=span,
            confidence=confidence,
            value=value,
            unit=reading.unit,
            low=reading.low,
            high=reading.high,
            date=day,
        )


def _bare(words: Sequence[str]) -> list[str]:
    """Without the marks that hang on words: lexicon names have none."""
    return [word.strip(":=*•,;") for word in words]


def _behind(row: Row, start: int, analyte: lexicon.Analyte) -> _Reading | None:
    tokens = list(_tokens(row, start))
    at = 0
    # A little may stand in between: a remark in brackets, a colon, "was".
    while at < len(tokens) and tokens[at].kind not in {"number", "bound"}:
        token = tokens[at]
        if token.text in "([{":
            at = _closed(tokens, at)
        elif token.kind in {"mark", "dash"} or token.text.casefold() in _FILLERS:
            at += 1
        else:
            return None
    value, at = _value(tokens, at, pair=analyte.pair is not None)
    if value is None:
        return None
    return _rest(tokens, at, value, analyte)


def _value(tokens: Sequence[_Token], at: int, *, pair: bool) -> tuple[str | None, int]:
    bound = ""
    if at < len(tokens) and tokens[at].kind == "bound":
        bound = tokens[at].text[0].replace("≤", "<").replace("≥", ">")
        at += 1
    if at >= len(tokens) or tokens[at].kind != "number" or units.number(tokens[at].text) is None:
        return None, at
    number = tokens[at].text
    if pair:
        if at + 2 < len(tokens) and tokens[at + 1].text == "/" and tokens[at + 2].kind == "number":
            return f"{number}/{tokens[at + 2].text}", at + 3
        return None, at
    follower = tokens[at + 1] if at + 1 < len(tokens) else None
    # 12-15 is a range without a value, 12/15 something else again.
    if follower and not follower.apart and (follower.kind == "dash" or follower.text == "/"):
        return None, at
    return bound + number, at + 1


def _rest(tokens: Sequence[_Token], at: int, value: str, analyte: lexicon.Analyte) -> _Reading | None:
    unit: str | None = None
    low: str | None = None
    high: str | None = None
    quality = 1.0
    last = tokens[at - 1].word
    while at < len(tokens):
        token = tokens[at]
        if unit is None and (found := _unit(tokens, at, analyte)):
            unit, at = found
        elif low is None and high is None and (span := _range(tokens, at)):
            low, high, at, sure = span
            quality *= sure
        elif token.kind == "mark" or token.text.casefold() in _FLAGS or token.text in "([":
            at += 1
            continue
        elif token.text.casefold().rstrip(".") in _RANGE_WORDS or token.text in ")]":
            at += 1
            if token.text in ")]":
                last = token.word
            continue
        elif token.kind == "dash" and token.apart:
            # A flag for "too low", or an empty column.
            at += 1
            continue
        else:
            break
        last = tokens[at - 1].word
    # A number alone behind a name is a page, a year or a count as often as a value.
    if unit is None and analyte.unit != "1":
        quality *= 0.85 if low or high else 0.5
    return _Reading(value, last, unit, low, high, quality)


def _unit(tokens: Sequence[_Token], at: int, analyte: lexicon.Analyte) -> tuple[str, int] | None:
    """The longest piece that is a unit, with the token after it; one of the analyte's before any other."""
    best: tuple[str, int] | None = None
    joined = ""
    if tokens[at].kind in {"mark", "bracket", "bound", "dash"}:
        return None
    for end in range(at, min(at + _UNIT_TOKENS, len(tokens))):
        token = tokens[end]
        joined += (" " if token.apart and joined else "") + token.text
        found = units.symbols(joined) if token.kind not in {"mark", "bracket"} else frozenset()
        if found & analyte.units or (found and best is None and token.kind != "number"):
            best = joined, end + 1
    if best is None and "/" in tokens[at].text and tokens[at].kind == "text" and len(tokens[at].text) > 2:
        best = tokens[at].text, at + 1
    return best


def _range(tokens: Sequence[_Token], at: int) -> tuple[str | None, str | None, int, float] | None:
    """Low, high, the token after them, and how sure that is."""
    while at < len(tokens) and (
        tokens[at].text in "([" or tokens[at].text.casefold().rstrip(":.") in _RANGE_WORDS
    ):
        at += 1
        while at < len(tokens) and tokens[at].text == ":":
            at += 1
    if at >= len(tokens):
        return None
    token = tokens[at]
    number = _plain(tokens, at + 1)
    if number and (token.kind == "bound" or token.text.casefold() in _UPPER | _LOWER):
        lower = token.text[0] in ">≥" or token.text.casefold() in _LOWER
        return (number, None, at + 2, 1.0) if lower else (None, number, at + 2, 1.0)
    first = _plain(tokens, at)
    if not first:
        return None
    middle = tokens[at + 1] if at + 1 < len(tokens) else None
    if middle and (middle.kind == "dash" or middle.text.casefold() in {"bis", "to"}):
        second = _plain(tokens, at + 2)
        return (first, second, at + 3, 1.0) if second and _ordered(first, second) else None
    second = _plain(tokens, at + 1)
    # OCR overlooks a dash now and then.
    return (first, second, at + 2, 0.8) if second and _ordered(first, second) else None


def _plain(tokens: Sequence[_Token], at: int) -> str | None:
    if at < len(tokens) and tokens[at].kind == "number" and units.number(tokens[at].text) is not None:
        return tokens[at].text
    return None


def _ordered(low: str, high: str) -> bool:
    a, b = units.number(low), units.number(high)
    return a is not None and b is not None and a < b


def _closed(tokens: Sequence[_Token], at: int) -> int:
    """The token after the bracket that closes."""
    for end in range(at + 1, len(tokens)):
        if tokens[end].text in ")]}":
            return end + 1
    return len(tokens)


def _tokens(row: Row, start: int) -> Iterator[_Token]:
    offset = row.offset(start)
    tail = row.text[offset:]
    days = [(found.start, found.end) for found in dates.find(tail)]
    end = 0
    for match in _TOKEN.finditer(tail):
        # A date is no value, and nothing behind it belongs to the name before it.
        if any(first <= match.start() < last for first, last in days):
            return
        kind = match.lastgroup or "text"
        yield _Token(
            kind, match.group(), row.word_at(offset + match.start()), match.start() > end or end == 0
        )
        end = match.end()
