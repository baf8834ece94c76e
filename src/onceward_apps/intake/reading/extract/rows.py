"""Lines as the rules look at them: text, words, and the way from a place in the text to a word."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, Literal, TypeAlias

from onceward_apps.intake.reading.lexicon import fold
from onceward_apps.intake.reading.model import Document, Line, Span

Section: TypeAlias = Literal[
    "medications", "diagnoses", "allergies", "family", "results", "procedures", "none"
]

_HEADINGS: Final[dict[Section, tuple[str, ...]]] = {
    "medications": (
        "medication",
        "medications",
        "current medication",
        "current medications",
        "discharge medication",
        "discharge medications",
        "medication on discharge",
        "medication plan",
        "prescription",
        "medikation",
        "medikamente",
        "aktuelle medikation",
        "entlassmedikation",
        "entlassungsmedikation",
        "medikation bei entlassung",
        "medikationsplan",
        "dauermedikation",
        "rezept",
    ),
    "diagnoses": (
        "diagnosis",
        "diagnoses",
        "discharge diagnoses",
        "discharge diagnosis",
        "main diagnosis",
        "secondary diagnoses",
        "impression",
        "assessment",
        "past medical history",
        "conclusion",
        "diagnose",
        "diagnosen",
        "entlassdiagnosen",
        "hauptdiagnose",
        "nebendiagnosen",
        "beurteilung",
        "dauerdiagnosen",
        "vorerkrankungen",
    ),
    "allergies": ("allergies", "allergy", "allergien", "allergie", "unverträglichkeiten"),
    "family": ("family history", "familienanamnese"),
    "results": (
        "results",
        "laboratory results",
        "laboratory",
        "blood results",
        "vital signs",
        "observations",
        "laborwerte",
        "laborbefunde",
        "labor",
        "ergebnisse",
        "vitalparameter",
        "vitalzeichen",
        "befunde",
    ),
    "procedures": (
        "procedures",
        "history",
        "findings",
        "course",
        "hospital course",
        "technique",
        "clinical question",
        "recommendation",
        "recommendations",
        "follow-up",
        "verlauf",
        "anamnese",
        "befund",
        "therapie",
        "technik",
        "fragestellung",
        "empfehlung",
        "procedere",
        "comment",
        "kommentar",
    ),
}
_GERMAN: Final = frozenset("äöüÄÖÜß")
_BY_HEADING: Final[dict[str, Section]] = {
    fold(heading): section for section, headings in _HEADINGS.items() for heading in headings
}


@dataclass(frozen=True)
class Row:
    """One line of a page, in the section that the last heading above it opened."""

    page: int
    line: Line = field(repr=False)
    section: Section

    @cached_property
    def words(self) -> list[str]:
        return [word.text for word in self.line.words]

    @cached_property
    def text(self) -> str:
        return " ".join(self.words)

    @cached_property
    def plain(self) -> str:
        """The text, letter for letter, without the accents that OCR takes specks for; German ones stay."""
        return "".join(letter if letter in _GERMAN else _base(letter) for letter in self.text)

    @cached_property
    def _starts(self) -> list[int]:
        starts, at = [], 0
        for word in self.words:
            starts.append(at)
            at += len(word) + 1
        return starts

    def offset(self, word: int) -> int:
        """Where a word begins in the text; behind the text, for the word after the last."""
        return self._starts[word] if word < len(self._starts) else len(self.text) + 1

    def word_at(self, offset: int) -> int:
        return max(0, bisect_right(self._starts, offset) - 1)

    def span(self, first: int, last: int) -> Span:
        """Of words counted within the row."""
        return Span(self.page, self.line.first + first, self.line.first + last)

    def span_of(self, start: int, end: int) -> Span:
        """Of a piece of the text."""
        return self.span(self.word_at(start), self.word_at(max(start, end - 1)))

    def seen(self, span: Span) -> float:
        """How sure OCR is of the words of a span: as sure as of the worst of them, almost."""
        words = self.line.words[span.first_word - self.line.first : span.last_word - self.line.first + 1]
        worst = min(word.confidence for word in words)
        mean = sum(word.confidence for word in words) / len(words)
        return 0.6 * worst + 0.4 * mean


def _base(letter: str) -> str:
    return letter if letter.isascii() else unicodedata.normalize("NFD", letter)[0]


def rows(document: Document) -> list[Row]:
    made: list[Row] = []
    section: Section = "none"
    for page in document.pages:
        for line in page.lines:
            section, opened = _after(section, line.text)
            made.append(Row(page.number, line, opened))
    return made


def _after(section: Section, text: str) -> tuple[Section, Section]:
    """The section that a line leaves open, and the one that it belongs to itself.

    "Allergies: penicillin" is a heading with its content; "Diagnoses" is one alone.
    """
    head, colon, rest = text.partition(":")
    if len(head.split()) <= 5:
        found = _BY_HEADING.get(fold(re.sub(r"^[\s\d.)•-]+", "", head)))
        if found and (not colon or not rest.strip()):
            return found, found
        if found:
            return found if found != "allergies" else "none", found
    return section, section
