"""Words from page images, by one of three providers.

rapidocr        in this process, models from the wheel, offline; the default
tesseract       the command `tesseract`, when it is installed
google-vision   Google's Cloud Vision, or what speaks its JSON
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, Protocol

import httpx

from onceward_apps.intake.reading.errors import Rejected
from onceward_apps.intake.reading.model import PageImage, Word

VISION: Final = "https://vision.googleapis.com"
NAMES: Final = ("rapidocr", "tesseract", "google-vision")


class Provider(Protocol):
    """Reads one page.  Heavy work happens in a thread or elsewhere: awaiting it does not hold up the event loop."""

    @property
    def name(self) -> str: ...

    async def read(self, image: PageImage) -> list[Word]:
        """Words in reading order as the provider sees it; none for an empty page.

        Raises RateLimited, Unavailable or Rejected.
        """
        ...


@dataclass(frozen=True, slots=True)
class Settings:
    """What the providers need to know; each takes its part."""

    # Of onnxruntime, for one page.
    threads: int = 2
    # Pages that one process reads at the same time.
    concurrency: int = 1
    tesseract_command: str = "tesseract"
    tesseract_languages: str = "eng+deu"
    google_vision_url: str = VISION
    google_vision_key: str = field(default="", repr=False)
    timeout: timedelta = timedelta(seconds=60)
    # For tests and for proxies.
    transport: httpx.AsyncBaseTransport | None = field(default=None, repr=False, compare=False)

    @classmethod
    def from_environ(cls, environ: Mapping[str, str] = os.environ) -> Settings:
        """
        INTAKE_OCR_THREADS          threads of onnxruntime per page, 1 or 2
        INTAKE_OCR_CONCURRENCY      pages read at once
        INTAKE_TESSERACT            the command; with INTAKE_TESSERACT_LANGUAGES, as eng+deu
        GOOGLE_VISION_URL           with GOOGLE_CLOUD_API_KEY
        """
        return cls(
            threads=_whole(environ, "INTAKE_OCR_THREADS", 2),
            concurrency=_whole(environ, "INTAKE_OCR_CONCURRENCY", 1),
            tesseract_command=environ.get("INTAKE_TESSERACT", "tesseract"),
            tesseract_languages=environ.get("INTAKE_TESSERACT_LANGUAGES", "eng+deu"),
            google_vision_url=environ.get("GOOGLE_VISION_URL", VISION),
            google_vision_key=environ.get("GOOGLE_CLOUD_API_KEY", ""),
        )


def provider(name: str, settings: Settings | None = None) -> Provider:
    """Raises Rejected when there is no such provider, or when it is not set up."""
    settings = settings or Settings()
    match name:
        case "rapidocr":
            from onceward_apps.intake.reading.ocr.rapid import Rapid

            return Rapid(threads=settings.threads, concurrency=settings.concurrency)
        case "tesseract":
            from onceward_apps.intake.reading.ocr.tesseract import Tesseract

            return Tesseract.found(settings)
        case "google-vision":
            from onceward_apps.intake.reading.ocr.vision import Vision

            return Vision.keyed(settings)
        case _:
            raise Rejected(name[:40], f"is no OCR provider; there are {', '.join(NAMES)}")


def _whole(environ: Mapping[str, str], name: str, default: int) -> int:
    given = environ.get(name, "")
    if not given:
        return default
    if not given.isdecimal() or not 1 <= int(given) <= 64:
        raise ValueError(f"{name} must be a whole number from 1 to 64, got {given!r:.40}")
    return int(given)
