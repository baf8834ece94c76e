"""Live pages: one connection that listens and looks, for as long as somebody has a page open.

A page learns that something has changed and fetches itself again; what is sent carries no data.  NOTIFY is a hint
that makes the next look come sooner; the look, about once a second, is what counts.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from typing import Any

import psycopg

from onceward import contrib, logs
from onceward.calls import browsing
from onceward.requests import CONNECTION_OPTIONS
from onceward.web.identity import READ_ONLY

log = logs.get("onceward.web")
EVERY = 1.0
# Looking takes at most a twentieth of the time, however long one look takes.
SHARE = 20
# A proxy closes what is silent.
HEARTBEAT = 15.0


class Watcher:
    """One open page.  Only the newest event matters, so there is room for one."""

    def __init__(self, scope: str) -> None:
        self.scope = scope
        # The pulse that the page was told of last.  None: it may be older than the stream.
        self.told: str | None = None
        self._event: str | None = None
        self._arrived = asyncio.Event()

    def tell(self, event: str) -> None:
        self._event = event
        self._arrived.set()

    async def next(self, seconds: float) -> str:
        """The next event, or `beat` when none came."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._arrived.wait()
        self._arrived.clear()
        event, self._event = self._event, None
        return event or "beat"


class Live:
    """Tells open pages that something has changed."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._watchers: set[Watcher] = set()
        self._task: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()
        self.looks = 0

    @property
    def watchers(self) -> int:
        return len(self._watchers)

    @property
    def ending(self) -> bool:
        return self._closing.is_set()

    def end(self) -> None:
        """End every open page's stream, so that the server can stop."""
        self._closing.set()
        for watcher in self._watchers:
            watcher.tell("closing")

    async def close(self) -> None:
        self.end()
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def events(self, scope: str) -> AsyncIterator[str]:
        """Events for one page: `open` at first, then `changed`, `stale` or `beat`."""
        watcher = Watcher(scope)
        self._watchers.add(watcher)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._watch())
        try:
            yield "open"
            while not self._closing.is_set():
                event = await watcher.next(HEARTBEAT)
                if event == "closing":
                    return
                yield event
        finally:
            self._watchers.discard(watcher)

    async def _watch(self) -> None:
        """Until the last page is closed."""
        pause = EVERY
        while self._watchers and not self._closing.is_set():
            try:
                await self._look_until_nobody_does()
                pause = EVERY
            except (psycopg.Error, OSError) as error:
                log.warning("live_connection_lost", error=type(error).__name__, again_in=pause)
                for watcher in self._watchers:
                    watcher.told = None
                    watcher.tell("stale")
                await asyncio.sleep(pause)
                pause = min(pause * 2, 15.0)

    async def _look_until_nobody_does(self) -> None:
        options = {**CONNECTION_OPTIONS, "prepare_threshold": None, "application_name": "onceward web live"}
        connection = await psycopg.AsyncConnection.connect(self._dsn, **options)
        async with connection:
            await connection.execute("listen onceward")
            while self._watchers:
                began = time.monotonic()
                for scope in {watcher.scope for watcher in self._watchers}:
                    self._tell(scope, await self._pulse(connection, scope))
                self.looks += 1
                took = time.monotonic() - began
                await self._wait_for_a_hint(connection, max(EVERY, took * SHARE))

    async def _pulse(self, connection: psycopg.AsyncConnection[Any], scope: str) -> str:
        async with connection.transaction():
            for call in (
                browsing.act_as(scope, "onceward web"),
                browsing.read_only(),
                browsing.take_role(READ_ONLY),
            ):
                await contrib.run_async(connection, call)
            return await contrib.run_async(connection, browsing.pulse())

    async def _wait_for_a_hint(self, connection: psycopg.AsyncConnection[Any], most: float) -> None:
        """Until the time is over; a notification ends it early, though not at once: they come in swarms."""
        async for _ in connection.notifies(timeout=most, stop_after=1):
            await asyncio.sleep(min(0.2, most))

    def _tell(self, scope: str, pulse: str) -> None:
        for watcher in self._watchers:
            if watcher.scope == scope and watcher.told != pulse:
                watcher.told = pulse
                watcher.tell("changed")
