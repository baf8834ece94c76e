"""A TCP proxy before PostgreSQL that understands enough of its protocol to cut exactly where it hurts.

It knows which engine function a client calls, forwards the call, waits until the server says that the transaction is
over, and then swallows the answer and closes the connection: the client cannot know that its commit went through.
It can also close first and forward later, hang without closing, reset, slow everything down, and strike at the n-th call
of a kind.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar

T = TypeVar("T")

CANCEL_REQUEST = 80877102
FUNCTION = re.compile(rb"\b(?:onceward|public)\.(\w+)\(")
HEADER = struct.Struct("!cI")
# Longer than any poll and shorter than the first repetition of adoption: the old call commits after the new one.
LATE_SECONDS = (0.3, 2.0)


@dataclass(slots=True)
class Cut:
    """Cut the replies to calls of one kind: each with this probability, until `left` of them are cut."""

    kind: str
    left: int
    rate: float = 1.0
    late: bool = False


@dataclass(slots=True)
class Strike:
    """Do something at the n-th call of one kind: before it reaches the server, or once the server has answered it."""

    kind: str
    at: int
    after: bool
    blow: Callable[[], None]
    struck: bool = False


@dataclass(eq=False, slots=True)
class _Link:
    """One connection through the proxy."""

    client: tuple[asyncio.StreamReader, asyncio.StreamWriter]
    server: tuple[asyncio.StreamReader, asyncio.StreamWriter]
    hung: asyncio.Event = field(default_factory=asyncio.Event)
    statements: dict[bytes, str] = field(default_factory=dict)
    kind: str = ""
    swallow: Cut | None = None
    struck: bool = False

    def close(self, *, reset: bool = False) -> None:
        for _, writer in (self.client, self.server):
            if reset and (sock := writer.get_extra_info("socket")) is not None:
                with contextlib.suppress(OSError):
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()


class Proxy:
    """Runs in a thread of its own until closed.  All methods may be called from any thread."""

    def __init__(self, port: int, seed: int, *, host: str = "127.0.0.1") -> None:
        self._target = (host, port)
        self._random = random.Random(seed)
        self._links: set[_Link] = set()
        self._cuts: list[Cut] = []
        self._tasks: set[asyncio.Task[None]] = set()
        # By kind: replies cut after their commit, calls forwarded after their client was gone, all calls seen.
        self.cut_replies: Counter[str] = Counter()
        self.late_calls: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()
        self.latency = 0.0
        # Set before the first connection.
        self.strike: Strike | None = None
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)
        self._thread.start()
        assert self._ready.wait(10), "the proxy did not start"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()

    def dsn(self, database: str) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}?sslmode=disable&gssencmode=disable"

    # ------------------------------------------------------------ commands

    def cut(self, kind: str, count: int, *, rate: float = 1.0, late: bool = False) -> Cut:
        rule = Cut(kind, count, rate, late)
        self.ask(self._set_rules([*self._cuts, rule]))
        return rule

    def forget_cuts(self) -> None:
        self.ask(self._set_rules([]))

    def hang(self) -> int:
        """Present connections pass on nothing any more, but stay open; new ones work.  Returns how many."""
        return self.ask(self._hang())

    def reset(self, share: float = 1.0) -> int:
        """Reset a share of the present connections.  Returns how many."""
        return self.ask(self._reset(share))

    def close(self) -> None:
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(10)

    def ask(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop of the proxy."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    @property
    def cuts_left(self) -> int:
        return sum(rule.left for rule in self._cuts)

    async def _set_rules(self, rules: list[Cut]) -> None:
        self._cuts = rules

    async def _hang(self) -> int:
        for link in self._links:
            link.hung.set()
        return len(self._links)

    async def _reset(self, share: float) -> int:
        chosen = [link for link in self._links if self._random.random() < share]
        for link in chosen:
            link.close(reset=True)
        return len(chosen)

    # ------------------------------------------------------------ plumbing

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._never = asyncio.Event()
        server = self._loop.run_until_complete(asyncio.start_server(self._accept, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        self._loop.run_forever()
        server.close()
        for link in list(self._links):
            link.close()
        waiting = asyncio.all_tasks(self._loop)
        for task in waiting:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*waiting, return_exceptions=True))
        self._loop.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            server = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            return
        link = _Link((reader, writer), server)
        self._links.add(link)
        me = asyncio.current_task()
        assert me is not None
        # The loop itself keeps no reference to a task that waits.
        self._tasks.add(me)
        pumps = [
            asyncio.ensure_future(self._from_client(link)),
            asyncio.ensure_future(self._from_server(link)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            return  # The proxy closes.
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            link.close()
            self._links.discard(link)
            self._tasks.discard(me)

    async def _from_client(self, link: _Link) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            reader, writer = link.client[0], link.server[1]
            length = struct.unpack("!I", await reader.readexactly(4))[0]
            body = await reader.readexactly(length - 4)
            writer.write(struct.pack("!I", length) + body)
            if struct.unpack("!I", body[:4])[0] == CANCEL_REQUEST:
                await writer.drain()
                return
            batch = bytearray()
            while True:
                kind, length = HEADER.unpack(await reader.readexactly(5))
                body = await reader.readexactly(length - 4)
                batch += HEADER.pack(kind, length) + body
                self._read(link, kind, body)
                # A batch ends with Sync, or is one simple query; password and farewell stand alone.
                if kind in b"SQXp":
                    await self._forward(link, bytes(batch), is_call=kind in b"SQ")
                    batch.clear()

    def _read(self, link: _Link, kind: bytes, body: bytes) -> None:
        """Remember what the batch calls."""
        if kind == b"P":
            name, text = body.split(b"\0", 2)[:2]
            link.kind = link.statements[name] = _kind_of(text)
        elif kind == b"B":
            link.kind = link.statements.get(body.split(b"\0", 2)[1], link.kind)
        elif kind == b"Q":
            link.kind = _kind_of(body)

    async def _forward(self, link: _Link, batch: bytes, *, is_call: bool) -> None:
        if link.hung.is_set():
            # Until the client gives up.
            while await link.client[0].read(65536):
                pass
            raise ConnectionAbortedError
        if self.latency:
            await asyncio.sleep(self.latency * self._random.uniform(0.5, 1.5))
        rule = self._rule_for(link.kind) if is_call else None
        if is_call and self.count(link.kind):
            assert self.strike is not None
            if not self.strike.after:
                self.strike.blow()
                raise ConnectionAbortedError
            link.struck = True
        if rule is not None and rule.late:
            self._later(link, batch, rule)
            raise ConnectionAbortedError
        link.swallow = rule
        if link.server[1].is_closing():
            raise ConnectionAbortedError
        link.server[1].write(batch)
        await link.server[1].drain()

    def count(self, kind: str) -> bool:
        """Count a call, also one that takes another way (see sink.py).  Whether this is the one to strike at."""
        self.calls[kind] += 1
        strike = self.strike
        if strike is None or strike.struck or strike.kind != kind or self.calls[kind] != strike.at:
            return False
        strike.struck = True
        return True

    def _rule_for(self, kind: str) -> Cut | None:
        for rule in self._cuts:
            if rule.kind == kind and rule.left > 0 and self._random.random() < rule.rate:
                # Taken back when the server answers with an error: then nothing was committed.
                rule.left -= 1
                return rule
        return None

    def _later(self, link: _Link, batch: bytes, rule: Cut) -> None:
        """The client is told that the connection broke; the call arrives and commits all the same."""

        async def forward() -> None:
            reader, writer = await asyncio.open_connection(sock=_duplicate(link.server[1]))
            try:
                await asyncio.sleep(self._random.uniform(*LATE_SECONDS))
                writer.write(batch)
                error = await _until_ready(reader)
            except (OSError, asyncio.IncompleteReadError):
                error = True
            finally:
                writer.transport.abort()
            if error:
                rule.left += 1
            else:
                self.late_calls[rule.kind] += 1

        task = self._loop.create_task(forward())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _from_server(self, link: _Link) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            reader, writer = link.server[0], link.client[1]
            answer = bytearray()
            failed = False
            while True:
                kind, length = HEADER.unpack(await reader.readexactly(5))
                message = HEADER.pack(kind, length) + await reader.readexactly(length - 4)
                if link.hung.is_set():
                    await self._never.wait()
                if writer.is_closing():
                    return
                if link.struck:
                    if kind == b"Z":
                        assert self.strike is not None
                        self.strike.blow()
                        return
                    continue
                if link.swallow is None:
                    writer.write(message)
                    if writer.transport.get_write_buffer_size() > 65536:
                        await writer.drain()
                    continue
                answer += message
                failed = failed or kind == b"E"
                if kind == b"Z":
                    rule, link.swallow = link.swallow, None
                    if not failed:
                        self.cut_replies[rule.kind] += 1
                        return
                    rule.left += 1
                    writer.write(bytes(answer))
                    answer.clear()
                    failed = False


def _kind_of(statement: bytes) -> str:
    called = FUNCTION.search(statement)
    if called:
        return called.group(1).decode()
    words = statement.strip(b"\0 ").split(None, 1)
    return words[0].decode(errors="replace").lower() if words else ""


def _duplicate(writer: asyncio.StreamWriter) -> socket.socket:
    """The connection to the server under a descriptor of its own, which outlives the link."""
    return socket.socket(fileno=socket.dup(writer.get_extra_info("socket").fileno()))


async def _until_ready(reader: asyncio.StreamReader) -> bool:
    """Read up to ReadyForQuery.  Returns whether there was an error."""
    failed = False
    while True:
        kind, length = HEADER.unpack(await reader.readexactly(5))
        await reader.readexactly(length - 4)
        failed = failed or kind == b"E"
        if kind == b"Z":
            return failed
