"""One request to a provider, and what its failures are called."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any, Final

import httpx

from onceward_apps.intake.reading.errors import RateLimited, Rejected, Unavailable

# Conflicts and "too early" included; 529 is Anthropic's word for being overloaded.
_LATER: Final = frozenset((408, 409, 425, 529))
# An answer about one document is far smaller.
_LARGEST: Final = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a provider is asked, and in whose name."""

    provider: str
    url: str
    headers: Mapping[str, str] = field(repr=False)
    timeout: timedelta
    transport: httpx.AsyncBaseTransport | None = field(default=None, repr=False)

    async def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """The JSON of the answer.  Raises RateLimited, Unavailable or Rejected, none of which quotes either side."""
        try:
            async with (
                httpx.AsyncClient(timeout=self.timeout.total_seconds(), transport=self.transport) as client,
                client.stream(
                    "POST", f"{self.url.rstrip('/')}{path}", json=dict(body), headers=dict(self.headers)
                ) as answer,
            ):
                self._check(answer)
                content = await self._content(answer)
        except httpx.TimeoutException:
            raise Unavailable(self.provider, "did not answer in time") from None
        except (httpx.TransportError, httpx.DecodingError) as error:
            raise Unavailable(self.provider, f"cannot be reached ({type(error).__name__})") from None
        except (httpx.InvalidURL, httpx.UnsupportedProtocol):
            raise Rejected(self.provider, "its address is not one") from None
        try:
            return httpx.Response(200, content=content).json()
        except (ValueError, RecursionError):
            raise Unavailable(self.provider, "answered with something that is no JSON") from None

    def _check(self, answer: httpx.Response) -> None:
        status = answer.status_code
        wait = retry_after(answer.headers.get("Retry-After"), now=datetime.now(UTC))
        if status == 429 or (status in {503, 529} and wait is not None):
            raise RateLimited(self.provider, f"answered {status}", wait)
        if status >= 500 or status in _LATER:
            raise Unavailable(self.provider, f"answered {status}")
        if status != 200:
            raise Rejected(self.provider, f"refused the request with {status}")

    async def _content(self, answer: httpx.Response) -> bytes:
        content = bytearray()
        async for part in answer.aiter_bytes():
            content += part
            if len(content) > _LARGEST:
                raise Unavailable(self.provider, "answered with far too much")
        return bytes(content)


def retry_after(header: str | None, *, now: datetime) -> timedelta | None:
    """From either form of the header: seconds, or a moment."""
    if header is None:
        return None
    if re.fullmatch(r"[0-9]{1,7}(\.[0-9]{1,6})?", header.strip()):
        return timedelta(seconds=float(header))
    try:
        return max(timedelta(), parsedate_to_datetime(header) - now)
    except (TypeError, ValueError):
        return None
