"""An HTTP API that answers with JSON in pages: the next one by a Link header, as Shopify does it, or by a cursor in the body."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Literal, NoReturn, Self
from urllib.parse import urljoin, urlsplit

import httpx
from pydantic import Field

from onceward.errors import RateLimited, shown
from onceward.limits import retry_after
from onceward_apps.alerts.sync.access import Access
from onceward_apps.alerts.sync.model import Cursor, Misconfigured, Page, Refused, Row, Unavailable, Unreadable
from onceward_apps.alerts.sync.passes import Pass
from onceward_apps.alerts.sync.targets import Settings, inferred_columns, look_up

MOST_BYTES = 32 * 1024 * 1024
TIMEOUT = httpx.Timeout(30, connect=5)
# Asked to wait longer than this, somebody should look.
LONGEST_WAIT = timedelta(days=1)
# What an API answers when it no longer knows a page that it named.
STALE = {400, 404, 410, 422}


class HttpSettings(Settings):
    url: str = Field(pattern=r"^https?://", max_length=2000)
    # Where the rows are in the answer, as orders or data.items; empty: the answer is the list.
    items: str = ""
    # Parameters that every first page has beside those below.
    parameters: dict[str, str] = Field(default_factory=dict)
    since_parameter: str = "updated_at_min"
    limit_parameter: str = "limit"
    paging: Literal["link", "cursor"] = "link"
    # With paging by cursor: where the answer has it, and as what it is sent.
    cursor_path: str = "next_cursor"
    cursor_parameter: str = "cursor"
    # Which of the secrets that the workers have is sent, and how.
    secret: str | None = None
    secret_header: str = "Authorization"  # noqa: S105 - the name of the header
    secret_prefix: str = ""
    page_size: int = Field(default=250, ge=1, le=10_000)


class HttpApi:
    """One source during one run."""

    def __init__(self, settings: HttpSettings, access: Access, *, now: datetime) -> None:
        if urlsplit(settings.url).scheme != "https" and not access.plain_http:
            raise Misconfigured(f"url must begin with https://, got {shown(settings.url)!r}")
        self._settings = settings
        self._now = now
        headers = {"accept": "application/json"}
        if settings.secret is not None:
            headers[settings.secret_header] = settings.secret_prefix + access.secret(settings.secret)
        # A redirect could carry the secret to somebody else.
        self._client = httpx.AsyncClient(headers=headers, timeout=TIMEOUT, follow_redirects=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *unused: object) -> None:
        await self._client.aclose()

    async def fetch(self, cursor: Cursor) -> Page:
        at = Pass.of(cursor)
        status, headers, body = await self._get(at)
        if at.next is not None and status in STALE:
            # The page that it named before has expired: this pass begins again.
            at = at.restarted()
            status, headers, body = await self._get(at)
        if status != 200:
            self._refuse(status, headers)
        answer = _parsed(body)
        items = look_up(answer, self._settings.items) if self._settings.items else answer
        if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
            raise Unreadable(
                f"the answer has no list of objects{f' at {self._settings.items}' if self._settings.items else ''}"
            )
        rows = [Row(f"item {number + 1} of a page", item) for number, item in enumerate(items)]
        at = at.seen(look_up(item, self._settings.changed) for item in items)
        following = self._next(headers, answer)
        if following is not None and following == at.next:
            raise Unreadable("a page names itself as the next one")
        return Page(
            rows=rows,
            columns=inferred_columns(rows, self._settings),
            declared=False,
            cursor=at.ended(self._now) if following is None else at.goes_on(following),
            more=following is not None,
        )

    async def _get(self, at: Pass) -> tuple[int, httpx.Headers, bytes]:
        settings = self._settings
        url, parameters = (
            settings.url,
            {**settings.parameters, settings.limit_parameter: str(settings.page_size)},
        )
        begins = at.begins(settings.overlap)
        if begins is not None:
            parameters[settings.since_parameter] = begins.isoformat().replace("+00:00", "Z")
        if at.next is not None and settings.paging == "cursor":
            parameters[settings.cursor_parameter] = str(at.next)
        elif at.next is not None:
            # The link is the whole address; the cursor may have been kept since the settings were changed.
            url, parameters = self._same_origin(str(at.next)), {}
        try:
            async with self._client.stream("GET", url, params=parameters or None) as response:
                body = bytearray()
                async for part in response.aiter_bytes():
                    body += part
                    if len(body) > MOST_BYTES:
                        raise Unreadable(
                            f"a page is larger than {MOST_BYTES} bytes", hint="Set a smaller page_size."
                        )
                return response.status_code, response.headers, bytes(body)
        except httpx.HTTPError as error:
            # Its text may hold the address with its parameters.
            raise Unavailable(f"could not read a page: {type(error).__name__}") from None

    def _refuse(self, status: int, headers: httpx.Headers) -> NoReturn:
        wait = retry_after(dict(headers))
        if status == 429 or (status == 503 and wait is not None):
            raise RateLimited(
                f"the source asks to wait (HTTP {status})",
                retry_after=min(wait or timedelta(seconds=30), LONGEST_WAIT),
            )
        if status >= 500 or status in {408, 425}:
            raise Unavailable(f"the source answers with HTTP {status}")
        hint = (
            "Look at the secret that the source uses."
            if status in {401, 403}
            else "Look at the source's url."
        )
        raise Refused(f"the source answers with HTTP {status}", hint=hint)

    def _next(self, headers: httpx.Headers, answer: Any) -> str | None:
        if self._settings.paging == "cursor":
            found = look_up(answer, self._settings.cursor_path) if isinstance(answer, dict) else None
            return None if found in {None, ""} else str(found)
        for link in httpx.Response(200, headers=headers).links.values():
            if link.get("rel") == "next" and link.get("url"):
                return self._same_origin(urljoin(self._settings.url, link["url"]))
        return None

    def _same_origin(self, url: str) -> str:
        """The secret goes to whom it belongs."""
        ours, theirs = urlsplit(self._settings.url), urlsplit(url)
        if (ours.scheme, ours.netloc) != (theirs.scheme, theirs.netloc):
            raise Unreadable(
                f"the next page is at another server, {theirs.scheme}://{shown(theirs.hostname or '')}",
                detail=f"The source is at {ours.scheme}://{ours.netloc}.",
            )
        return url


def _parsed(body: bytes) -> Any:
    def refuse(constant: str) -> NoReturn:
        raise Unreadable(f"the answer contains {constant}, which is not JSON")

    try:
        # Amounts keep the digits that were written.
        return json.loads(body, parse_float=Decimal, parse_constant=refuse)
    except (ValueError, RecursionError):
        raise Unreadable("the answer is not JSON", detail=f"It begins with {body[:40]!r}.") from None
