"""What goes to the database and comes back: finish a batch and claim the next, and adopt what a lost reply has claimed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from onceward import calls, logs
from onceward.calls import Call, Row
from onceward.errors import ResultTooLarge, is_connection_trouble
from onceward.wire import Begun
from onceward.worker.claims import LIMITED, Claims
from onceward.worker.hand import Done, Hand
from onceward.worker.link import Link

if TYPE_CHECKING:
    from uuid import UUID

    from onceward.worker.worker import Worker

log = logs.get("onceward.worker")
# So many finishes, or so much room, and a second exchange begins beside one under way.
MANY = 100
# After a lost reply, look for jobs that were claimed without our knowing: at once, and later, because the
# old connection may commit after all.
ADOPT_AFTER = (0.0, 10.0, 30.0, 60.0)
# And now and then in any case: a job that its own worker has forgotten would never be rescued.
ADOPT_EVERY = 60.0

Action = Callable[[Link], Coroutine[Any, Any, None]]


@dataclass(slots=True)
class _Exchange:
    """What one exchange finishes and asks for."""

    room: int
    done: list[Done]
    # Lower bounds of the claim scan; None: look from the beginning.
    floors: dict[str, dict[int, int]] | None
    # How many jobs can begin at once.
    start: int
    began: float


class _Wish(NamedTuple):
    """What an exchange asks for, as calls.exchange takes it."""

    worker_id: UUID
    lanes: tuple[str, ...]
    limits: list[int] | None
    room: int
    floors: dict[str, dict[int, int]] | None
    sleep: bool
    lines: dict[str, Any] | None
    start: int


class Exchanges:
    """Decides when to exchange, and turns the answers into jobs that run."""

    def __init__(self, worker: Worker, hand: Hand, claims: Claims) -> None:
        self._worker = worker
        self._hand = hand
        self._claims = claims
        self._under_way = 0
        # Jobs that the exchanges under way have asked for.
        self._asked = 0
        self._adopt_at: list[float] = []
        # What an idle worker asks for each time, and the call for it: after a while without work, to make another one takes
        # as long as everything else between a NOTIFY and the claim.
        self._usual: tuple[_Wish, Call[Sequence[Row]]] | None = None
        # Somebody said that there may be something to claim.
        self.wanted = True
        # A NOTIFY has come since the last claim.
        self.noticed = False

    # ------------------------------------------------------------ when

    @property
    def room(self) -> int:
        """How many jobs to ask for now."""
        return 0 if self._worker.is_draining else self._claims.room(self._in_hand)

    @property
    def _in_hand(self) -> int:
        return self._worker.runner.active + self._asked

    def is_wanted(self, now: float) -> bool:
        room = self.room
        if self._under_way == 0:
            return bool(self._hand.done) or (
                room > 0 and (self._claims.is_hungry(now) or self.wanted or self._claims.poll_due(now))
            )
        return len(self._hand.done) >= MANY or (room >= MANY and self._claims.hungry)

    def adoption_is_due(self, now: float) -> bool:
        return now >= self._adopt_at[0]

    @property
    def next_adoption(self) -> float:
        return self._adopt_at[0]

    def registered(self) -> None:
        """The worker has a new identity."""
        self._adopt_at = [time.monotonic() + ADOPT_EVERY]

    def expect_strangers(self) -> None:
        """A reply was lost."""
        now = time.monotonic()
        self._adopt_at = [now + after for after in ADOPT_AFTER]

    # ------------------------------------------------------------ exchange

    def prepare(self, now: float) -> Action:
        """Decided at once and not when its task begins: the next decision has to know of it."""
        exchange = _Exchange(
            room=self.room,
            done=self._hand.done,
            floors=None if self._worker.idleness.looked else self._claims.floors(now),
            start=self._claims.start(self._in_hand),
            began=now,
        )
        self._hand.done = []
        self._under_way += 1
        self._asked += exchange.room
        self.wanted = False
        return lambda link: self._begin(link, exchange)

    def _begin(self, link: Link, exchange: _Exchange) -> Coroutine[Any, Any, None]:
        call = self._call(exchange)
        # Now, and not when the task begins, which may be a tenth of what a lone job waits for.
        return self._finish(link, exchange, call, link.send(call))

    def _call(self, exchange: _Exchange) -> Call[Sequence[Row]]:
        worker, claims = self._worker, self._claims
        assert worker.id is not None
        lanes = claims.lanes()
        wish = _Wish(
            worker.id,
            tuple(lanes),
            claims.limits(lanes, exchange.room),
            exchange.room,
            exchange.floors,
            not claims.under_load,
            claims.lines(),
            exchange.start,
        )
        if not exchange.done and self._usual is not None and self._usual[0] == wish:
            return self._usual[1]
        call = calls.exchange(done=exchange.done, **wish._asdict())
        if not exchange.done and exchange.floors is None:
            call = call._replace(lasts=True)
            self._usual = wish, call
        return call

    async def _finish(
        self, link: Link, exchange: _Exchange, call: Call[Sequence[Row]], begun: Begun | None
    ) -> None:
        worker, done = self._worker, exchange.done
        try:
            rows = await link.run(call, begun)
        except ResultTooLarge:
            self._hand.finish_one_by_one(done)
            return
        except BaseException as error:
            worker.tally.exchange_failures += 1
            self.expect_strangers()
            if is_connection_trouble(error) or isinstance(error, asyncio.CancelledError):
                self._hand.done = done + self._hand.done
            else:
                log.error("exchange_refused", worker=str(worker.id), error=str(error))
                self._hand.finish_one_by_one(done)
            raise
        finally:
            self._under_way -= 1
            self._asked -= exchange.room
        self._answered(exchange, rows)

    def _answered(self, exchange: _Exchange, rows: Sequence[Sequence[Any]]) -> None:
        worker, done, swept = self._worker, exchange.done, exchange.floors is None
        took = time.monotonic() - exchange.began
        worker.tally.exchanges.add(took)
        self._hand.acknowledged(done, {row[1] for row in rows if row[0] == "lost"} if done else ())
        self._claims.finished(len(done))
        claimed = self._claims.learned(rows, asked=exchange.room, swept=swept, took=took)
        if self.noticed and exchange.room and not claimed:
            # Something has come, and it is not ready: it waits for admission to its key, most likely.
            worker.maintenance.soon()
        self.noticed = False
        if claimed or done:
            worker.idleness.changed()
        worker.idleness.claimed_nothing(swept=swept and exchange.room > 0)
        if rows:
            self._take(rows, began=exchange.began)
        worker.passes.send(claimed)

    # ------------------------------------------------------------ what came back

    async def adopt(self, link: Link) -> None:
        worker = self._worker
        assert worker.id is not None
        rows = await link.run(calls.adopt(worker.id, self._hand.ids))
        self._adopt_at = self._adopt_at[1:] or [time.monotonic() + ADOPT_EVERY]
        if rows:
            log.info("jobs_adopted", worker=str(worker.id), count=len(rows))
            self._take(rows)

    def _take(self, rows: Sequence[Sequence[Any]], *, began: float | None = None) -> None:
        """`began`: when the call was begun that claimed them; None: nobody knows."""
        worker = self._worker
        now = time.monotonic()
        for row in rows:
            if row[0] == "claimed":
                job = self._hand.take(row, now)
                if job is not None:
                    if LIMITED in job.line:
                        # What was claimed without our knowing may have to begin by now.
                        job.start_by = now if began is None else self._claims.start_by(began)
                    worker.runner.start(job)
            elif row[0] == "lines":
                continue
            elif row[0] == "lost":
                log.warning("lease_lost", job_id=row[1], epoch=row[2], worker=str(worker.id))
            else:
                worker.lose("the database says that the lease is over")
        if worker.is_draining:
            worker.hand_back(worker.runner.take_back(), why="worker stops")
