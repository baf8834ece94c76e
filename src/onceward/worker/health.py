"""`/healthz`, `/readyz` and `/metrics` on the worker's health port."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable

from onceward.errors import OncewardError
from onceward.metrics import CONTENT_TYPE

LIMIT = 8192


class Health:
    """A few lines of HTTP: alive means that the loop answers, ready means that the lease is held."""

    def __init__(
        self,
        port: int,
        ready: Callable[[], bool],
        *,
        host: str = "127.0.0.1",
        metrics: Callable[[], Awaitable[bytes]] | None = None,
    ) -> None:
        self._port = port
        self._host = host
        self._ready = ready
        self._metrics = metrics
        self._server: asyncio.Server | None = None

    async def start(self) -> int:
        try:
            self._server = await asyncio.start_server(self._answer, self._host, self._port, limit=LIMIT)
        except OSError as error:
            raise OncewardError(
                f"could not open the health port {self._host}:{self._port}: {error.strerror or error}",
                hint="Another worker may have it: choose another --health-port.",
            ) from None
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.LimitOverrunError, ValueError, TimeoutError):
            async with asyncio.timeout(5):
                head = await reader.readuntil(b"\r\n\r\n")
                path = head.split(b" ", 2)[1].decode("ascii", "replace").partition("?")[0]
                status, kind, text = await self._page(path)
                writer.write(
                    f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(text)}\r\n"
                    "Connection: close\r\n\r\n".encode()
                    + text
                )
                await writer.drain()
        writer.close()

    async def _page(self, path: str) -> tuple[str, str, bytes]:
        if path == "/metrics" and self._metrics is not None:
            return "200 OK", CONTENT_TYPE, await self._metrics()
        status, body = self._state(path)
        return status, "application/json", json.dumps(body).encode() + b"\n"

    def _state(self, path: str) -> tuple[str, dict[str, object]]:
        if path == "/healthz":
            return "200 OK", {"status": "alive"}
        if path == "/readyz":
            if self._ready():
                return "200 OK", {"status": "ready"}
            return "503 Service Unavailable", {"status": "not ready", "reason": "the lease is not held"}
        return "404 Not Found", {"status": "unknown path", "known": ["/healthz", "/readyz", "/metrics"]}
