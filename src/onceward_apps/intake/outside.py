"""What reads documents: the library `reading`, with the providers that the settings name; and what its errors become here.

Nothing of a document gets into an error: what is raised here has fixed words, and what it came from is not kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final, Literal, Protocol

from onceward import PermanentFailure
from onceward.errors import OncewardError
from onceward_apps.intake.reading import errors, extract, ocr, pages, scan
from onceward_apps.intake.reading.model import (
    Classification,
    Fact,
    Kind,
    NormalFact,
    PageImage,
    Scanned,
    TimelineEntry,
    Word,
)
from onceward_apps.intake.settings import Settings

ErrorType = Literal["ocr_failure", "ai_timeout", "api_error", "network_error"]
# When a provider asks to wait and does not say how long.
WAIT: Final = timedelta(seconds=30)


class Reading(Protocol):
    """How files are looked at and read.  Calls that block are made in threads."""

    extractor: extract.Provider

    def check(self, path: Path, declared: str) -> Scanned: ...

    def render(self, path: Path, kind: Kind) -> Iterator[PageImage]: ...

    async def words(self, image: PageImage) -> list[Word]: ...

    def normalise(self, facts: Sequence[Fact]) -> Sequence[NormalFact]: ...

    def entry(self, document: Classification, facts: Sequence[NormalFact], person: str) -> TimelineEntry: ...


@dataclass(slots=True)
class Library:
    """The library, with providers made when the first document needs them."""

    settings: Settings
    extractor: extract.Provider
    _ocr: ocr.Provider | None = None

    @classmethod
    def of(cls, settings: Settings) -> Library:
        return cls(settings, extract.provider(settings.extractor, extract.Settings.from_environ()))

    def check(self, path: Path, declared: str) -> Scanned:
        return scan.check(
            path, declared_type=declared, limits=self.settings.limits, clamd=self.settings.clamd
        )

    def render(self, path: Path, kind: Kind) -> Iterator[PageImage]:
        return pages.render(path, kind, limits=self.settings.limits)

    async def words(self, image: PageImage) -> list[Word]:
        if self._ocr is None:
            self._ocr = await asyncio.to_thread(ocr.provider, self.settings.ocr, ocr.Settings.from_environ())
        return await self._ocr.read(image)

    def normalise(self, facts: Sequence[Fact]) -> Sequence[NormalFact]:
        from onceward_apps.intake.reading import normalise

        return normalise.facts(list(facts))

    def entry(self, document: Classification, facts: Sequence[NormalFact], person: str) -> TimelineEntry:
        from onceward_apps.intake.reading import timeline

        return timeline.entry(document, list(facts), person=person)


class ReadingFailed(OncewardError):
    """A document could not be read this time."""

    def __init__(self, error_type: ErrorType, message: str) -> None:
        super().__init__(message)
        self.error_type = error_type


class ReadingRefused(PermanentFailure):
    """A document cannot be read, however often it is tried."""

    def __init__(self, error_type: ErrorType, message: str) -> None:
        super().__init__(message)
        self.error_type = error_type


class ProviderWaits(OncewardError):
    """A provider asks for patience: the job is put off, and uses up no attempt."""

    def __init__(self, wait: timedelta | None) -> None:
        super().__init__("the provider asks to wait")
        self.wait = wait or WAIT


def translated(error: Exception, *, reads: bool) -> OncewardError:
    """What an error becomes: its kind, in words of ours.  `reads` says that it came from OCR, and not from a model."""
    usual: ErrorType = "ocr_failure" if reads else "api_error"
    match error:
        case OncewardError():
            return error
        case errors.RateLimited():
            return ProviderWaits(error.retry_after)
        case errors.Unavailable():
            return ReadingFailed("network_error", f"{error.provider} could not be reached")
        case errors.Rejected():
            return ReadingRefused(usual, f"{error.provider} refused the request")
        case TimeoutError():
            return ReadingFailed("ocr_failure" if reads else "ai_timeout", "reading took longer than it may")
        case OSError():
            return ReadingFailed("network_error", f"storage or network: {type(error).__name__}")
        case _:
            return ReadingFailed(usual, f"reading failed: {type(error).__name__}")
