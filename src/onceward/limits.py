"""Limits: what tasks declare, what handlers learn from a provider's answers, and direct use.

    @app.task(limits=[use("openai:gpt-4o-mini", tokens=lambda p: p.estimated_tokens)])

Jobs wait until their limits have room, and use up no attempt meanwhile.  A handler says with `job.settle` what it really
used, and raises `RateLimited` when the provider refuses.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING
from uuid import UUID

from onceward import calls
from onceward.errors import InvalidArgument, NoRoom, RateLimited, shown
from onceward.model_limits import Acquired, Amount, Key, Limit, LimitInfo, Use

if TYPE_CHECKING:
    from onceward.async_client import AsyncClient
    from onceward.client import Client

__all__ = [
    "AsyncLimits", "Hold", "Limit", "LimitInfo", "Limits", "NoRoom", "RateLimited", "Use", "exhausted", "retry_after", "use",
]  # fmt: skip

A_MINUTE = timedelta(minutes=1)
# When the provider does not say how long to wait.
DEFAULT_WAIT = timedelta(seconds=30)
# A reset further away is a slip, or another calendar.
LONGEST_WAIT = timedelta(days=31)
# Spelled as providers do: 1m30s, 250ms, 12.5.
_DURATION = re.compile(r"^(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+(?:\.\d+)?)s)?(?:(\d+(?:\.\d+)?)ms)?$")


def use(
    limit: str, *, tokens: Amount | None = None, weight: Amount | None = None, key: Key | None = None
) -> Use:
    """A limit that a task's jobs use, one request each.

    `tokens` (or `weight`: the same, for what is not tokens) and `key` are values, or functions of the payload, computed
    when the job is enqueued.
    """
    if tokens is not None and weight is not None:
        raise InvalidArgument(f"limit {shown(limit)} has tokens and weight, which are the same")
    if not isinstance(limit, str) or not limit:
        raise InvalidArgument(f"limit must be a name, got {shown(limit)!r}")
    return Use(limit, tokens if tokens is not None else weight, key)


# ------------------------------------------------------------ what providers say


def retry_after(headers: Mapping[str, str], *, now: datetime | None = None) -> timedelta | None:
    """How long a provider asks to wait: `retry-after-ms`, `Retry-After` (seconds or a date), or as `exhausted` says."""
    found = {name.lower(): value.strip() for name, value in headers.items()}
    if (milliseconds := _number(found.get("retry-after-ms"))) is not None:
        return timedelta(milliseconds=milliseconds)
    asked = found.get("retry-after")
    if asked is not None:
        if (seconds := _number(asked)) is not None:
            return timedelta(seconds=seconds)
        with suppress(ValueError):
            return _until(parsedate_to_datetime(asked), now)
    return exhausted(headers, now=now)


def exhausted(headers: Mapping[str, str], *, now: datetime | None = None) -> timedelta | None:
    """How long until there is something left again, when the headers say that nothing is.

    Understands `x-ratelimit-remaining-*` with `x-ratelimit-reset-*` (OpenAI: durations; GitHub: seconds since 1970) and
    `anthropic-ratelimit-*-remaining` with `-reset` (moments).  Moments are compared with this machine's clock.
    """
    found = {name.lower(): value.strip() for name, value in headers.items()}
    waits = [
        wait
        for name, value in found.items()
        if "ratelimit" in name
        and "-remaining" in name
        and _number(value) == 0
        and (wait := _wait(found.get(name.replace("-remaining", "-reset")), now)) is not None
    ]
    return max(waits, default=None)


def _number(text: str | None) -> float | None:
    try:
        value = float(text) if text else None
    except ValueError:
        return None
    return value if value is not None and 0 <= value < 1e11 else None


def _wait(text: str | None, now: datetime | None) -> timedelta | None:
    """A duration, or the time until a moment; None for what is neither, or longer than anybody waits."""
    if not text:
        return None
    if (number := _number(text)) is not None:
        wait = timedelta(seconds=number) if number < 1e9 else _until(datetime.fromtimestamp(number, UTC), now)
    elif (match := _DURATION.match(text)) is not None and any(match.groups()):
        days, hours, minutes, seconds, milliseconds = (float(part or 0) for part in match.groups())
        wait = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds, milliseconds=milliseconds)
    else:
        try:
            wait = _until(datetime.fromisoformat(text), now)
        except ValueError:
            return None
    return wait if wait <= LONGEST_WAIT else None


def _until(moment: datetime, now: datetime | None) -> timedelta:
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(timedelta(0), moment - (now or datetime.now(UTC)))


# ------------------------------------------------------------ direct use


class Hold:
    """What was acquired directly.  Give it back with `release`, or let its lease run out."""

    def __init__(self, hold_id: UUID, limit: str) -> None:
        self.id = hold_id
        self.limit = limit


class Limits:
    """Limits in the database, for synchronous code: `Limits(client).pause("openai", timedelta(seconds=30))`."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def all(self) -> list[LimitInfo]:
        return self._client.run(calls.limits())

    def set(self, limit: Limit) -> bool:
        """Create or replace one.  Code that declares the same name leaves it alone from then on."""
        return self._client.run(calls.set_limit(limit))

    def drop(self, name: str) -> None:
        self._client.run(calls.drop_limit(name))

    def pause(self, name: str, duration: timedelta, *, key: str = "", reason: str | None = None) -> datetime:
        """Let nobody use it for some time; then one probes.  Returns the end."""
        return self._client.run(calls.pause_limit(name, duration, key, reason))

    def resume(self, name: str, *, key: str = "") -> bool:
        return self._client.run(calls.resume_limit(name, key))

    def acquire(
        self,
        name: str,
        *,
        key: str = "",
        requests: int = 1,
        tokens: int = 0,
        lease: timedelta = A_MINUTE,
        wait: timedelta = timedelta(0),
    ) -> Hold:
        """Take of a limit, waiting for room as long as `wait`.  Raises NoRoom."""
        call = calls.acquire(name, key=key, requests=requests, weight=tokens, lease=lease)
        deadline = time.monotonic() + wait.total_seconds()
        while True:
            got = self._client.run(call)
            if got.hold_id is not None:
                return Hold(got.hold_id, name)
            time.sleep(_pause(name, got, deadline - time.monotonic()))

    def settle(self, hold: Hold, tokens: int) -> None:
        """Say what was really used; the difference is charged or given back."""
        self._client.run(calls.settle_hold(hold.id, tokens))

    def release(self, hold: Hold) -> bool:
        return self._client.run(calls.release_hold(hold.id))

    @contextmanager
    def slot(self, name: str, *, key: str = "", wait: timedelta = A_MINUTE) -> Iterator[Hold]:
        """Hold a slot (and take one request) for the time of a block."""
        hold = self.acquire(name, key=key, wait=wait)
        try:
            yield hold
        finally:
            self.release(hold)


class AsyncLimits:
    """Like `Limits`, for asyncio code."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def all(self) -> list[LimitInfo]:
        return await self._client.run(calls.limits())

    async def set(self, limit: Limit) -> bool:
        """Create or replace one.  Code that declares the same name leaves it alone from then on."""
        return await self._client.run(calls.set_limit(limit))

    async def drop(self, name: str) -> None:
        await self._client.run(calls.drop_limit(name))

    async def pause(
        self, name: str, duration: timedelta, *, key: str = "", reason: str | None = None
    ) -> datetime:
        """Let nobody use it for some time; then one probes.  Returns the end."""
        return await self._client.run(calls.pause_limit(name, duration, key, reason))

    async def resume(self, name: str, *, key: str = "") -> bool:
        return await self._client.run(calls.resume_limit(name, key))

    async def acquire(
        self,
        name: str,
        *,
        key: str = "",
        requests: int = 1,
        tokens: int = 0,
        lease: timedelta = A_MINUTE,
        wait: timedelta = timedelta(0),
    ) -> Hold:
        """Take of a limit, waiting for room as long as `wait`.  Raises NoRoom."""
        call = calls.acquire(name, key=key, requests=requests, weight=tokens, lease=lease)
        deadline = time.monotonic() + wait.total_seconds()
        while True:
            got = await self._client.run(call)
            if got.hold_id is not None:
                return Hold(got.hold_id, name)
            await asyncio.sleep(_pause(name, got, deadline - time.monotonic()))

    async def settle(self, hold: Hold, tokens: int) -> None:
        """Say what was really used; the difference is charged or given back."""
        await self._client.run(calls.settle_hold(hold.id, tokens))

    async def release(self, hold: Hold) -> bool:
        return await self._client.run(calls.release_hold(hold.id))

    @asynccontextmanager
    async def slot(self, name: str, *, key: str = "", wait: timedelta = A_MINUTE) -> AsyncIterator[Hold]:
        """Hold a slot (and take one request) for the time of a block."""
        hold = await self.acquire(name, key=key, wait=wait)
        try:
            yield hold
        finally:
            await self.release(hold)


def _pause(name: str, got: Acquired, left: float) -> float:
    """Seconds until the next try.  Raises NoRoom when there are none left."""
    wait = max(0.01, got.wait.total_seconds() if got.wait is not None else 1.0)
    if left <= 0 or wait > left + 1:
        raise NoRoom(
            f'limit "{name}" has no room: {got.reason}',
            detail=f"There may be room in {wait:.3g} s.",
            hint="Wait longer, or try again later.",
        )
    return min(wait, max(left, 0.01))
