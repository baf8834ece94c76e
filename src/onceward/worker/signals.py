"""A hook that a test can await.  In production nobody listens and `send` does nothing."""

from __future__ import annotations

import asyncio
from typing import Generic, TypeVar

T = TypeVar("T")


class Signal(Generic[T]):
    def __init__(self) -> None:
        self._inbox: asyncio.Queue[T] | None = None

    def listen(self) -> None:
        self._inbox = asyncio.Queue()

    def send(self, value: T) -> None:
        if self._inbox is not None:
            self._inbox.put_nowait(value)

    async def next(self, *, within: float = 30.0) -> T:
        assert self._inbox is not None, "call listen() first"
        return await asyncio.wait_for(self._inbox.get(), within)
