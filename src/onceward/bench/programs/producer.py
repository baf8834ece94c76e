"""A producer process: carries out one command per line of standard input, answers with one line of JSON."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from abc import ABC, abstractmethod
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

WARM_UP = 30


@dataclass(frozen=True, slots=True)
class Batch:
    """The jobs of one bulk call."""

    first: int
    count: int
    # Bytes of filling in each payload.
    filling: int = 0
    # With an idempotency key for every job.
    keyed: bool = False
    # Due in a day.
    later: bool = False
    # A concurrency key for the whole batch, with the limit 1.
    concurrency_key: str | None = None
    # Or so many of them, which the jobs have in turn over all batches, with the limit 1.
    keys_in_turn: int = 0


class Producer(ABC):
    """One system's way to enqueue."""

    @abstractmethod
    async def open(self, dsn: str) -> None: ...

    @abstractmethod
    async def close(self) -> None: ...

    @abstractmethod
    async def one(self, sent: int) -> None:
        """Enqueue one job whose payload is `sent`; return when that is durable."""

    @abstractmethod
    async def many(self, batch: Batch) -> None: ...

    @abstractmethod
    def transaction(self) -> AbstractAsyncContextManager[object]:
        """A transaction of the caller's own, in which `one`, `many` and `write` take part."""

    @abstractmethod
    async def write(self) -> None:
        """The caller's own write: one row."""

    @property
    def statements(self) -> int | None:
        """Statements sent on the caller's connection, where that can be counted."""
        return None


async def serve(producer: Producer, dsn: str) -> None:
    await producer.open(dsn)
    print("{}", flush=True)
    try:
        # Blocking on purpose: between two commands, nothing may happen here.
        for line in sys.stdin:
            command: dict[str, Any] = json.loads(line)
            verb = command.pop("verb")
            print(json.dumps(await VERBS[verb](producer, **command)), flush=True)
    finally:
        await producer.close()


async def single(producer: Producer, seconds: float) -> dict[str, object]:
    """One job after the other, each awaited."""
    for _ in range(WARM_UP):
        await producer.one(0)
    count = 0
    began = time.monotonic()
    while (took := time.monotonic() - began) < seconds:
        await producer.one(0)
        count += 1
    return {"count": count, "rate": count / took}


async def bulk(producer: Producer, total: int, chunk: int, **options: Any) -> dict[str, object]:
    # So many keys one after another: a batch has one, and the next batch the next.
    concurrency_keys = options.pop("concurrency_keys", 0)
    began = time.monotonic()
    for first in range(0, total, chunk):
        key = f"key {first // chunk % concurrency_keys}" if concurrency_keys else None
        await producer.many(Batch(first, min(chunk, total - first), concurrency_key=key, **options))
    return {"count": total, "rate": total / (time.monotonic() - began)}


async def burst(producer: Producer, total: int, chunk: int) -> dict[str, object]:
    """All at once: workers see nothing before the commit."""
    async with producer.transaction():
        for first in range(0, total, chunk):
            await producer.many(Batch(first, min(chunk, total - first)))
    return {}


async def transaction(producer: Producer, count: int) -> dict[str, object]:
    """The caller's transaction with and without an enqueue in it, in turn.  Milliseconds, medians."""
    times: dict[bool, list[int]] = {False: [], True: []}
    statements: dict[bool, int | None] = {}
    for number in range(-WARM_UP, count):
        for enqueues in (False, True):
            before = producer.statements
            began = time.monotonic_ns()
            async with producer.transaction():
                await producer.write()
                if enqueues:
                    await producer.one(0)
            if number >= 0:
                times[enqueues].append(time.monotonic_ns() - began)
            after = producer.statements
            statements[enqueues] = None if before is None or after is None else after - before
    without, with_enqueue = (sorted(times[key])[count // 2] / 1e6 for key in (False, True))
    plain, full = statements[False], statements[True]
    return {
        "without_ms": without,
        "with_ms": with_enqueue,
        "statements": None if plain is None or full is None else full - plain,
    }


async def paced(producer: Producer, count: int, gap: float) -> dict[str, object]:
    """One job every `gap` seconds, each with the time at which its call began."""
    due = time.monotonic()
    calls: list[int] = []
    for number in range(-10, count):
        began = time.monotonic_ns()
        await producer.one(began if number >= 0 else 0)
        calls.append(time.monotonic_ns() - began)
        due += gap
        await asyncio.sleep(max(0.0, due - time.monotonic()))
    return {"call_ms": sorted(calls[10:])[count // 2] / 1e6}


VERBS: dict[str, Any] = {
    "single": single,
    "bulk": bulk,
    "burst": burst,
    "transaction": transaction,
    "paced": paced,
}
