"""Dates with their roles, providers, patients and organisations."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from onceward_apps.intake.reading import dates
from onceward_apps.intake.reading.extract.rows import Row
from onceward_apps.intake.reading.model import Entity, Fact, Span

_ROLES: Final = (
    (
        "birth",
        re.compile(
            r"\b(?:of birth|birth date|d\.?o\.?b\.?|born|geb\.?|geburtsdatum|geboren)\b", re.IGNORECASE
        ),
    ),
    (
        "sample",
        re.compile(
            r"\b(?:collected|collection|sample|specimen|taken|entnahme\w*|probenentnahme|abnahme\w*)\b",
            re.IGNORECASE,
        ),
    ),
    (
        "admission",
        re.compile(
            r"\b(?:admitted|admission|aufnahme\w*|aufgenommen|stationär vom|inpatient from)\b", re.IGNORECASE
        ),
    ),
    ("discharge", re.compile(r"\b(?:discharged|discharge|entlassung\w*|entlassen)\b", re.IGNORECASE)),
    (
        "examination",
        re.compile(r"\b(?:examination|examined|exam|scan|study|untersuchung\w*)\b", re.IGNORECASE),
    ),
    (
        "appointment",
        re.compile(
            r"\b(?:appointment|follow-up|review|control|kontrolle|wiedervorstellung|termin)\b", re.IGNORECASE
        ),
    ),
    (
        "report",
        re.compile(
            r"\b(?:reported|report|date|issued|printed|datum|befund\w*|erstellt|ausgestellt|vom|stand)\b",
            re.IGNORECASE,
        ),
    ),
)
# The day that a statement holds for, the better known first.
_DAYS: Final = ("sample", "examination", "admission", "report", "discharge")
_TITLE: Final = r"(?:Prof|Dr|PD|Priv\.-Doz|Dipl\.-Med)[.:,]?"
_NAME: Final = r"[A-ZÄÖÜ][\wäöüßé'’]+(?:-[A-ZÄÖÜ][\wäöüßé]+)?"
_PROVIDER: Final = re.compile(
    rf"(?<!\w){_TITLE}(?: ?(?:med|dent|Dr|rer|nat)[.:,]?)*(?: {_NAME}| [A-Z]\.){{1,3}}"
)
_PATIENT: Final = re.compile(
    rf"\b(?:Patient(?:in)?(?: name)?|Name|Versicherter?|Vor- und Nachname)\s?:?\s+(?:Mr\.?|Mrs\.?|Ms\.?|Herr|Frau)?\s?(?P<name>{_NAME},? {_NAME}(?: {_NAME}(?!\w|\s?:))?)"
)
_ORGANISATION: Final = re.compile(
    r"\w*(?:klinik\w*|krankenhaus|spital)\b|\b(?:hospital|clinic|laboratory|labor|laboratories|practice|praxis|pathology|radiology|radiologie\w*|medical cent(?:re|er)|MVZ|health centre|gemeinschaftspraxis|surgery)\b",
    re.IGNORECASE,
)
_HEAD: Final = 4


@dataclass(frozen=True, slots=True)
class Dated:
    """A date of the document, with its role."""

    role: str
    text: str
    span: Span
    confidence: float
    found: dates.Found


def dated(rows: Sequence[Row]) -> list[Dated]:
    made: list[Dated] = []
    for row in rows:
        behind = 0
        previous = ""
        for found in dates.find(row.plain):
            label = row.text[behind : found.start]
            role = _role(label) or ("discharge" if previous == "admission" else "mentioned")
            span = row.span_of(found.start, found.end)
            sure = 1.0 if role != "mentioned" else 0.7
            text = row.text[found.start : found.end]
            made.append(Dated(role, text, span, round(row.seen(span) * sure, 4), found))
            behind, previous = found.end, role
    return made


def holds_for(found: Sequence[Dated]) -> str | None:
    """The day of the document, as printed."""
    for role in _DAYS:
        for each in found:
            if each.role == role:
                return each.text
    return next((each.text for each in found if each.role == "mentioned"), None)


def date_facts(found: Sequence[Dated]) -> Iterator[Fact]:
    """One for each date with a role; a date that is only mentioned says nothing by itself."""
    seen: set[tuple[str, str]] = set()
    for each in found:
        if each.role == "mentioned" or (each.role, each.text) in seen:
            continue
        seen.add((each.role, each.text))
        yield Fact(kind="date", name=each.role, source=each.span, confidence=each.confidence, date=each.text)


def providers(rows: Sequence[Row]) -> Iterator[Fact]:
    """Everybody once, where they are first named."""
    seen: set[str] = set()
    for row in rows:
        for match in _PROVIDER.finditer(row.text):
            name = match.group().strip()
            if name not in seen:
                seen.add(name)
                span = row.span_of(match.start(), match.end())
                yield Fact(
                    kind="provider", name=name, source=span, confidence=round(row.seen(span) * 0.95, 4)
                )


def entities(rows: Sequence[Row]) -> Iterator[Entity]:
    """Patient, organisations, providers and dates: pass 1."""
    for number, row in enumerate(rows):
        if match := _PATIENT.search(row.text):
            span = row.span_of(match.start("name"), match.end("name"))
            yield Entity("patient", match["name"], span, round(row.seen(span) * 0.9, 4))
        # The head of a letter names who wrote it.
        if number < _HEAD and len(row.words) <= 10 and _ORGANISATION.search(row.text):
            span = row.span(0, len(row.words) - 1)
            yield Entity("organisation", row.text, span, round(row.seen(span) * 0.8, 4))
    for fact in providers(rows):
        yield Entity("provider", fact.name, fact.source, fact.confidence)
    for each in dated(rows):
        yield Entity("date", each.text, each.span, each.confidence)


def _role(label: str) -> str | None:
    """That of the label which stands nearest before the date."""
    found = [
        # Of two that end alike, the longer says more: "stationär vom", "vom".
        (match.end(), match.end() - match.start(), role)
        for role, pattern in _ROLES
        for match in pattern.finditer(label)
    ]
    if not found:
        return None
    end, length, role = max(found)
    # "Examination date": the word next to the date is the weaker one.
    return (_role(label[: end - length]) or role) if role == "report" else role
