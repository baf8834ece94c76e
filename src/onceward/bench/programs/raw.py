"""The raw limit: what PostgreSQL itself takes, with no library in between.

One table, one connection, strictly claim, handle, finish.  No fencing, no rescue, no retries; a history row is kept.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from .producer import Batch, Producer
from .raw_lines import make_line
from .tally import Tally

SCHEMA = """
create table work (
  id         bigint generated always as identity primary key,
  lane       text not null default 'default',
  task       text not null,
  payload    jsonb not null,
  priority   smallint not null default 0,
  state      smallint not null default 0,
  attempt    smallint not null default 0,
  created_at timestamptz not null default now(),
  run_at     timestamptz not null default now(),
  started_at timestamptz,
  worker     text
);
create index on work (lane, priority desc, id) where state = 0;
create table history (
  id          bigint primary key,
  lane        text,
  task        text,
  payload     jsonb,
  state       smallint,
  attempt     smallint,
  created_at  timestamptz,
  started_at  timestamptz,
  finished_at timestamptz
);
"""
CLAIM = """
update work as w
   set state = 1, attempt = w.attempt + 1, started_at = now(), worker = 'raw'
  from (select id from work
         where lane = 'default' and state = 0 and run_at <= now()
         order by priority desc, id
         limit $1::int
           for update skip locked) as next
 where w.id = next.id
returning w.id, w.task, w.payload
"""
FINISH = """
with gone as (delete from work where id = any ($1::bigint[]) returning *)
insert into history
select id, lane, task, payload, 2, attempt, created_at, started_at, now() from gone
"""
ONE = "insert into work (task, payload) values ('count', $1::text::jsonb)"
ONE_AND_NOTIFY = (
    "with one as (insert into work (task, payload) values ('count', $1::text::jsonb) returning 1) "
    "select pg_notify('work', '') from one"
)
MANY = "insert into work (task, payload) select 'count', p::jsonb from unnest($1::text[]) as p"
DRIVERS = ("asyncpg", "psycopg")


def best_driver() -> str:
    return next(name for name in DRIVERS if importlib.util.find_spec(name))


def make_producer(driver: str | None = None, bulk: str = "unnest") -> Producer:
    return RawProducer(driver or best_driver(), bulk)


def work(dsn: str, run: Callable[..., None], batch: int = 200) -> None:
    run(_work(dsn, batch))


async def _work(dsn: str, batch: int) -> None:
    line = make_line(best_driver())
    await line.open(dsn)
    await line.listen("work")
    tally = Tally()
    while True:
        claimed = await line.rows(CLAIM, batch)
        for _, _, payload in claimed:
            # asyncpg leaves JSON as text.
            tally.hit((json.loads(payload) if isinstance(payload, str) else payload)["sent"])
        if claimed:
            await line.run(FINISH, [row[0] for row in claimed])
        else:
            await line.heard(timeout=0.2)


class RawProducer(Producer):
    def __init__(self, driver: str, bulk: str) -> None:
        self._line = make_line(driver)
        self._bulk = bulk

    async def open(self, dsn: str) -> None:
        await self._line.open(dsn)

    async def close(self) -> None:
        await self._line.close()

    async def one(self, sent: int) -> None:
        # Only the latency run has a worker that listens; a plain insert is the limit of the others.
        await self._line.run(ONE_AND_NOTIFY if sent else ONE, json.dumps({"sent": sent}))

    async def many(self, batch: Batch) -> None:
        payload: dict[str, object] = {
            "sent": 0,
            **({"filling": "x" * batch.filling} if batch.filling else {}),
        }
        texts = [json.dumps(payload) for _ in range(batch.count)]
        if self._bulk == "copy":
            await self._line.copy("work", ["task", "payload"], [("count", text) for text in texts])
        else:
            await self._line.run(MANY, texts)

    def transaction(self) -> AbstractAsyncContextManager[object]:
        return self._line.transaction()

    async def write(self) -> None:
        await self._line.run("insert into caller_row (note) values ('paid')")
