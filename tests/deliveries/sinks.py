"""Receivers that misbehave on command, in a thread of their own: what a receiver keeps is what has arrived.

The command is part of what is sent: `jane+name@…` in the address of a mail, `?do=name` in a URL, `#name` in any other body.
"""

from __future__ import annotations

import asyncio
import contextlib
import email
import json
import re
import socket
import ssl
import threading
from collections import Counter
from dataclasses import dataclass
from email.message import Message
from email.policy import default
from typing import Any, Self

from aiosmtpd import smtp as aiosmtpd


class Sink:
    """A server on a free port of this machine."""

    def __init__(self, ssl_context: ssl.SSLContext | None = None) -> None:
        self.ssl_context = ssl_context
        self.port = 0
        self._open: set[asyncio.BaseTransport] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(10)
        return self

    def __exit__(self, *unused: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _start(self) -> None:
        raise NotImplementedError

    async def _stop(self) -> None:
        self._server.close()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for transport in self._open:
            # A TLS transport that was closed twice has let go of its connection, and abort() of Python 3.11 looks for it.
            with contextlib.suppress(AttributeError):
                transport.abort()  # type: ignore[attr-defined]
        # Aborted and closed transports end with the next turns of the loop.
        for _ in range(3):
            await asyncio.sleep(0)

    def _listening(self, server: asyncio.AbstractServer) -> None:
        self._server = server
        self.port = server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]


# ---------------------------------------------------------------- SMTP

_COMMAND = re.compile(r"(?:#|do=)([a-z_0-9]+)")


def _split(command: str) -> tuple[str, str]:
    """`name__2` is a command for the first two tries."""
    name, _, times = command.rpartition("__")
    return (name, times) if name else (times, "")


class _Session(aiosmtpd.SMTP):
    """aiosmtpd, with the misbehaviour that it cannot be asked for."""

    opened: set[asyncio.BaseTransport]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.opened.add(transport)
        super().connection_made(transport)

    async def smtp_DATA(self, arg: str) -> None:  # noqa: N802 - the name that aiosmtpd calls
        if self.session.command == "drop_at_data":
            self.transport.abort()
        elif self.session.command == "drop_in_body":
            # The go-ahead, and then nobody reads any more.
            await self.push("354 go ahead")
            self.transport.pause_reading()
            await asyncio.sleep(0.05)
            self.transport.abort()
        else:
            await super().smtp_DATA(arg)


class _Handler:
    def __init__(self, sink: MailSink) -> None:
        self.sink = sink

    async def handle_RCPT(  # noqa: N802
        self, server: Any, session: Any, envelope: Any, address: str, options: Any
    ) -> str:
        session.command = self.sink.command(address)
        match session.command:
            case "rcpt_450":
                return f"450 4.2.1 <{address}> is busy"
            case "rcpt_550":
                return f"550 5.1.1 <{address}> does not exist"
            case "hang_rcpt":
                await asyncio.sleep(3600)
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:  # noqa: N802
        (address,) = envelope.rcpt_tos
        command = session.command
        if command not in {"data_451", "data_552", "drop_after_dot_lost", "hang_after_dot_lost"}:
            self.sink.kept.append(Mail(address, envelope.mail_from, envelope.content))
        if command.startswith("drop_after_dot"):
            server.transport.abort()
        elif command.startswith("hang_after_dot"):
            await asyncio.sleep(3600)
        elif command == "data_451":
            return f"451 4.3.0 try later, <{address}>"
        elif command == "data_552":
            return f"552 5.3.4 too large for <{address}>"
        return "250 2.0.0 taken"


@dataclass(frozen=True)
class Mail:
    to: str
    sender: str
    content: bytes

    @property
    def message(self) -> Message:
        return email.message_from_bytes(self.content, policy=default)


class MailSink(Sink):
    """An SMTP server.  The command is in the address: `name+command@…`, or `name+command__2@…` for the first two tries."""

    def __init__(self, ssl_context: ssl.SSLContext | None = None, **options: Any) -> None:
        super().__init__(ssl_context)
        self.kept: list[Mail] = []
        self.options = options
        # Set: every mail is taken.
        self.healed = False
        self._tries: Counter[str] = Counter()

    def command(self, address: str) -> str:
        name, times = _split(address.partition("@")[0].partition("+")[2])
        self._tries[address] += 1
        return "" if self.healed or (times and self._tries[address] > int(times)) else name

    async def _start(self) -> None:
        def session() -> _Session:
            made = _Session(
                _Handler(self), hostname="sink.example", ident="sink", loop=self._loop, **self.options
            )
            made.opened = self._open
            return made

        listener = socket.create_server(("127.0.0.1", 0), backlog=200)
        # Small, so that a large message does not disappear into buffers before anybody reads it.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        self._listening(
            await asyncio.get_running_loop().create_server(session, sock=listener, ssl=self.ssl_context)
        )


# ---------------------------------------------------------------- HTTP


@dataclass(frozen=True)
class Hit:
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class HttpSink(Sink):
    """An HTTP server that answers as `answer` says.

    `kept` are the requests that had an effect, `hits` all of them.  With an idempotency key or webhook-id, one effect per key.
    """

    def __init__(self, ssl_context: ssl.SSLContext | None = None) -> None:
        super().__init__(ssl_context)
        self.hits: list[Hit] = []
        self.kept: list[Hit] = []
        self.healed = False
        self.reply: dict[str, Any] = {"id": "49a3999c-0ce1-4ea6-ab68-afcd6dc2e794", "ok": True}
        self._keys: set[str] = set()
        self._tries: Counter[str] = Counter()

    @property
    def url(self) -> str:
        return f"{'https' if self.ssl_context else 'http'}://127.0.0.1:{self.port}"

    async def _start(self) -> None:
        self._listening(await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self.ssl_context))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer.transport)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            path = head[0].split(" ")[1]
            headers = {
                name.lower(): value.strip()
                for name, _, value in (line.partition(":") for line in head[1:] if line)
            }
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            await self._answer(Hit(path, headers, body), writer)
        writer.close()

    async def _answer(self, hit: Hit, writer: asyncio.StreamWriter) -> None:
        self.hits.append(hit)
        found = _COMMAND.search(hit.path + hit.body.decode("utf-8", "replace"))
        name, times = _split(found.group(1) if found else "")
        key = (
            hit.headers.get("idempotency-key") or hit.headers.get("webhook-id") or hit.body.decode("latin-1")
        )
        self._tries[key] += 1
        if self.healed or (times and self._tries[key] > int(times)):
            name = ""
        match name:
            case "drop":
                writer.transport.abort()
            case "drop_after":
                self._keep(hit)
                writer.transport.abort()
            case "hang":
                await asyncio.sleep(3600)
            case "hang_after":
                self._keep(hit)
                await asyncio.sleep(3600)
            case "drip":
                while True:
                    writer.write(b"H")
                    await writer.drain()
                    await asyncio.sleep(0.02)
            case "huge":
                self._keep(hit)
                self._write(writer, 200, b"x" * 10_000_000)
            case "redirect":
                self._write(writer, 302, b"", f"Location: {self.url}/elsewhere\r\n")
            case "s429":
                self._write(writer, 429, hit.body, "Retry-After: 120\r\n")
            case "s429_date":
                self._write(writer, 429, hit.body, "Retry-After: Fri, 31 Dec 2100 23:59:59 GMT\r\n")
            case "r429":
                self._write(writer, 429, json.dumps(self.reply).encode())
            case _ if name.startswith("s") and name[1:].isdecimal():
                # Errors echo what was sent, as some servers do.
                self._write(writer, int(name[1:]), hit.body + hit.path.encode())
            case _:
                self._keep(hit)
                self._write(writer, 200, json.dumps(self.reply).encode())
        with contextlib.suppress(ConnectionError):
            await writer.drain()

    def _keep(self, hit: Hit) -> None:
        key = hit.headers.get("idempotency-key") or hit.headers.get("webhook-id")
        if key is None or key not in self._keys:
            self.kept.append(hit)
        if key is not None:
            self._keys.add(key)

    def _write(self, writer: asyncio.StreamWriter, status: int, body: bytes, more: str = "") -> None:
        writer.write(f"HTTP/1.1 {status} X\r\n{more}Content-Length: {len(body)}\r\n\r\n".encode() + body)
