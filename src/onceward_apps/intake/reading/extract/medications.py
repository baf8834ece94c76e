"""Medications: a name of the table, or in a list of medications any name, with a dose and how often it is taken."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from onceward_apps.intake.reading import dates, lexicon
from onceward_apps.intake.reading.extract.rows import Row
from onceward_apps.intake.reading.model import Classification, Fact

_DOSE: Final = re.compile(
    r"(?<![\w.,])(?P<amount>\d+(?:[.,]\d+)?)\s?(?P<unit>mg/ml|mg/g|µg/h|mg|mcg|[µμu]g|g|ml|I\.?E\.?|IU|units|Einheiten|mmol|%)(?![\w/])",
    re.IGNORECASE,
)
_OFTEN: Final = re.compile(
    # 1-0-1, 1 - 0 - 1 - 0, ½-0-½
    r"(?<![\w,.])(?:[0-9½¼]|0[,.]5)(?:\s?[-–—]\s?(?:[0-9½¼]|0[,.]5)){2,3}(?![\w,.])"
    # The four columns of a plan
    r"|(?<![\w,.-])(?:[0-4½] ){2,3}[0-4½](?![\w,.-])"
    r"|(?:once|twice|three times|four times|one|two)(?: tablets?)? (?:a day|daily|per day|weekly|a week)"
    r"|(?:ein|zwei|drei|vier)mal (?:täglich|pro Tag|wöchentlich)"
    r"|\d ?[x×] ?(?:daily|täglich|tgl\.?|pro Tag|/Tag|weekly|wöchentlich)"
    r"|every \d{1,2} hours|alle \d{1,2} (?:Stunden|Std\.?)"
    r"|(?:in the morning|at night|in the evening|at bedtime|with meals|daily)"
    r"|(?:morgens|abends|mittags|zur Nacht|täglich)"
    r"|(?:as needed|when required|bei Bedarf|prn)",
    re.IGNORECASE,
)
_STOPPED: Final = re.compile(
    r"\b(?:stopped|discontinued|ceased|paused|abgesetzt|pausiert|beendet|allerg\w*|intoleran\w*|unverträglich\w*)\b",
    re.IGNORECASE,
)
_UNNAMED: Final = re.compile(r"[A-ZÄÖÜ][\wäöüß-]{3,}(?: [a-zäöüß-]{4,})?")
_NOT_NAMES: Final = frozenset(
    lexicon.fold(word)
    for word in [
        "substance",
        "medication",
        "medicine",
        "wirkstoff",
        "medikament",
        "stärke",
        "strength",
        "dose",
        "dosage",
        "form",
        "patient",
        "tablets",
        "tabletten",
        "morgens",
        "mittags",
        "abends",
        "nachts",
        "signature",
        "unterschrift",
        "practice",
        "praxis",
        "phone",
        "telefon",
        "page",
        "seite",
        "note",
        "hinweis",
    ]
)


@dataclass(frozen=True, slots=True)
class _Name:
    first: int
    words: int
    quality: float


def find(row: Row, day: str | None, classification: Classification) -> Iterator[Fact]:
    if row.section in {"allergies", "family"} or _STOPPED.search(row.plain):
        return
    names = list(_names(row, listed=_is_list(row, classification)))
    for number, name in enumerate(names):
        start = row.offset(name.first + name.words)
        # What stands behind a name up to the next one is its own.
        end = row.offset(names[number + 1].first) if number + 1 < len(names) else len(row.text)
        dose = _DOSE.search(row.plain, start, end)
        often = _OFTEN.search(row.plain, dose.end() if dose else start, end)
        quality = name.quality
        vaccine = (lexicon.medications().code(_text(row, name)) or "").startswith("vaccine_")
        if not dose and not often and not vaccine:
            if row.section != "medications":
                continue
            quality *= 0.6
        ends = [part.end() for part in (dose, often) if part]
        own_day = next(iter(dates.find(row.plain)), None) if vaccine else None
        if own_day and own_day.start >= start:
            ends.append(own_day.end)
        last = row.word_at(max(ends) - 1) if ends else name.first + name.words - 1
        first = row.word_at(own_day.start) if own_day and own_day.start < start else name.first
        span = row.span(first, last)
        yield Fact(
            kind="medication",
            name=_text(row, name),
            source=span,
            confidence=round(row.seen(span) * quality, 4),
            value=often.group().strip() if often else None,
            dose=dose.group().strip() if dose else None,
            date=row.text[own_day.start : own_day.end] if own_day else day,
        )


def _text(row: Row, name: _Name) -> str:
    return " ".join(row.words[name.first : name.first + name.words]).strip(" :,;•*-")


def _is_list(row: Row, classification: Classification) -> bool:
    return row.section == "medications" or (
        classification.kind == "medication_plan" and row.section == "none"
    )


def _names(row: Row, *, listed: bool) -> Iterator[_Name]:
    bare = [word.strip(":=*•,;") for word in row.words]
    at = 0
    found = False
    while at < len(bare):
        match = lexicon.medications().at(bare, at)
        if match:
            found = True
            yield _Name(at, match.words, match.quality)
            at += match.words
        else:
            at += 1
    if not found and listed:
        yield from _unnamed(row, bare)


def _unnamed(row: Row, bare: list[str]) -> Iterator[_Name]:
    """A substance that the table does not have: what a line of a list begins with, when a dose stands behind it."""
    dose = _DOSE.search(row.plain)
    if not dose:
        return
    for at, word in enumerate(bare[: row.word_at(dose.start())]):
        if _UNNAMED.fullmatch(word) and lexicon.fold(word) not in _NOT_NAMES:
            yield _Name(at, 1, 0.7)
            return
