"""The embedded extractor: rules and tables, the same answer every time, offline.

It understands nothing.  It finds names that its tables have, in the places where such documents print them, and says
how sure it is; what it has never heard of, it does not see.
"""

from __future__ import annotations

import asyncio
import re
from typing import Final

from onceward_apps.intake.reading.extract import conditions, measurements, medications, people
from onceward_apps.intake.reading.extract.rows import Row, rows
from onceward_apps.intake.reading.model import (
    Classification,
    Document,
    DocumentKind,
    Extraction,
    Fact,
    Language,
)

# Words that such documents have, and how much each says.
_SIGNS: Final[dict[DocumentKind, dict[str, float]]] = {
    "lab_report": {
        r"\b(?:laboratory|pathology) report\b|\blaborbefund\b": 4,
        r"\breference (?:range|interval)\b|\breferenzbereich\b": 2.5,
        r"\b(?:specimen|sample|probenmaterial|probenentnahme|entnahme|collected)\b": 1.5,
        r"\b(?:result|ergebnis|messwert)\b": 0.5,
        r"\b(?:mmol|µmol|umol|mg/d[li1]|g/d[li1]|u/[li1])": 1,
    },
    "medication_plan": {
        r"\bmedication (?:plan|list)\b|\bmedikationsplan\b": 4,
        r"\b(?:prescription|rezept|verordnung)\b": 2.5,
        r"\b(?:wirkstoff|substance|strength|stärke)\b": 1,
        r"\b\d\s?-\s?\d\s?-\s?\d\b": 1,
        r"\b(?:morgens|mittags|abends|twice daily|once daily)\b": 0.7,
    },
    "discharge_letter": {
        r"\bdischarge (?:summary|letter)\b|\bentlass(?:ungs)?(?:brief|bericht)\b|\barztbrief\b": 4,
        r"\b(?:admitted|admission|aufnahme|stationär\w*)\b": 1.5,
        r"\b(?:dear colleague|sehr geehrte)\b": 1.5,
        r"\b(?:discharged|entlassen|entlassdiagnosen|entlassmedikation)\b": 1,
        r"\b(?:diagnoses|diagnosen)\b": 0.7,
    },
    "imaging_report": {
        r"\b(?:radiology|imaging) report\b|\bradiologischer befund\b": 4,
        r"\b(?:mri|mrt|ct|computed tomography|x-ray|röntgen\w*|ultrasound|sonographie)\b": 2,
        r"\b(?:technique|technik|contrast|kontrastmittel)\b": 1,
        r"\b(?:impression|beurteilung)\b": 1,
        r"\b(?:findings|fragestellung|clinical question)\b": 0.7,
    },
    "vaccination_record": {
        r"\b(?:vaccination|immunisation|immunization) record\b|\bimpf(?:pass|ausweis|nachweis|bescheinigung)\b": 4,
        r"\b(?:vaccine|impfstoff)\b": 1.5,
        r"\b(?:batch|lot|charge|ch\.-b\.)\b": 1,
    },
    "referral": {
        r"\breferral\b|\büberweisung\w*": 4,
        r"\b(?:please see|bitte um|auftrag)\b": 1,
    },
}
_WORDS: Final[dict[Language, frozenset[str]]] = {
    "en": frozenset(
        [
            "the",
            "and",
            "of",
            "with",
            "for",
            "was",
            "is",
            "no",
            "date",
            "report",
            "patient",
            "name",
            "once",
            "twice",
            "daily",
            "to",
            "in",
            "by",
        ]
    ),
    "de": frozenset(
        [
            "der",
            "die",
            "das",
            "und",
            "mit",
            "für",
            "war",
            "ist",
            "kein",
            "keine",
            "datum",
            "befund",
            "patient",
            "am",
            "vom",
            "zur",
            "bei",
            "von",
            "im",
            "täglich",
        ]
    ),
}
# Enough signs to be sure of a kind.
_ENOUGH: Final = 5.0


class Embedded:
    """Costs no tokens, and runs in a thread."""

    name = "embedded"

    async def classify(self, document: Document) -> Classification:
        return await asyncio.to_thread(classify, document)

    async def extract(self, document: Document, classification: Classification) -> Extraction:
        return await asyncio.to_thread(extract, document, classification)

    def estimate(self, document: Document) -> int:
        return 0


def classify(document: Document) -> Classification:
    text = document.text.casefold()
    scores = {
        kind: sum(weight for sign, weight in signs.items() if re.search(sign, text))
        for kind, signs in _SIGNS.items()
    }
    best, second = sorted(scores, key=lambda kind: -scores[kind])[:2]
    top = scores[best]
    kind: DocumentKind = best if top >= 2 else "other"
    # Sure when there is much for it, and little for the next.
    confidence = min(1.0, top / _ENOUGH) * (top / (top + scores[second] / 2) if top else 0)
    return Classification(
        kind=kind,
        confidence=round(confidence if kind != "other" else 0.3, 4),
        language=_language(text),
        entities=tuple(people.entities(rows(document))),
    )


def extract(document: Document, classification: Classification) -> Extraction:
    lines = rows(document)
    dated = people.dated(lines)
    day = people.holds_for(dated)
    facts: list[Fact] = []
    for number, row in enumerate(lines):
        facts.extend(measurements.find(row, day))
        facts.extend(medications.find(row, day, classification))
        facts.extend(conditions.find(row, _above(lines, number), day))
    facts.extend(people.date_facts(dated))
    facts.extend(people.providers(lines))
    return Extraction(tuple(_once(facts)))


def _above(lines: list[Row], number: int) -> str:
    """The line before, if a sentence can run on from it: in running text, not in lists and tables."""
    if number == 0 or lines[number].section == "diagnoses":
        return ""
    before, row = lines[number - 1], lines[number]
    return before.text if (before.page, before.section) == (row.page, row.section) else ""


def _once(facts: list[Fact]) -> list[Fact]:
    """A condition or medication that is repeated is one fact, where it is stated best."""
    kept: dict[tuple[str | None, ...], Fact] = {}
    for fact in facts:
        key = (fact.kind, fact.name.casefold(), fact.value, fact.unit, fact.dose, fact.date)
        if key not in kept or kept[key].confidence < fact.confidence:
            kept[key] = fact
    return list(kept.values())


def _language(text: str) -> Language:
    words = re.findall(r"[a-zäöüß]+", text)
    counts = {language: sum(word in known for word in words) for language, known in _WORDS.items()}
    best = max(counts, key=lambda language: counts[language])
    return best if counts[best] >= 2 and counts[best] > 1.3 * min(counts.values()) else "unknown"
