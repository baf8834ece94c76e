"""Clients against each other: one key wanted by many, and batches that overlap in every way."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
from psycopg.types.json import Jsonb

from onceward import Client
from tests.crash.arena import Arena
from tests.crash.ledger import ClientLedger
from tests.crash.verdict import Verdict
from tests.crash.waiting import PATIENCE

ROLLED_BACK = 0.2


def unique(arena: Arena, *, clients: int, keys: int) -> Verdict:
    """Every client wants every key, a fifth of them roll back: one job per key, never none, and one creator."""
    barrier = threading.Barrier(clients)
    errors: list[BaseException] = []

    def race(number: int) -> None:
        ledger = ClientLedger(arena.folder, f"c{number}")
        rng = random.Random(f"{arena.seed}/{number}")
        try:
            with psycopg.connect(arena.dsn) as conn, Client(arena.dsn) as client:
                barrier.wait(PATIENCE)
                for index in range(keys):
                    token = f"key-{index}"
                    op = ledger.invoke([token])
                    window = "forever" if index % 2 else "live"
                    ref = client.enqueue(
                        "work", {"token": token}, key=token, key_window=window, connection=conn
                    )
                    if rng.random() < ROLLED_BACK:
                        conn.rollback()
                        ledger.fail(op, "rolled back")
                    else:
                        conn.commit()
                        ledger.ok(op, [(ref.id, ref.created)])
        except BaseException as error:
            errors.append(error)
            barrier.abort()

    threads = [threading.Thread(target=race, args=[number], daemon=True) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE * 10)
    problems = [repr(error) for error in errors]
    # None of these jobs has run yet, so every key is live, and its job must be there.
    found = arena.value("select count(distinct payload ->> 'token') from onceward.jobs")
    if found != keys:
        problems.append(f"{keys - found} keys have no job")
    arena.spawn(concurrency=50, lease=10.0)
    arena.until_quiet()
    return arena.verdict("unique race", {"clients": clients, "keys": keys}, problems=problems)


# ---------------------------------------------------------------- deadlock hunt

KEYS = [f"key-{number}" for number in range(60)]
PLACES = [f"place-{number}" for number in range(6)]
# What a client may be told when others were faster, or the moment is wrong.  Anything else is a finding.
EXPECTED = {"OW001", "OW006", "OW007", "OW009"}
LIMIT = 2
RETRY = Jsonb({"base": 0.05, "factor": 1})
OVER_LIMIT = """
select count(*) from (select concurrency_key from onceward.job_private
                       where state in ('ready', 'running') and concurrency_key is not null
                       group by concurrency_key having count(*) > %s) as over
"""


class Hunt:
    """What the clients share: worker identities and claims, so that their batches overlap."""

    def __init__(self, arena: Arena, seconds: float) -> None:
        self.arena = arena
        self.until = time.monotonic() + seconds
        self.done: Counter[str] = Counter()
        self.told: Counter[str] = Counter()
        self.problems: list[str] = []
        self.workers: list[UUID] = []
        self.claims: dict[UUID, int] = {}
        self.jobs: list[UUID] = []
        self.committed: set[UUID] = set()

    async def client(self, number: int) -> None:
        rng = random.Random(f"{self.arena.seed}/{number}")
        ops = [
            (self.enqueue_many, 16), (self.enqueue, 8), (self.exchange, 24), (self.fail, 6), (self.snooze, 4),
            (self.cancel, 10), (self.requeue, 8), (self.promote, 10), (self.rescue, 5), (self.release, 3),
            (self.retire, 1), (self.heartbeat, 3), (self.tidy, 4), (self.run_now, 2),
        ]  # fmt: skip
        async with await psycopg.AsyncConnection.connect(self.arena.dsn, autocommit=True) as conn:
            while time.monotonic() < self.until:
                op = rng.choices([op for op, _ in ops], [weight for _, weight in ops])[0]
                try:
                    await op(conn, rng)
                    self.done[op.__name__] += 1
                except psycopg.Error as error:
                    self.told[f"{op.__name__} {error.sqlstate}"] += 1
                    if error.sqlstate not in EXPECTED:
                        self.problems.append(f"{op.__name__}: {error!r}"[:300])
                        if conn.closed:
                            return
                        await conn.rollback()

    async def watch(self) -> None:
        """A key never has more places taken than its limit."""
        async with await psycopg.AsyncConnection.connect(self.arena.dsn, autocommit=True) as conn:
            while time.monotonic() < self.until:
                over = await (await conn.execute(OVER_LIMIT, [LIMIT])).fetchone()
                if over and over[0]:
                    self.problems.append(f"{over[0]} concurrency keys hold more than {LIMIT} places")
                await asyncio.sleep(0.25)

    # ------------------------------------------------------------ producing

    async def enqueue_many(self, conn, rng: random.Random) -> None:
        keys = rng.sample(KEYS, rng.randrange(1, 25))
        async with conn.transaction():
            rows = await self._call(
                conn, "enqueue_many", task="work", payloads=[Jsonb({"token": key}) for key in keys], keys=keys,
                **_place(rng),
                run_at=_in(rng.randrange(1, 300)) if rng.random() < 0.3 else None, max_attempts=3, retry=RETRY,
                expires_at=_in(rng.randrange(400, 2000)) if rng.random() < 0.1 else None,
                key_window=rng.choice(["live", "200 milliseconds"]),
            )  # fmt: skip
            if rng.random() < 0.3:
                await asyncio.sleep(rng.random() * 0.01)
            if rng.random() < 0.2:
                rows = []
                raise psycopg.Rollback
        self._remember(rows)

    async def enqueue(self, conn, rng: random.Random) -> None:
        key = rng.choice([*KEYS, None])
        rows = await self._call(
            conn, "enqueue", task="work", payload=Jsonb({"token": key or "none"}), key=key,
            **_place(rng), max_attempts=3, retry=RETRY,
        )  # fmt: skip
        self._remember(rows)

    # ------------------------------------------------------------ working

    async def exchange(self, conn, rng: random.Random) -> None:
        known = list(self.claims)
        done = rng.sample(known, min(len(known), rng.randrange(12)))
        rows = await self._call(
            conn, "exchange", worker_id=await self._worker(conn, rng), job_ids=done,
            epochs=[self.claims.get(job, 1) for job in done], lanes=["default"], max=rng.randrange(12),
            sleep=rng.random() < 0.5,
        )  # fmt: skip
        # Most are forgotten, some are finished again by others: replies get lost.
        for job in done:
            if rng.random() < 0.7:
                self.claims.pop(job, None)
        for row in rows:
            if row[0] == "claimed":
                self.claims[row[1]] = row[2]

    async def fail(self, conn, rng: random.Random) -> None:
        if job := self._claimed(rng):
            await self._call(
                conn, "fail", job_id=job, epoch=self.claims.pop(job, 1), error_type="E", message="m",
                permanent=rng.random() < 0.3,
            )  # fmt: skip

    async def snooze(self, conn, rng: random.Random) -> None:
        if job := self._claimed(rng):
            await self._call(conn, "snooze", job_id=job, epoch=self.claims.pop(job, 1), delay="1 ms")

    async def release(self, conn, rng: random.Random) -> None:
        await self._call(conn, "release", worker_id=await self._worker(conn, rng))

    async def retire(self, conn, rng: random.Random) -> None:
        worker = await self._worker(conn, rng)
        if len(self.workers) > 2:
            self.workers.remove(worker)
        await self._call(conn, "retire_worker", worker_id=worker)

    async def heartbeat(self, conn, rng: random.Random) -> None:
        await self._call(conn, "heartbeat", worker_id=await self._worker(conn, rng))

    async def promote(self, conn, rng: random.Random) -> None:
        await self._call(conn, "promote", limit=rng.choice([10, 1000]))

    async def rescue(self, conn, rng: random.Random) -> None:
        await self._call(conn, "rescue", limit=rng.choice([10, 500]), thorough=rng.random() < 0.5)

    async def tidy(self, conn, rng: random.Random) -> None:
        await self._call(conn, "tidy")

    # ------------------------------------------------------------ operating

    async def cancel(self, conn, rng: random.Random) -> None:
        if job := self._some_job(rng):
            await self._call(conn, "cancel", job_id=job, reason="hunt")

    async def requeue(self, conn, rng: random.Random) -> None:
        if job := self._some_job(rng):
            await self._call(conn, "requeue", job_id=job)

    async def run_now(self, conn, rng: random.Random) -> None:
        if job := self._some_job(rng):
            await self._call(conn, "run_now", job_id=job)

    # ------------------------------------------------------------ helpers

    async def _call(self, conn, function: str, **arguments: Any) -> list[Any]:
        given = {name: value for name, value in arguments.items() if value is not None}
        names = ", ".join(f"p_{name} => %({name})s" for name in given)
        return await (await conn.execute(f"select * from onceward.{function}({names})", given)).fetchall()

    async def _worker(self, conn, rng: random.Random) -> UUID:
        """Three of four times one that others use too."""
        if len(self.workers) < 4 or rng.random() < 0.02:
            lease = "1 second" if rng.random() < 0.5 else "1 hour"
            rows = await self._call(conn, "register_worker", name="hunter", lease=lease)
            self.workers.append(rows[0][0])
            del self.workers[:-8]
        return rng.choice(self.workers)

    def _claimed(self, rng: random.Random) -> UUID | None:
        return rng.choice(list(self.claims)) if self.claims else None

    def _some_job(self, rng: random.Random) -> UUID | None:
        return rng.choice(self.jobs) if self.jobs else None

    def _remember(self, rows: list[Any]) -> None:
        self.committed.update(row[0] for row in rows)
        self.jobs.extend(row[0] for row in rows)
        del self.jobs[:-400]


def _place(rng: random.Random) -> dict[str, Any]:
    place = rng.choice([*PLACES, None])
    return {} if place is None else {"concurrency_key": place, "concurrency_limit": LIMIT}


def _in(milliseconds: int) -> datetime:
    return datetime.now(UTC) + timedelta(milliseconds=milliseconds)


def deadlocks(arena: Arena, *, hunters: int, seconds: float) -> Verdict:
    """Overlapping random batches of everything that takes locks: no deadlock, no job left behind, no limit exceeded."""
    hunt = Hunt(arena, seconds)

    async def everybody() -> None:
        await asyncio.gather(hunt.watch(), *(hunt.client(number) for number in range(hunters)))

    asyncio.run(everybody())
    # What the hunters hold goes back; then real workers empty the lane.
    for worker in [row[0] for row in arena.query("select id from onceward.workers where state <> 'retired'")]:
        arena.execute("select onceward.retire_worker(%s)", worker)
    arena.spawn(concurrency=50, lease=10.0, poll=0.5)
    arena.until_quiet()
    known = {row[0] for row in arena.query("select id from onceward.jobs")}
    counts = {"lost": len(hunt.committed - known), "stuck": arena.live(), "deadlocks": arena.deadlocks()}
    return arena.verdict(
        "deadlock hunt",
        {"hunters": hunters, "seconds": int(seconds), "calls": hunt.done.total()},
        facts={"calls": dict(hunt.done), "refused": dict(hunt.told), "states": arena.states()},
        problems=hunt.problems[:10],
        ledger=counts,
    )
