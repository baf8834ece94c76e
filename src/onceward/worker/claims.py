"""How much to claim, from where: the worker's view of its lanes."""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Mapping, Sequence
from typing import Any

# The most jobs in one exchange.  Larger batches gain little and make a lost reply dearer.
BATCH = 500
# The buffer holds what is finished in this time at the present rate, so that nothing waits long behind it.
BUFFER_SECONDS = 0.05
BUFFER_MOST = 1000
# A full look from the beginning of the lanes at least this often; when it is slow, a fiftieth of the time at most.
SWEEP_SECONDS = 1.0
SWEEP_SHARE = 50.0
# A line whose jobs use limits has this in its name: see functions/lines.sql.
LIMITED = "\x1f"
# How soon at the earliest to look again for room in a limit, in seconds; and at the latest, when somebody else is taking from
# it again and again.
SHORTEST, LONGEST = 0.005, 0.05


class Claims:
    """Decides how many jobs to ask for, and keeps the lower bounds of the claim scan."""

    def __init__(
        self, lanes: Mapping[str, int | None], concurrency: int, poll: float, *, batch: int = BATCH
    ) -> None:
        self._lanes = list(lanes)
        self._limits = dict(lanes)
        self._limited = any(limit is not None for limit in lanes.values())
        self._concurrency = concurrency
        self._poll = poll
        self._batch = batch
        self._floors: dict[str, dict[int, int]] = {}
        # Of lanes that have lines: whose turn was the last, and the floors of each line.
        self._turns: dict[str, str] = {}
        self._line_floors: dict[str, dict[str, dict[int, int]]] = {}
        # When a limit has room again, and how soon a job that uses limits has to begin.
        self._room_at: float | None = None
        self._start_in = math.inf
        # Until when somebody else is likely to be taking from a limit, so that a claim would come back with nothing.
        self._busy_until = 0.0
        self._busy_for = SHORTEST
        # Lanes whose cap gave nothing to the last claim.
        self._full: set[str] = set()
        self._swept_at = 0.0
        self._sweep_took = 0.0
        self._rate = 0.0
        self._measured_at = time.monotonic()
        self._finished = 0
        # Jobs of each lane in hand, only counted when a lane has a bound.
        self.in_lane: dict[str, int] = dict.fromkeys(lanes, 0)
        # The last claim came back full: there is more.
        self.hungry = True
        self._full_in_a_row = 0
        self._next_poll = 0.0

    @property
    def under_load(self) -> bool:
        return self._full_in_a_row >= 2

    def room(self, in_hand: int) -> int:
        buffer = min(BUFFER_MOST, int(self._rate * BUFFER_SECONDS))
        return max(0, min(self._batch, self._concurrency + buffer - in_hand))

    def start(self, in_hand: int) -> int:
        """How many jobs can begin at once, or in the time of the buffer, when they go first."""
        return max(0, self._concurrency - in_hand) + int(self._rate * BUFFER_SECONDS)

    def is_hungry(self, now: float) -> bool:
        """Whether there is more, and nobody else is just taking it."""
        return self.hungry and now >= self._busy_until

    def poll_due(self, now: float) -> bool:
        return now >= self.next_poll

    @property
    def next_poll(self) -> float:
        return self._next_poll if self._room_at is None else min(self._next_poll, self._room_at)

    def start_by(self, began: float) -> float:
        """Until when a job with limits may begin that was claimed by an exchange begun then."""
        return began + self._start_in

    def lanes(self) -> list[str]:
        """In turn, so that no lane starves the next."""
        if len(self._lanes) > 1:
            self._lanes.append(self._lanes.pop(0))
        return self._lanes

    def limits(self, lanes: Sequence[str], room: int) -> list[int] | None:
        if not self._limited:
            return None
        return [
            room if (most := self._limits[lane]) is None else max(0, most - self.in_lane[lane])
            for lane in lanes
        ]

    def floors(self, now: float) -> dict[str, dict[int, int]] | None:
        """None: look from the beginning."""
        since = now - self._swept_at
        due = since >= max(SWEEP_SECONDS, self._sweep_took * SWEEP_SHARE)
        short = not self.hungry and since >= self._sweep_took * SWEEP_SHARE
        return None if due or short or not self._floors else self._floors

    def lines(self) -> dict[str, Any] | None:
        """Where the turn is, for lanes that are known to have lines."""
        if not self._turns:
            return None
        return {
            lane: {"after": line, "floors": self._line_floors.get(lane, {})}
            for lane, line in self._turns.items()
        }

    def is_full(self, lane: str) -> bool:
        """Whether as many jobs as may run at once were running somewhere at the last look."""
        return lane in self._full

    def look_back(self) -> None:
        """Jobs have returned to a place below the floors: look from the beginning with the next claim, if that is cheap."""
        self._swept_at = min(self._swept_at, time.monotonic() - SWEEP_SECONDS)

    def learned(self, rows: Sequence[Sequence[Any]], *, asked: int, swept: bool, took: float) -> int:
        """Note what a claim brought.  Returns how many jobs it claimed."""
        now = time.monotonic()
        if swept:
            self._swept_at, self._sweep_took = now, took
            # Lanes whose lines are gone are not mentioned any more.
            self._turns, self._line_floors = {}, {}
        if asked:
            self._room_at, self._start_in = None, math.inf
            self._full.clear()
        seen: dict[tuple[str, str], dict[int, int]] = {}
        claimed = 0
        for row in rows:
            if row[0] == "claimed":
                claimed += 1
                if not row[7]:
                    continue  # It was let in behind another job of its key, and never stood in line.
                where = row[5], row[14]
                by_priority = seen.get(where)
                if by_priority is None:
                    by_priority = seen[where] = {}
                # The rows of one line come in order: the last one of a priority is the highest.
                by_priority[row[6]] = row[7]
            elif row[0] == "lines":
                self._learn_turn(row, now)
        for (lane, line), by_priority in seen.items():
            # Nothing may have come from the main line yet; still, there is no need to look from the beginning.
            known = self._floors.setdefault(lane, {})
            if line:
                known = self._line_floors.setdefault(lane, {}).setdefault(line, {})
            for priority, seq in by_priority.items():
                # A sweep may go back behind the bound, to stragglers; go on from there.
                known[priority] = seq if swept else max(seq, known.get(priority, 0))
        if asked and not claimed and now < self._busy_until:
            # That says nothing about how much there is: mostly it was our other link.
            self._next_poll = now + self._poll
        elif asked:
            self._busy_for = SHORTEST
            self.hungry = claimed >= asked
            self._full_in_a_row = self._full_in_a_row + 1 if self.hungry else 0
            self._next_poll = now + self._poll * random.uniform(0.5, 1.0)  # noqa: S311 - spread, not secrecy
        return claimed

    def _learn_turn(self, row: Sequence[Any], now: float) -> None:
        self._turns[row[5]] = row[14]
        told = json.loads(row[4])
        if "full" in told:
            self._full.add(row[5])
        if "busy" in told:
            self._busy_until = now + self._busy_for
            self._busy_for = min(self._busy_for * 2, LONGEST)
            told["next_in"] = self._busy_until - now
        if "next_in" in told:
            moment = now + max(SHORTEST, float(told["next_in"]))
            self._room_at = moment if self._room_at is None else min(self._room_at, moment)
        if "start_in" in told:
            self._start_in = min(self._start_in, float(told["start_in"]))

    def finished(self, count: int) -> None:
        """Keep the rate at which jobs are finished here."""
        self._finished += count
        now = time.monotonic()
        elapsed = now - self._measured_at
        if elapsed >= 0.01:
            self._rate += (self._finished / elapsed - self._rate) * min(1.0, elapsed * 10)
            self._finished = 0
            self._measured_at = now
