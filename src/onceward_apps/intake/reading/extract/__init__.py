"""What a document is, and the facts in it, by one of three providers.

    embedded    rules and tables in this process: deterministic, offline, no model, and no claim to understand
    openai      any endpoint that speaks OpenAI's chat completions
    anthropic   Anthropic's messages

Whoever extracts, every fact names the words it stands on, and one that those words do not bear out is dropped.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, Protocol

import httpx

from onceward_apps.intake.reading.errors import Rejected
from onceward_apps.intake.reading.model import Classification, Document, Extraction

OPENAI: Final = "https://api.openai.com/v1"
ANTHROPIC: Final = "https://api.anthropic.com"
NAMES: Final = ("embedded", "openai", "anthropic")


class Provider(Protocol):
    """Passes 1 and 2.  The text of the document is data to it, never an instruction."""

    @property
    def name(self) -> str: ...

    async def classify(self, document: Document) -> Classification:
        """Raises RateLimited, Unavailable or Rejected."""
        ...

    async def extract(self, document: Document, classification: Classification) -> Extraction:
        """Raises RateLimited, Unavailable or Rejected."""
        ...

    def estimate(self, document: Document) -> int:
        """Tokens to reserve before either pass; what it did use stands in its usage, or in the error that ended it."""
        ...


@dataclass(frozen=True, slots=True)
class Settings:
    """What the providers need to know; each takes its part."""

    openai_url: str = OPENAI
    openai_key: str = field(default="", repr=False)
    openai_model: str = "gpt-4o-mini"
    anthropic_url: str = ANTHROPIC
    anthropic_key: str = field(default="", repr=False)
    anthropic_model: str = "claude-3-5-haiku-latest"
    # Of one answer.
    max_output_tokens: int = 8_000
    timeout: timedelta = timedelta(seconds=120)
    # For tests and for proxies.
    transport: httpx.AsyncBaseTransport | None = field(default=None, repr=False, compare=False)

    @classmethod
    def from_environ(cls, environ: Mapping[str, str] = os.environ) -> Settings:
        """
        OPENAI_BASE_URL, OPENAI_API_KEY, OPENAI_MODEL
        ANTHROPIC_BASE_URL, ANTHROPIC_API_KEY, ANTHROPIC_MODEL
        """
        usual = cls()
        return cls(
            openai_url=environ.get("OPENAI_BASE_URL") or usual.openai_url,
            openai_key=environ.get("OPENAI_API_KEY", ""),
            openai_model=environ.get("OPENAI_MODEL") or usual.openai_model,
            anthropic_url=environ.get("ANTHROPIC_BASE_URL") or usual.anthropic_url,
            anthropic_key=environ.get("ANTHROPIC_API_KEY", ""),
            anthropic_model=environ.get("ANTHROPIC_MODEL") or usual.anthropic_model,
        )


def provider(name: str, settings: Settings | None = None) -> Provider:
    """Raises Rejected when there is no such provider, or when it is not set up."""
    settings = settings or Settings()
    match name:
        case "embedded":
            from onceward_apps.intake.reading.extract.embedded import Embedded

            return Embedded()
        case "openai":
            from onceward_apps.intake.reading.extract.openai import OpenAi

            return OpenAi.keyed(settings)
        case "anthropic":
            from onceward_apps.intake.reading.extract.anthropic import Anthropic

            return Anthropic.keyed(settings)
        case _:
            raise Rejected(name[:40], f"is no extractor; there are {', '.join(NAMES)}")
