"""The values that pass between the parts.  All of them are frozen, and all of them pickle."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Literal

Kind = Literal["pdf", "jpeg", "png", "tiff", "heic"]
FactKind = Literal["measurement", "medication", "condition", "date", "provider"]
EntityKind = Literal["patient", "provider", "organisation", "date"]
DocumentKind = Literal[
    "lab_report",
    "medication_plan",
    "discharge_letter",
    "imaging_report",
    "vaccination_record",
    "referral",
    "other",
]
Language = Literal["en", "de", "unknown"]

MEGABYTE = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """What a file and the child process that looks into it may use."""

    bytes: int = 50 * MEGABYTE
    pages: int = 200
    # Of one picture.  50 million are a phone's largest photograph.
    pixels: int = 50_000_000
    # What one packed stream, and all of them but pictures together, may unpack to.
    unpacked_stream: int = 64 * MEGABYTE
    unpacked_total: int = 256 * MEGABYTE
    # Address space of the child.
    memory: int = 512 * MEGABYTE
    cpu: dt.timedelta = dt.timedelta(seconds=60)
    wall: dt.timedelta = dt.timedelta(seconds=120)


@dataclass(frozen=True, slots=True)
class Finding:
    """Something worth knowing about a file that is not refused for it: `links`, `form`, `trailing_data`, …"""

    code: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Scanned:
    """A file that may be opened."""

    kind: Kind
    pages: int
    sha256: str
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True)
class PageImage:
    """One page as a picture, upright as far as the file itself says which way is up.  Pages count from 1."""

    number: int
    width: int
    height: int
    png: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Word:
    """A word and its box, in pixels of the page image, from its upper left corner.  Confidence is 0 to 1."""

    text: str = field(repr=False)
    x: int
    y: int
    width: int
    height: int
    confidence: float


@dataclass(frozen=True, slots=True)
class Line:
    """Words that belong together, in reading order.

    `first` and `last` number the words of the page in reading order, from 0: line by line, nothing left out, so
    that the words of all lines one after the other are the page, and a Span names some of them.
    """

    words: tuple[Word, ...] = field(repr=False)
    first: int
    # From 0; columns of running text, not of a table.
    column: int

    @property
    def last(self) -> int:
        return self.first + len(self.words) - 1

    @property
    def text(self) -> str:
        return " ".join(word.text for word in self.words)

    @property
    def x(self) -> int:
        return min(word.x for word in self.words)

    @property
    def y(self) -> int:
        return min(word.y for word in self.words)

    @property
    def width(self) -> int:
        return max(word.x + word.width for word in self.words) - self.x

    @property
    def height(self) -> int:
        return max(word.y + word.height for word in self.words) - self.y

    @property
    def confidence(self) -> float:
        return sum(word.confidence for word in self.words) / len(self.words)


@dataclass(frozen=True, slots=True)
class Page:
    """The text of one page."""

    number: int
    lines: tuple[Line, ...]

    @property
    def words(self) -> list[Word]:
        """In reading order: what a Span counts."""
        return [word for line in self.lines for word in line.words]


@dataclass(frozen=True, slots=True)
class Document:
    """The text of a document, page by page.  `spatial.document` makes one from words."""

    pages: tuple[Page, ...]

    @property
    def text(self) -> str:
        return "\n".join(line.text for page in self.pages for line in page.lines)

    def page(self, number: int) -> Page | None:
        return next((page for page in self.pages if page.number == number), None)

    def words(self, span: Span) -> Sequence[Word]:
        """The words that a span names; none, when it names any that are not there."""
        page = self.page(span.page)
        words = page.words if page else []
        if not 0 <= span.first_word <= span.last_word < len(words):
            return ()
        return words[span.first_word : span.last_word + 1]


@dataclass(frozen=True, slots=True)
class Span:
    """Where something stands: words of one page in reading order, both ends included, counted from 0."""

    page: int
    first_word: int
    last_word: int


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens that a provider charged for.  The embedded extractor charges none."""

    input_tokens: int = 0
    output_tokens: int = 0

    @property
    def total(self) -> int:
        return self.input_tokens + self.output_tokens


@dataclass(frozen=True, slots=True)
class Entity:
    """A name or date that the document mentions, as it is printed."""

    kind: EntityKind
    text: str = field(repr=False)
    source: Span
    confidence: float


@dataclass(frozen=True, slots=True)
class Classification:
    """Pass 1: what the document is."""

    kind: DocumentKind
    confidence: float
    language: Language = "unknown"
    entities: tuple[Entity, ...] = ()
    usage: Usage = Usage()


@dataclass(frozen=True, slots=True)
class Fact:
    """Pass 2: one statement of the document, in the document's own words.

    measurement  name, value, unit, low and high of the reference range
    medication   name, dose ("500 mg"), value is how often ("1-0-1", "twice daily")
    condition    name
    date         name is its role ("report", "birth", "sample", "admission", "discharge", …), date
    provider     name

    `date` is the day that the statement holds for, as printed.
    """

    kind: FactKind
    name: str = field(repr=False)
    source: Span
    confidence: float
    value: str | None = field(default=None, repr=False)
    unit: str | None = None
    low: str | None = None
    high: str | None = None
    dose: str | None = field(default=None, repr=False)
    date: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Extraction:
    """What pass 2 found, what it cost, and how many facts were dropped because the document does not bear them out."""

    facts: tuple[Fact, ...]
    usage: Usage = Usage()
    dropped: int = 0


@dataclass(frozen=True, slots=True)
class NormalFact:
    """Pass 3: a fact in the words of the tables.  What a table does not know is None, and `fact` keeps the original.

    `code` is null when the name is in no table; `value`, `low`, `high` are in `unit`, which is the canonical one of
    the code when the printed unit can be converted to it, else the printed one.
    """

    fact: Fact
    kind: FactKind
    name: str = field(repr=False)
    code: str | None
    code_system: str | None
    value: Decimal | None = field(default=None, repr=False)
    # "<" or ">" before the value, where a laboratory prints a bound.
    comparator: Literal["<", ">"] | None = None
    # A value that is no number ("negative"), and how often a medication is taken ("1-0-1-0").
    text: str | None = field(default=None, repr=False)
    unit: str | None = None
    low: Decimal | None = None
    high: Decimal | None = None
    # Against the range: None without a range.
    interpretation: Literal["low", "normal", "high"] | None = None
    dose: Decimal | None = field(default=None, repr=False)
    dose_unit: str | None = None
    per_day: Decimal | None = None
    date: dt.date | None = field(default=None, repr=False)
    # Why somebody should look at it; empty when nothing speaks against it.
    doubts: tuple[str, ...] = ()

    @property
    def source(self) -> Span:
        return self.fact.source

    @property
    def confidence(self) -> float:
        return self.fact.confidence


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """One document on a person's time line."""

    date: dt.date | None
    kind: DocumentKind
    title: str
    summary: str = field(repr=False)
    provider: str | None = field(repr=False)
    confidence: float
    facts: int
    needs_review: bool
    # Why it does, in words of ours: `name_differs`, `date_missing`, `unsure_kind`, `unknown_kind`, …
    reasons: tuple[str, ...] = ()
