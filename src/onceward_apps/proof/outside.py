"""What lies outside: the renderer of labels, the storage; how often each is tried, and what each failure is called.

The names of the errors carry the categories of the contract: `raw_ops.fn_error_category` reads them.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, Protocol, TypeVar

import httpx
import typst
from obstore.exceptions import BaseError

from onceward.errors import PermanentFailure
from onceward_apps.kit.storage import REFUSALS, Storage
from onceward_apps.proof import drawing
from onceward_apps.proof.domain import Batch

T = TypeVar("T")


class CanPassLater(Exception):
    """Worth another try."""

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        # Seconds that the other side asked for.
        self.retry_after = retry_after


class QrGenerationFailed(CanPassLater):
    """The QR code could not be drawn."""


class StorageUploadFailed(CanPassLater):
    """The storage did not take the file."""


class StorageUploadRefused(PermanentFailure):
    """The storage does not take the file, however often it is asked."""


class PdfGenerationFailed(CanPassLater):
    """The label could not be rendered."""


class PdfGenerationRefused(PermanentFailure):
    """The label cannot be rendered."""


class EmailDeliveryFailed(CanPassLater):
    """The email was not taken."""


class EmailDeliveryRefused(PermanentFailure):
    """The email is not taken, or nobody knows whether it was."""


class DatabaseTrouble(CanPassLater):
    """The database did not do what it was asked."""


def category(error: BaseException) -> str:
    """As raw_ops.fn_error_category."""
    name = type(error).__name__
    kinds = {
        "QrGeneration": "qr_generation",
        "StorageUpload": "storage_upload",
        "PdfGeneration": "pdf_generation",
        "EmailDelivery": "email_delivery",
        "Database": "db_error",
    }
    return next((kind for part, kind in kinds.items() if part in name), "unknown")


@dataclass(frozen=True, slots=True)
class Policy:
    """Tier 1: tries within one attempt, the pauses between them, and how long each may take, in seconds."""

    error: type[CanPassLater]
    timeout: float
    waits: Sequence[float] = ()

    @property
    def options(self) -> dict[str, Any]:
        """What job.step takes."""
        return {
            "tries": len(self.waits) + 1,
            "waits": self.waits,
            "timeout": self.timeout,
            "on": (CanPassLater, TimeoutError),
        }

    async def named(self, step: Awaitable[T], what: str) -> T:
        """Let a step that took too long fail under the category of its dependency."""
        try:
            return await step
        except TimeoutError as error:
            raise self.error(f"{what} took longer than {self.timeout:g} s") from error


# Of the contract's table.  The ledger applies that of the email.
QR = Policy(QrGenerationFailed, 5)
STORAGE = Policy(StorageUploadFailed, 10, (1, 3))
PDF = Policy(PdfGenerationFailed, 15, (1, 3, 9))
EMAIL_WAITS = (1, 3, 9)


class Renderer(Protocol):
    """Makes the PDF of a label."""

    async def label(self, batch: Batch) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Typst:
    """In this process."""

    fonts: Sequence[Path] = ()

    async def label(self, batch: Batch) -> bytes:
        try:
            return await asyncio.to_thread(drawing.label_pdf, batch, fonts=self.fonts)
        except typst.TypstError as error:
            # The same texts give the same error: somebody has to shorten them.
            raise PdfGenerationRefused(f"the label cannot be typeset: {_first_line(error)}") from None
        except drawing.MissingCharacter as error:
            raise PdfGenerationRefused(f"the label cannot be typeset: {error}") from None


@dataclass(frozen=True, slots=True)
class Browserless:
    """A browser behind HTTP, by Browserless's API: POST /pdf."""

    url: str
    key: str = field(repr=False)
    transport: httpx.AsyncBaseTransport | None = None

    async def label(self, batch: Batch) -> bytes:
        body = {
            "html": drawing.label_html(batch),
            "options": {
                "width": "100mm",
                "height": "150mm",
                "printBackground": True,
                "preferCSSPageSize": True,
                "margin": dict.fromkeys(("top", "right", "bottom", "left"), "0"),
            },
        }
        try:
            async with httpx.AsyncClient(timeout=PDF.timeout, transport=self.transport) as client:
                answer = await client.post(
                    f"{self.url.rstrip('/')}/pdf", params={"token": self.key}, json=body
                )
        except httpx.TimeoutException:
            raise PdfGenerationFailed("the renderer did not answer in time") from None
        except httpx.TransportError as error:
            # Not its text, which may hold the address with the key.
            raise PdfGenerationFailed(f"the renderer cannot be reached ({type(error).__name__})") from None
        if answer.status_code in {408, 425, 429} or answer.status_code >= 500:
            wait = retry_after(answer.headers.get("Retry-After"), now=datetime.now(UTC))
            raise PdfGenerationFailed(f"the renderer answered {answer.status_code}", wait)
        if answer.status_code != 200:
            raise PdfGenerationRefused(f"the renderer refused the label with {answer.status_code}")
        if not answer.content.startswith(b"%PDF-"):
            raise PdfGenerationFailed("the renderer answered with something that is no PDF")
        return answer.content


async def upload(storage: Storage, path: str, content: bytes, content_type: str) -> str:
    """Write a file and return its address.  The same path again replaces it, so a repetition is harmless."""
    try:
        await storage.put(path, content, content_type=content_type)
    except REFUSALS as error:
        raise StorageUploadRefused(f"the storage refused {path}: {type(error).__name__}") from None
    except (BaseError, OSError) as error:
        raise StorageUploadFailed(f"the storage did not take {path}: {type(error).__name__}") from None
    return storage.address(path)


def retry_after(header: str | None, *, now: datetime) -> float | None:
    """Seconds, from either form of the header."""
    if header is None:
        return None
    if re.fullmatch(r"[0-9]{1,9}", header.strip()):
        return float(header)
    try:
        return max(0.0, (parsedate_to_datetime(header) - now).total_seconds())
    except (TypeError, ValueError):
        return None


def _first_line(error: BaseException) -> str:
    line = (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
    # The template says in words what does not hold.
    return line.removeprefix("assertion failed: ")
