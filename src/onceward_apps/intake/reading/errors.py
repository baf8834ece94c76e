"""What can go wrong while a document is read.

    ReadingError
    ├── Refused              the file itself: never worth another try
    └── ProviderError        somebody who reads for us
        ├── RateLimited      asks to wait
        ├── Unavailable      may answer later
        └── Rejected         will not answer this request, however often it is asked

No message holds text of a document, an address with a key, or an answer of a provider.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Literal

RefusalCode = Literal[
    "unknown_type",  # none of the types that are read
    "type_mismatch",  # content and declared type differ
    "empty",
    "too_large",  # bytes
    "too_many_pages",
    "too_many_pixels",
    "malformed",  # the structure is broken, or breaks its reader
    "encrypted",
    "active_content",  # scripts, launch actions, attachments, forms that run code
    "bomb",  # unpacks to far more than it is
    "polyglot",  # is a second type of file at the same time
    "memory_limit",
    "time_limit",
    "malware",  # clamd found something
]


class ReadingError(Exception):
    """A document could not be read."""


class Refused(ReadingError):
    """The file is not taken, and `message` can be shown to the person who sent it."""

    def __init__(self, code: RefusalCode, message: str) -> None:
        super().__init__(code, message)
        self.code: RefusalCode = code
        self.message = message

    def __str__(self) -> str:
        return f"{self.code}: {self.message}"


class ProviderError(ReadingError):
    """A provider of OCR, extraction or virus scanning did not do its part.

    `tokens` were charged all the same: those of an answer that was of no use.
    """

    def __init__(self, provider: str, message: str, *, tokens: int = 0) -> None:
        super().__init__(provider, message)
        self.provider = provider
        self.message = message
        self.tokens = tokens

    def __str__(self) -> str:
        return f"{self.provider}: {self.message}"


class RateLimited(ProviderError):
    """The provider asks to wait.  `retry_after` is None when it does not say how long."""

    def __init__(self, provider: str, message: str, retry_after: timedelta | None = None) -> None:
        super().__init__(provider, message)
        self.args = (provider, message, retry_after)
        self.retry_after = retry_after


class Unavailable(ProviderError):
    """The provider did not answer, or not sensibly: worth another try."""


class Rejected(ProviderError):
    """The provider refuses the request, or is not set up: not worth another try before somebody looks."""
