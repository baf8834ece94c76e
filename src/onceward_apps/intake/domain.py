"""Documents between the tables and the library: rows as JSON on one side, the library's values on the other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from onceward_apps.intake.reading import spatial
from onceward_apps.intake.reading.model import (
    Classification,
    Document,
    Entity,
    Fact,
    Line,
    NormalFact,
    Span,
    TimelineEntry,
    Word,
)

Row = dict[str, Any]

# What the kinds of documents and facts are called in pages.
DOCUMENTS: Final = {
    "lab_report": "Lab report",
    "medication_plan": "Medication plan",
    "discharge_letter": "Discharge letter",
    "imaging_report": "Imaging report",
    "vaccination_record": "Vaccination record",
    "referral": "Referral",
    "other": "Document",
}
FACTS: Final = {
    "measurement": "Measurements",
    "medication": "Medications",
    "condition": "Conditions",
    "date": "Dates",
    "provider": "Providers",
}
# Why a document should be looked at, in the words of its page.
REASONS: Final = {
    "name_differs": "It bears another name than {person}: is it in the right place?",
    "unknown_kind": "It is not clear what kind of document it is.",
    "unsure_kind": "What kind of document it is, is a guess.",
    "date_missing": "No date was found; it stands at the day when it was added.",
    "nothing_found": "No facts were found in it.",
    "doubtful_facts": "Parts of it could not be read for sure; they are marked.",
}
# What people read while a file is on its way: the state, in their words, and how far it is.
PROGRESS: Final = {
    "uploaded": ("Waiting", 1),
    "processing": ("Reading the pages", 2),
    "ocr_complete": ("Finding the facts", 3),
    "completed": ("Done", 4),
    "rejected": ("Refused", 4),
    "failed": ("Could not be read", 4),
}


def numbered(lines: Iterable[Line]) -> list[Row]:
    """The spatial map of a page as rows: words in reading order, numbered from 0, each with the number of its line."""
    return [
        {
            "number": line.first + place,
            "line": number,
            # What PostgreSQL cannot hold, no page shows.
            "content": word.text.replace("\0", ""),
            "x": word.x,
            "y": word.y,
            "width": word.width,
            "height": word.height,
            "confidence": round(word.confidence, 4),
        }
        for number, line in enumerate(lines)
        for place, word in enumerate(line.words)
    ]


def document_of(row: Mapping[str, Any]) -> Document:
    """From intake.read_document.  Laying out words in reading order again gives the same order."""
    return spatial.document(
        [
            [
                Word(word["text"], word["x"], word["y"], word["width"], word["height"], word["confidence"])
                for word in page["words"]
            ]
            for page in row["pages"]
        ]
    )


def classification_row(found: Classification) -> Row:
    return {
        "kind": found.kind,
        "language": found.language,
        "confidence": found.confidence,
        "entities": [
            {
                "kind": entity.kind,
                "text": entity.text.replace("\0", ""),
                "page": entity.source.page,
                "first_word": entity.source.first_word,
                "last_word": entity.source.last_word,
                "confidence": entity.confidence,
            }
            for entity in found.entities
        ],
    }


def classification_of(row: Mapping[str, Any]) -> Classification:
    return Classification(
        kind=row["kind"],
        confidence=row["confidence"],
        language=row["language"],
        entities=tuple(
            Entity(entity["kind"], entity["text"], _span(entity), entity["confidence"])
            for entity in row["entities"]
        ),
    )


def fact_rows(facts: Sequence[Fact]) -> list[Row]:
    return [
        {
            "number": number,
            "kind": fact.kind,
            "name": fact.name,
            "value": fact.value,
            "unit": fact.unit,
            "low": fact.low,
            "high": fact.high,
            "dose": fact.dose,
            "date": fact.date,
            "page": fact.source.page,
            "first_word": fact.source.first_word,
            "last_word": fact.source.last_word,
            "confidence": round(fact.confidence, 4),
        }
        for number, fact in enumerate(facts)
    ]


def fact_of(row: Mapping[str, Any]) -> Fact:
    return Fact(
        kind=row["kind"],
        name=row["name"],
        source=_span(row),
        confidence=row["confidence"],
        value=row["value"],
        unit=row["unit"],
        low=row["low"],
        high=row["high"],
        dose=row["dose"],
        date=row["date"],
    )


def normal_rows(facts: Sequence[NormalFact]) -> list[Row]:
    def plain(number: object) -> str | None:
        return None if number is None else str(number)

    return [
        {
            "number": number,
            "code": fact.code,
            "code_system": fact.code_system,
            "canonical_value": plain(fact.value),
            "canonical_unit": fact.unit,
            "canonical_low": plain(fact.low),
            "canonical_high": plain(fact.high),
            "interpretation": fact.interpretation,
            "iso_date": plain(fact.date),
            "doubts": list(fact.doubts),
        }
        for number, fact in enumerate(facts)
    ]


def entry_row(entry: TimelineEntry, uploaded_on: str) -> Row:
    """A document without a date stands at the day of its upload, and says so."""
    return {
        "date": entry.date.isoformat() if entry.date else uploaded_on,
        "is_dated": entry.date is not None,
        "kind": entry.kind,
        "title": entry.title,
        "summary": entry.summary,
        "provider": entry.provider,
        "needs_review": entry.needs_review,
        "reasons": list(entry.reasons),
    }


def _span(row: Mapping[str, Any]) -> Span:
    return Span(row["page"], row["first_word"], row["last_word"])
