"""One HTTP request of a provider: bounded in time and size, without a trace in any log, and honest about what arrived.

Each request has a connection of its own: one that was kept alive can be found dead after the request was written, and
nobody could tell whether it had arrived.
"""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import lru_cache
from typing import Any

from onceward.deliveries.outgoing import NotSent
from onceward.model import Json

MOST_READ = 64 * 1024
TIMEOUT = timedelta(seconds=30)
LONGEST_WAIT = timedelta(days=1)
# httpx logs URLs, which hold tokens; httpcore logs hosts and headers.
_LOGGERS = ("httpx", "httpcore.connection", "httpcore.http11", "httpcore.http2", "httpcore.proxy")
_private: ContextVar[bool] = ContextVar("onceward_private_request", default=False)


@dataclass(frozen=True, slots=True)
class Request:
    """A POST.  With `address`, it goes there, while host name and certificate are those of the URL."""

    url: str = field(repr=False)
    body: bytes = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    timeout: timedelta = TIMEOUT
    address: str | None = field(default=None, repr=False)
    ssl_context: ssl.SSLContext | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Answer:
    """What the server said.  None of it is shown to anybody: it may repeat what was sent."""

    status: int
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)

    def json(self) -> Json:
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None

    def field(self, *path: str) -> Json:
        """A value inside the JSON answer, or None."""
        value = self.json()
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        return value


async def post(request: Request) -> Answer | NotSent:
    import httpx

    _silence()
    # Reading the authorities takes its time, and is not the server's fault.
    context = request.ssl_context or ssl_context()
    token = _private.set(True)
    begun = False

    async def watch(event: str, _info: Mapping[str, Any]) -> None:
        nonlocal begun
        if event.endswith("send_request_headers.started"):
            begun = True

    try:
        # Times of single steps would let a server that sends a byte now and then hold us for ever.
        async with asyncio.timeout(request.timeout.total_seconds()):
            return await _exchange(httpx, request, context, watch)
    except (httpx.HTTPError, httpx.InvalidURL, OSError, TimeoutError, ssl.SSLError) as error:
        what = "no answer to the request" if begun else "could not connect"
        category = "no_reply" if begun else "connection"
        return NotSent(category, f"{what}: {type(error).__name__}", unclear=begun)
    finally:
        _private.reset(token)


async def _exchange(httpx: Any, request: Request, context: ssl.SSLContext, watch: Any) -> Answer:
    url = httpx.URL(request.url)
    headers = {"User-Agent": "Onceward", "Accept-Encoding": "identity", **request.headers}
    extensions: dict[str, Any] = {"trace": watch}
    if request.address is not None:
        headers["Host"] = url.netloc.decode("ascii")
        extensions["sni_hostname"] = url.raw_host.decode("ascii")
        url = url.copy_with(host=request.address)
    async with (
        httpx.AsyncClient(verify=context, trust_env=False, follow_redirects=False, timeout=None) as client,
        client.stream("POST", url, content=request.body, headers=headers, extensions=extensions) as response,
    ):
        body = b""
        try:
            async for part in response.aiter_raw():
                body += part
                if len(body) > MOST_READ:
                    break
        except (httpx.HTTPError, OSError):
            # The status is the answer; the rest only names what was taken.
            body = b""
        return Answer(response.status_code, dict(response.headers), body[:MOST_READ])


def failed(answer: Answer, *, now: datetime) -> NotSent | None:
    """What an answer other than success means."""
    status = answer.status
    if 200 <= status < 300:
        return None
    message = f"the server answered {status}"
    if status == 429:
        return NotSent("rate_limited", message, retry_after=retry_after(answer, now=now))
    if status in {408, 425}:
        return NotSent("server", message)
    if status == 401:
        # About our credentials and not about this delivery: they are mended, and it passes.
        return NotSent("auth", message)
    if status in {502, 504}:
        # A gateway speaks, which may have handed the request on.
        return NotSent("gateway", message, unclear=True)
    if status >= 500:
        return NotSent("server", message, retry_after=retry_after(answer, now=now))
    return NotSent("redirect" if status < 400 else "refused", message, permanent=True)


def retry_after(answer: Answer, *, now: datetime) -> timedelta | None:
    """Seconds or a date; at most a day."""
    given = answer.headers.get("retry-after", "").strip()
    if given.isdecimal():
        return min(timedelta(seconds=int(given[:9])), LONGEST_WAIT)
    try:
        moment = parsedate_to_datetime(given)
    except (ValueError, TypeError):
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return min(max(moment - now, timedelta(0)), LONGEST_WAIT)


@lru_cache(maxsize=1)
def ssl_context() -> ssl.SSLContext:
    """Made once: reading the authorities takes longer than a request."""
    import httpx

    return httpx.create_ssl_context()


class _Silence(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        return not _private.get()


@lru_cache(maxsize=1)
def _silence() -> None:
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_Silence())
