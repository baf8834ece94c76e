"""One document as one line of a person's history."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Sequence
from typing import Final

from onceward_apps.intake.reading import names
from onceward_apps.intake.reading.model import Classification, DocumentKind, NormalFact, TimelineEntry
from onceward_apps.intake.reading.normalise import CONFIDENT

_TITLES: Final[dict[DocumentKind, str]] = {
    "lab_report": "Laboratory report",
    "medication_plan": "Medication plan",
    "discharge_letter": "Discharge letter",
    "imaging_report": "Imaging report",
    "vaccination_record": "Vaccination record",
    "referral": "Referral",
    "other": "Document",
}
# Which of its dates a document stands under, by kind: the first that it has.
_STANDS: Final[dict[DocumentKind, tuple[str, ...]]] = {
    "lab_report": ("sample", "report"),
    "discharge_letter": ("discharge", "report", "admission"),
    "imaging_report": ("examination", "report"),
}
_USUAL: Final = ("report", "sample", "examination", "discharge", "admission")
_NAMED: Final = 3


def entry(
    classification: Classification, facts: Sequence[NormalFact], *, person: str | None = None
) -> TimelineEntry:
    """Where the document stands in time, in a few words, and whether somebody should look at it first.

    `person` is whose documents it is put to; without one, the name that it bears is not looked at.
    """
    day = _day(classification.kind, facts)
    doubted = [fact for fact in facts if fact.doubts]
    reasons = []
    patients = [entity.text for entity in classification.entities if entity.kind == "patient"]
    if person is not None and names.differ(patients, person):
        reasons.append("name_differs")
    if classification.kind == "other":
        reasons.append("unknown_kind")
    elif classification.confidence < CONFIDENT:
        reasons.append("unsure_kind")
    if day is None:
        reasons.append("date_missing")
    if not any(fact.kind in {"measurement", "medication", "condition"} for fact in facts):
        reasons.append("nothing_found")
    if doubted:
        reasons.append("doubtful_facts")
    sure = [classification.confidence, *(fact.confidence for fact in facts)]
    return TimelineEntry(
        date=day,
        kind=classification.kind,
        title=_TITLES[classification.kind],
        summary=_summary(facts),
        provider=next((fact.name for fact in facts if fact.kind == "provider"), None),
        confidence=round(sum(sure) / len(sure), 4),
        facts=len(facts),
        needs_review=bool(reasons),
        reasons=tuple(reasons),
    )


def _day(kind: DocumentKind, facts: Sequence[NormalFact]) -> dt.date | None:
    roles = {fact.name: fact.date for fact in reversed(facts) if fact.kind == "date" and fact.date}
    for role in (*_STANDS.get(kind, ()), *_USUAL):
        if role in roles:
            return roles[role]
    days = Counter(fact.date for fact in facts if fact.date and fact.kind != "date")
    return days.most_common(1)[0][0] if days else None


def _summary(facts: Sequence[NormalFact]) -> str:
    """What is out of its range first, then conditions and medications; the rest is a count."""
    outside = [
        f"{fact.name} {fact.interpretation}" for fact in facts if fact.interpretation in {"low", "high"}
    ]
    conditions = [fact.name for fact in facts if fact.kind == "condition"]
    medications = [fact.name for fact in facts if fact.kind == "medication"]
    within = sum(fact.interpretation == "normal" for fact in facts)
    parts = [_list(outside), _list(conditions), _list(medications)]
    if within:
        parts.append(f"{within} {'value' if within == 1 else 'values'} within range")
    return "; ".join(part for part in parts if part)


def _list(names: Sequence[str]) -> str:
    named = list(dict.fromkeys(names))
    more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
    return ", ".join(named[:_NAMED]) + more
