"""What the providers that ask a language model share: one request per pass, and the answer held against its schema."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import BaseModel

from onceward_apps.intake.reading.errors import Unavailable
from onceward_apps.intake.reading.extract import asking
from onceward_apps.intake.reading.http import Endpoint
from onceward_apps.intake.reading.model import Classification, Document, Extraction, Usage


@dataclass(frozen=True, slots=True)
class LanguageModel(ABC):
    """One request per pass.  How it is written, and where the answer stands, each kind knows for itself."""

    name: ClassVar[str]
    endpoint: Endpoint
    model: str
    # Tokens of one answer.
    most: int

    async def classify(self, document: Document) -> Classification:
        asked = asking.presented(document, asking.CLASSIFY)
        answer, usage = await self._ask(document, asked, asking.AnsweredClassification)
        made = asking.classification(document, answer, usage)
        if made is None:
            raise self._useless(usage)
        return made

    async def extract(self, document: Document, classification: Classification) -> Extraction:
        asked = asking.presented(document, asking.EXTRACT, classification)
        answer, usage = await self._ask(document, asked, asking.AnsweredFacts)
        made = asking.extraction(document, answer, usage)
        if made is None:
            raise self._useless(usage)
        return made

    def estimate(self, document: Document) -> int:
        return asking.estimate(document, self.most)

    @abstractmethod
    async def _ask(self, document: Document, asked: str, wanted: type[BaseModel]) -> tuple[Any, Usage]:
        """The answer, read but not yet believed."""

    def _useless(self, usage: Usage) -> Unavailable:
        return Unavailable(self.name, "answered, but not to the schema", tokens=usage.total)
