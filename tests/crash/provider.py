"""A provider that counts: an HTTP server of its own process, which writes down when each request was sent, and the task that asks it.

The asking process tells the moment, by the clock that all processes of a machine share: when the machine is busy, this one
reads late what had waited at its door, and requests of two windows would count in one.

Started as a program, it prints its port, then reads commands: `refuse SECONDS RETRY_AFTER` answers 429 for so long.
"""

from __future__ import annotations

import asyncio
import sys
import time
from datetime import timedelta
from pathlib import Path

from onceward.limits import RateLimited, retry_after
from onceward.worker import Job
from tests.crash.handlers import app

# How long an answer takes.
WORK = 0.15


@app.task
async def ask(port: int, job: Job) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(
            b"GET /%s HTTP/1.1\r\nHost: provider\r\nConnection: close\r\nSent: %d\r\n\r\n"
            % (job.ref.encode(), time.monotonic_ns())
        )
        status, *lines = (await reader.read()).decode().split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines if ": " in line)
        if " 429 " in status:
            wait = retry_after(headers)
            raise RateLimited(status, retry_after=wait or timedelta(seconds=1), limit="provider")
    finally:
        writer.close()


class Provider:
    """Notes `came NS`, `gone NS` and `refused NS` for requests that were sent, were answered or given up, and were refused."""

    def __init__(self, path: Path) -> None:
        self._log = path.open("w")
        self._refuse_until = 0.0
        self._retry_after = "1"

    async def serve(self) -> None:
        server = await asyncio.start_server(self._answer, "127.0.0.1", 0, backlog=1024)
        print(server.sockets[0].getsockname()[1], flush=True)
        lines = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(lines), sys.stdin
        )
        while line := await lines.readline():
            _, seconds, self._retry_after = line.decode().split()
            self._refuse_until = time.monotonic() + float(seconds)
        self._log.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = await reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()
            return
        self._note("came", int(request.rpartition(b"Sent: ")[2]))
        answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
        if time.monotonic() < self._refuse_until:
            self._note("refused")
            answer = b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: %s\r\nContent-Length: 0\r\n\r\n" % (
                self._retry_after.encode()
            )
        else:
            await asyncio.sleep(WORK)
        self._note("gone")
        writer.write(answer)
        writer.close()

    def _note(self, word: str, moment: int | None = None) -> None:
        self._log.write(f"{word} {moment or time.monotonic_ns()}\n")
        self._log.flush()


if __name__ == "__main__":
    asyncio.run(Provider(Path(sys.argv[1])).serve())
