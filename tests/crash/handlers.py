"""The application that crash tests run: every handler leaves marks outside the database."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import psycopg

from onceward import Onceward, Snooze
from onceward.errors import LeaseLost, from_database
from onceward.worker import Job
from tests.crash import poison
from tests.crash.ledger import Ledger

app = Onceward()
EFFECT = "insert into public.effect (token, job_id, epoch) values (%s, %s, %s)"
COMPLETE = "select onceward.complete(%s, %s)"
BOTH = "select public.effect_and_end(%s, %s, %s)"
# Nothing is prepared: a pooler may be in between, as the guide for production says of connections of one's own.
CONNECTING: dict[str, Any] = {"autocommit": True, "connect_timeout": 5, "prepare_threshold": None}


class _Here:
    """What this process knows of itself; set once after the fork."""

    life = 0
    dsn = ""
    # The port where outside effects go.
    sink = 0
    # By how many nanoseconds its clock is wrong.
    skew = 0
    ledger: Ledger | None = None
    notes: Ledger | None = None
    local = threading.local()
    idle: ClassVar[list[psycopg.AsyncConnection]] = []


def configure(*, folder: Path, life: int, dsn: str, sink: int, skew: int) -> None:
    _Here.life, _Here.dsn, _Here.sink, _Here.skew = life, dsn, sink, skew * 1_000_000_000
    _Here.ledger = Ledger(folder / f"effects-{life}.log")
    _Here.notes = Ledger(folder / f"notes-{life}.txt")


def mark(kind: str, job: Job, word: str) -> None:
    assert _Here.ledger is not None
    # The ledger has the right time, whatever this process believes.
    wall = time.time_ns() - _Here.skew
    _Here.ledger.write(kind, job.id, job.epoch, _Here.life, time.monotonic_ns(), wall, word)


def note(*words: object) -> None:
    """What a handler has done, in a file that the checker of its own fault reads."""
    assert _Here.notes is not None
    _Here.notes.write(*words)


def tell_sink(*words: object) -> None:
    """An outside effect: over when the sink says that it has heard it."""
    with socket.create_connection(("127.0.0.1", _Here.sink), 30) as outside:
        outside.sendall((" ".join(map(str, words)) + "\n").encode())
        if outside.recv(16) != b"heard\n":
            raise ConnectionError("the sink did not answer")


class _Attempt:
    how = "ok"


@contextlib.contextmanager
def attempt(job: Job, token: str) -> Iterator[_Attempt]:
    """Begin and end marks; the end is on record before the worker hears of it."""
    mark("begin", job, token)
    here = _Attempt()
    try:
        yield here
    except asyncio.CancelledError:
        here.how = "cancelled"
        raise
    except BaseException:
        here.how = "failed"
        raise
    finally:
        mark("end", job, here.how)


class Trouble(Exception):
    """What handlers raise on purpose."""


@app.task(name="work")
async def work(token: str, job: Job, ms: int = 0, mode: str = "plain") -> Snooze | None:
    with attempt(job, token) as here:
        await asyncio.sleep(ms / 1000)
        if mode == "tx":
            await _effect(job, token)
        return _odd_end(job, mode, here)


@app.task(name="work_sync")
def work_sync(token: str, job: Job, ms: int = 0, mode: str = "plain") -> Snooze | None:
    """The same in a thread.  It looks whether it was told to stop, as a sync handler should."""
    with attempt(job, token) as here:
        until = time.monotonic() + ms / 1000
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(left, 0.02))
            if job.cancelled:
                raise Trouble("told to stop")
        if mode == "tx":
            _effect_sync(job, token)
        return _odd_end(job, mode, here)


@app.task(name="stubborn")
def stubborn(token: str, job: Job, ms: int = 0, mode: str = "plain") -> None:
    """Never looks whether it may still run: what makes a zombie dangerous."""
    with attempt(job, token):
        time.sleep(ms / 1000)
        if mode == "tx":
            _effect_sync(job, token)


@app.task(name="clinging")
async def clinging(token: str, job: Job, ms: int = 0, mode: str = "plain") -> None:
    """Does not let itself be cancelled."""
    with attempt(job, token):
        until = time.monotonic() + ms / 1000
        while (left := until - time.monotonic()) > 0:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(left)


class Unchecked(Snooze):
    """As from a worker that knows less of the rules than the database."""

    def check(self) -> None:
        """Let everything pass."""


@app.task(name="overlong")
async def overlong(token: str, job: Job, ms: int = 0, mode: str = "plain") -> Snooze:
    """Wants to be put off for longer than the engine allows."""
    with attempt(job, token) as here:
        here.how = "snoozed"
        return Unchecked(timedelta(days=20 * 365))


@app.task(name="hog")
async def hog(token: str, job: Job, ms: int = 0, mode: str = "plain") -> None:
    """Keeps the event loop to itself."""
    with attempt(job, token):
        _burn(ms)


@app.task(name="hog_sync")
def hog_sync(token: str, job: Job, ms: int = 0, mode: str = "plain") -> None:
    """Keeps the interpreter's lock busy from a thread."""
    with attempt(job, token):
        _burn(ms)


@app.task(name="poisoned")
async def poisoned(case: int, seed: int, value: Any = None) -> Any:
    return _poison(case, seed, value)


@app.task(name="poisoned_sync")
def poisoned_sync(case: int, seed: int, value: Any = None) -> Any:
    return _poison(case, seed, value)


@app.task(name="poisoned_process", executor="process")
def poisoned_process(case: int, seed: int, value: Any = None) -> Any:
    return _poison(case, seed, value)


def _poison(case: int, seed: int, value: Any) -> Any:
    """Return or raise what the case says, or send back what it was given."""
    rng = poison.draw(seed, case)
    match poison.where(case):
        case "result":
            return poison.value(rng, objects=True)
        case "error":
            raise poison.error(rng)
        case _:
            return {"echo": value}


def _burn(ms: int) -> None:
    until = time.monotonic() + ms / 1000
    while time.monotonic() < until:
        sum(range(200))


def _odd_end(job: Job, mode: str, here: _Attempt) -> Snooze | None:
    if mode == "poison" or (mode == "flaky" and job.attempt == 1):
        raise Trouble(mode)
    if mode == "snooze" and job.epoch == 1:
        here.how = "snoozed"
        return Snooze(timedelta(milliseconds=10))
    return None


# ---------------------------------------------------------------- effects inside the engine's transaction


async def _effect(job: Job, token: str) -> None:
    """The effect and the end of the job are one transaction."""
    conn = _Here.idle.pop() if _Here.idle else None
    mark("tx", job, "try")
    try:
        if conn is None or conn.closed:
            conn = await psycopg.AsyncConnection.connect(_Here.dsn, **CONNECTING)
        async with asyncio.timeout(10):
            await conn.execute("begin")
            await conn.execute(EFFECT, [token, job.id, job.epoch])
            await conn.execute(COMPLETE, [job.id, job.epoch])
            await conn.execute("commit")
    except BaseException as error:
        if conn is not None:
            with contextlib.suppress(Exception):
                await conn.close()
        _told(job, error)
        raise
    mark("tx", job, "ok")
    _Here.idle.append(conn)


def _effect_sync(job: Job, token: str) -> None:
    """The same in one statement: a process that is stopped leaves no transaction open, whose locks others respect."""
    conn = getattr(_Here.local, "conn", None)
    mark("tx", job, "try")
    try:
        if conn is None or conn.closed:
            conn = _Here.local.conn = psycopg.connect(_Here.dsn, **CONNECTING)
        conn.execute(BOTH, [token, job.id, job.epoch])
    except BaseException as error:
        if conn is not None:
            conn.close()
        _told(job, error)
        raise
    mark("tx", job, "ok")


def _told(job: Job, error: BaseException) -> None:
    mark("tx", job, "refused" if isinstance(from_database(error), LeaseLost) else "unknown")
