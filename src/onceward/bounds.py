"""Bounds on what waits in a lane, and shares of tenants in its turns."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, TypedDict, Unpack

from onceward import calls
from onceward.calls import Call
from onceward.model_limits import BoundInfo, BoundOver, ShareInfo

if TYPE_CHECKING:
    from onceward.async_client import AsyncClient
    from onceward.client import Client

__all__ = ["AsyncBounds", "BoundInfo", "BoundOptions", "Bounds", "ShareInfo"]


class BoundOptions(TypedDict, total=False):
    """What a bound has: at least one of the first three."""

    max_depth: int | None
    max_age: timedelta | None
    max_bytes: int | None
    # What enqueue answers above it.
    over: BoundOver
    # A tenant, * for each, or empty for the whole lane.
    tenant: str
    defer_by: timedelta


def _set(lane: str, options: BoundOptions) -> Call[None]:
    return calls.set_bound(
        lane,
        max_depth=options.get("max_depth"),
        max_age=options.get("max_age"),
        max_bytes=options.get("max_bytes"),
        over=options.get("over", "signal"),
        tenant=options.get("tenant", ""),
        defer_by=options.get("defer_by", timedelta(minutes=1)),
    )


class Bounds:
    """For synchronous code: `Bounds(client).set("mail", max_depth=10_000, over="defer")`."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def set(self, lane: str, **options: Unpack[BoundOptions]) -> None:
        """Bound a lane, or a tenant in it; replaces the bound that was there."""
        self._client.run(_set(lane, options))

    def drop(self, lane: str, *, tenant: str = "") -> bool:
        return self._client.run(calls.drop_bound(lane, tenant))

    def all(self, lane: str | None = None) -> list[BoundInfo]:
        return self._client.run(calls.bounds(lane))

    def set_share(self, lane: str, tenant: str, share: int) -> None:
        """How many turns the tenant gets where others get one."""
        self._client.run(calls.set_share(lane, tenant, share))

    def shares(self, lane: str | None = None) -> list[ShareInfo]:
        return self._client.run(calls.shares(lane))


class AsyncBounds:
    """Like `Bounds`, for asyncio code."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def set(self, lane: str, **options: Unpack[BoundOptions]) -> None:
        """Bound a lane, or a tenant in it; replaces the bound that was there."""
        await self._client.run(_set(lane, options))

    async def drop(self, lane: str, *, tenant: str = "") -> bool:
        return await self._client.run(calls.drop_bound(lane, tenant))

    async def all(self, lane: str | None = None) -> list[BoundInfo]:
        return await self._client.run(calls.bounds(lane))

    async def set_share(self, lane: str, tenant: str, share: int) -> None:
        """How many turns the tenant gets where others get one."""
        await self._client.run(calls.set_share(lane, tenant, share))

    async def shares(self, lane: str | None = None) -> list[ShareInfo]:
        return await self._client.run(calls.shares(lane))
