"""Clients that produce work and write down what they asked for and what they were told."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg

from onceward import Client, JobRef, Retry
from onceward.errors import is_connection_trouble
from tests.crash.arena import Arena
from tests.crash.ledger import ClientLedger
from tests.crash.waiting import PATIENCE, Hang

# Killed workers use up attempts: here, no job may run out of them.
ATTEMPTS = 1000
PLACES = 2
RETRY = Retry(base=timedelta(milliseconds=50), factor=1, jitter=False)


@dataclass(frozen=True, slots=True)
class Work:
    """What one job does."""

    task: str = "work"
    ms: int = 0
    mode: str = "plain"
    delay_ms: int = 0
    # A concurrency key, with room for PLACES jobs at once.
    place: str | None = None


def mixed(rng: random.Random, *, ms: int = 40) -> Work:
    """The mix of most faults: async and sync, transactional, failing, snoozing, delayed, with a concurrency key."""
    task = "work_sync" if rng.random() < 0.25 else "work"
    mode = rng.choices(["plain", "tx", "flaky", "snooze"], [60, 30, 5, 5])[0]
    delay = rng.randrange(50, 800) if rng.random() < 0.05 else 0
    place = f"place-{rng.randrange(20)}" if rng.random() < 0.1 else None
    return Work(task, rng.randrange(ms + 1), mode, delay, place)


class Producer(threading.Thread):
    """Enqueues `count` jobs through its own client; keyed calls are repeated until they are answered."""

    def __init__(
        self,
        arena: Arena,
        name: str,
        count: int,
        *,
        dsn: str | None = None,
        work: Callable[[random.Random], Work] = mixed,
        batch: int = 20,
        backlog: int = 0,
    ) -> None:
        super().__init__(name=f"producer-{name}", daemon=True)
        self._arena = arena
        self._dsn = dsn or arena.dsn
        self._count = count
        self._work = work
        self._batch = batch
        # Wait while more than this many jobs are unfinished; 0: never.
        self._backlog = backlog
        # After so many jobs, there may be no room any more.
        self._look_again_at = 0
        self._random = random.Random(f"{arena.seed}/{name}")
        self._ledger = ClientLedger(arena.folder, name)
        self._sent = 0
        self._stopping = threading.Event()
        self.acknowledged = 0
        self.unknown = 0
        self.rolled_back = 0
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            with Client(self._dsn) as client:
                while self._sent < self._count and not self._stopping.is_set():
                    if self._backlog:
                        self._wait_for_room()
                    self._one_call(client)
        except BaseException as error:
            self.error = error
        finally:
            self._ledger.close()

    def stop(self) -> None:
        """Send no more."""
        self._stopping.set()

    def finish(self) -> list[str]:
        """Wait for the end; returns what went wrong."""
        self.join(PATIENCE * 10)
        if self.is_alive():
            return [f"{self.name} did not end"]
        return [] if self.error is None else [f"{self.name}: {self.error!r}"]

    def _wait_for_room(self) -> None:
        # Not before every call: to count what waits takes longer than to enqueue.
        if self._sent < self._look_again_at:
            return
        while self._arena.live() > self._backlog and not self._stopping.is_set():
            time.sleep(0.1)
        self._look_again_at = self._sent + self._backlog // 20

    def _tokens(self, count: int) -> list[str]:
        first = self._sent
        self._sent += count
        return [f"{self._ledger.name}-{first + i}" for i in range(count)]

    def _one_call(self, client: Client) -> None:
        style = self._random.choices(["many", "keyed", "plain", "own"], [70, 15, 5, 10])[0]
        work = self._work(self._random)
        options = _options(work)
        due = _due_ns(options)
        if style == "many":
            tokens = self._tokens(min(self._batch, self._count - self._sent))
            payloads = [_payload(work, token) for token in tokens]
            self._insist(
                tokens,
                due,
                lambda: client.enqueue_many(
                    work.task, payloads, keys=tokens, key_window="forever", **options
                ),
            )
            return
        (token,) = self._tokens(1)
        payload = _payload(work, token)
        if style == "keyed":
            self._insist(
                [token],
                due,
                lambda: [client.enqueue(work.task, payload, key=token, key_window="forever", **options)],
            )
        elif style == "plain":
            with self._told([token], due) as answer:
                answer.append(client.enqueue(work.task, payload, **options))
        else:
            self._in_own_transaction(
                client,
                token,
                due,
                lambda conn: client.enqueue(work.task, payload, connection=conn, **options),
            )

    def _insist(self, tokens: list[str], due: int, call: Callable[[], list[JobRef]]) -> None:
        """Repeat until there is an answer: with a key that is safe, however often the reply was lost."""
        deadline = time.monotonic() + PATIENCE
        while True:
            with self._told(tokens, due) as answer:
                answer.extend(call())
            if answer:
                return
            if time.monotonic() > deadline:
                raise Hang(f"{self.name} got no answer for {PATIENCE:g} s")
            time.sleep(0.02)

    @contextmanager
    def _told(self, tokens: list[str], due: int) -> Iterator[list[JobRef]]:
        op = self._ledger.invoke(tokens, due_ns=due)
        answer: list[JobRef] = []
        try:
            yield answer
        except Exception as error:
            if not is_connection_trouble(error):
                self._ledger.fail(op, repr(error))
                raise
            self.unknown += 1
            self._ledger.unknown(op, type(error).__name__)
            answer.clear()
        else:
            self._ledger.ok(op, ((ref.id, ref.created) for ref in answer))
            self.acknowledged += len(answer)

    def _in_own_transaction(
        self, client: Client, token: str, due: int, call: Callable[[Any], JobRef]
    ) -> None:
        """On a connection of the caller's own; now and then it rolls back, and then there must be no job."""
        op = self._ledger.invoke([token], due_ns=due)
        committing = False
        try:
            with psycopg.connect(self._dsn, connect_timeout=10) as conn:
                ref = call(conn)
                if self._random.random() < 0.2:
                    conn.rollback()
                    self.rolled_back += 1
                    self._ledger.fail(op, "rolled back")
                    return
                committing = True
                conn.commit()
        except psycopg.Error as error:
            # Nothing is in doubt before the commit was sent.
            if committing:
                self.unknown += 1
                self._ledger.unknown(op, type(error).__name__)
            else:
                self._ledger.fail(op, type(error).__name__)
        else:
            self._ledger.ok(op, [(ref.id, ref.created)])
            self.acknowledged += 1


def produce(
    arena: Arena, jobs: int, *, producers: int = 2, prefix: str = "p", **options: Any
) -> list[Producer]:
    """Start producers that enqueue this many jobs between them."""
    started = []
    for index in range(producers):
        share = jobs // producers + (index < jobs % producers)
        started.append(Producer(arena, f"{prefix}{index}", share, **options))
        started[-1].start()
    return started


def finish(producers: list[Producer]) -> list[str]:
    return [problem for producer in producers for problem in producer.finish()]


def told(producers: list[Producer]) -> dict[str, int]:
    """What the producers heard, together."""
    return {
        name: sum(getattr(producer, name) for producer in producers)
        for name in ("acknowledged", "unknown", "rolled_back")
    }


def _payload(work: Work, token: str) -> dict[str, Any]:
    return {"token": token, "ms": work.ms, "mode": work.mode}


def _options(work: Work) -> dict[str, Any]:
    options: dict[str, Any] = {"max_attempts": ATTEMPTS, "retry": RETRY}
    if work.delay_ms:
        options["run_at"] = datetime.now(UTC) + timedelta(milliseconds=work.delay_ms)
    if work.place:
        options |= {"concurrency_key": work.place, "concurrency_limit": PLACES}
    return options


def _due_ns(options: dict[str, Any]) -> int:
    moment = options.get("run_at")
    return 0 if moment is None else int(moment.timestamp() * 1_000_000) * 1000
