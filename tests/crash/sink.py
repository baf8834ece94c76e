"""Where outside effects arrive: a server that keeps what it is told, by idempotency key.

A line is an effect, `TOKEN STEP KEY EPOCH`, and the answer is `heard`.  It runs beside a proxy, which counts an effect
like a statement, under the kind `effect`: so a process can be struck before it is heard, or when it is and does not know.
"""

from __future__ import annotations

import asyncio
import contextlib

from tests.crash.proxy import Proxy


class Sink:
    """Runs in the loop of its proxy."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        # Token, step, key and epoch of each.
        self.heard: list[tuple[str, str, str, int]] = []
        self.port = proxy.ask(self._start())

    async def _start(self) -> int:
        self._server = await asyncio.start_server(self._listen, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    def close(self) -> None:
        """Before its proxy."""
        self._proxy.ask(self._stop())

    async def _stop(self) -> None:
        self._server.close()

    async def _listen(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            line = await reader.readline()
            if line.endswith(b"\n") and self._hear(line.decode()):
                writer.write(b"heard\n")
                await writer.drain()
        writer.transport.abort() if self._struck else writer.close()

    @property
    def _struck(self) -> bool:
        return self._proxy.strike is not None and self._proxy.strike.struck

    def _hear(self, line: str) -> bool:
        """Whether there is still somebody to answer."""
        strike = self._proxy.strike if self._proxy.count("effect") else None
        if strike is None or strike.after:
            token, step, key, epoch = line.split()
            self.heard.append((token, step, key, int(epoch)))
        if strike is not None:
            strike.blow()
        return strike is None
