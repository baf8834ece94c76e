"""Calls on connections of our own, straight over libpq: no cursor, no new look at the placeholders, no second cache.

What a driver does for anybody costs a third of an enqueue.  Our calls are few and always the same, and nobody else uses
these connections, so each is prepared once and then sent as a name and its values.  The driver still connects, converts
values, holds transactions, and knows what an error of the server is.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import select
from collections.abc import Generator, Sequence
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import psycopg
from psycopg import pq
from psycopg.adapt import PyFormat, Transformer
from psycopg.errors import error_from_result

from onceward.calls import Call, Row
from onceward.contrib import numbered_placeholders

# A connection keeps so many statements; what comes after them is sent in full each time.
MOST_PREPARED = 100
# How long an interrupted call may take to be cancelled, in seconds.
CANCEL_TIMEOUT = 5.0

# The text of a statement, and the types of its values.
_Key: TypeAlias = tuple[str, tuple[int, ...]]
# Waits for the socket: to be readable, or (True) writable as well.
Talk: TypeAlias = Generator[bool, None, "Sequence[Row]"]


class Wire:
    """What has been prepared on one connection, and how a call goes over it."""

    def __init__(self, connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
        self.pgconn = connection.pgconn
        self._transformer = Transformer(connection)
        self._prepare_after = connection.prepare_threshold
        self._encoding = connection.info.encoding
        # How often a statement was sent, by its text and the types of its values, and the names of those prepared.
        self._sent: dict[_Key, int] = {}
        self._names: dict[_Key, bytes] = {}
        # The call that lasts, as it is sent.
        self._lasting: tuple[Call[Any], _Key, Sequence[Any], Sequence[pq.Format]] | None = None

    def talk(self, call: Call[Any]) -> Talk:
        if call.lasts and self._lasting is not None and self._lasting[0] is call:
            key, values, formats = self._lasting[1:]
        else:
            key, values, formats = self._converted(call)
            if call.lasts:
                self._lasting = call, key, values, formats
        sql, types = key
        name = self._names.get(key)
        if name is None and self._is_frequent(key):
            name = _name(key)
            self.pgconn.send_prepare(name, sql.encode(), types)
            yield from self._answer()
            self._names[key] = name
        if name is None:
            self.pgconn.send_query_params(sql.encode(), values, types, formats, pq.Format.BINARY)
        else:
            self.pgconn.send_query_prepared(name, values, formats, pq.Format.BINARY)
        result = yield from self._answer()
        transformer = self._transformer
        transformer.set_pgresult(result)
        return transformer.load_rows(0, result.ntuples, tuple)

    def _converted(self, call: Call[Any]) -> tuple[_Key, Sequence[Any], Sequence[pq.Format]]:
        sql, names = numbered_placeholders(call.sql)
        if not names:
            return (sql, ()), (), ()
        transformer = self._transformer
        values = transformer.dump_sequence(
            [call.params[name] for name in names], [PyFormat.AUTO] * len(names)
        )
        return (sql, transformer.types or ()), values, transformer.formats or ()

    def _is_frequent(self, key: _Key) -> bool:
        """A statement that is sent once needs no second round trip for its name."""
        if self._prepare_after is None or len(self._names) >= MOST_PREPARED:
            return False
        if len(self._sent) >= MOST_PREPARED:
            self._sent.clear()
        times = self._sent[key] = self._sent.get(key, 0) + 1
        return times > self._prepare_after

    def _answer(self) -> Generator[bool, None, pq.abc.PGresult]:
        """The result of what was sent, or the server's error."""
        pgconn = self.pgconn
        while pgconn.flush():
            yield True
            # A server that cannot get rid of its answer reads no further.
            pgconn.consume_input()
        last: pq.abc.PGresult | None = None
        while True:
            try:
                while pgconn.is_busy():
                    yield False
                    pgconn.consume_input()
            except psycopg.OperationalError:
                # Why the server ends the connection has come before the end.  An answer without an end is none.
                if last is None or last.status != pq.ExecStatus.FATAL_ERROR:
                    raise
                break
            result = pgconn.get_result()
            if result is None:
                break
            last = result
        if last is None:
            raise psycopg.OperationalError("the connection ended without an answer")
        if last.status not in {pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK}:
            raise error_from_result(last, encoding=self._encoding)
        return last


def _name(key: _Key) -> bytes:
    """The same for the same statement only: behind a transaction pooler, a call may meet what another client has prepared."""
    sql, types = key
    return b"onceward_" + hashlib.sha256(f"{types} {sql}".encode()).hexdigest()[:24].encode()


class WiredConnection(psycopg.Connection[tuple[Any, ...]]):
    """A connection for our own calls.  One caller at a time."""

    @cached_property
    def wire(self) -> Wire:
        return Wire(self)

    @cached_property
    def poll(self) -> select.poll:
        poll = select.poll()
        poll.register(self.fileno(), select.POLLIN)
        return poll


class WiredAsyncConnection(psycopg.AsyncConnection[tuple[Any, ...]]):
    """The same for asyncio."""

    # When the pool gave it away, by the clock of the loop.
    lent_at = 0.0

    @cached_property
    def wire(self) -> Wire:
        return Wire(self)


def kinds(*, is_async: bool) -> type[Any]:
    """What contrib may hand to `fetch` and `fetch_async`."""
    return WiredAsyncConnection if is_async else WiredConnection


def fetch(connection: WiredConnection, call: Call[Any]) -> Sequence[Row]:
    talk = connection.wire.talk(call)
    try:
        while True:
            try:
                also_writable = next(talk)
            except StopIteration as end:
                rows: Sequence[Row] = end.value
                return rows
            if also_writable:
                select.select([connection], [connection], [])
            else:
                connection.poll.poll()
    except BaseException:
        if is_under_way(connection):
            with contextlib.suppress(psycopg.Error):
                connection.cancel_safe(timeout=CANCEL_TIMEOUT)
            connection.close()
        raise


class Begun(NamedTuple):
    """A call that was sent, and waits for its answer, or (also_writable) to send the rest."""

    talk: Talk
    also_writable: bool


def begin(connection: WiredAsyncConnection, call: Call[Any]) -> Begun:
    """Send a call now; fetch_async, called with this, waits for the answer."""
    talk = connection.wire.talk(call)
    return Begun(talk, next(talk))


async def fetch_async(
    connection: WiredAsyncConnection, call: Call[Any], begun: Begun | None = None
) -> Sequence[Row]:
    loop = asyncio.get_running_loop()
    socket = connection.fileno()
    try:
        talk, also_writable = begun or begin(connection, call)
        while True:
            await _ready(loop, socket, also_writable=also_writable)
            try:
                also_writable = next(talk)
            except StopIteration as end:
                rows: Sequence[Row] = end.value
                return rows
    except BaseException:
        if is_under_way(connection):
            with contextlib.suppress(psycopg.Error):
                await connection.cancel_safe(timeout=CANCEL_TIMEOUT)
            await connection.close()
        raise


async def _ready(loop: asyncio.AbstractEventLoop, socket: int, *, also_writable: bool) -> None:
    ready = loop.create_future()

    def tell() -> None:
        if not ready.done():
            ready.set_result(None)

    loop.add_reader(socket, tell)
    if also_writable:
        loop.add_writer(socket, tell)
    try:
        await ready
    finally:
        loop.remove_reader(socket)
        if also_writable:
            loop.remove_writer(socket)


def is_under_way(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    """Whether the caller gave up in the middle of a call: what comes now would be taken for the next one's answer."""
    return connection.pgconn.transaction_status == pq.TransactionStatus.ACTIVE
