"""When a spec fires, found by watching a clock: minute after minute, with Python's own knowledge of time zones.

Nothing here is shared with the SQL that it checks: no jumps over days, no offsets, no arithmetic with local times.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo

MINUTE = timedelta(minutes=1)
MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
DAYS = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]


@dataclass(frozen=True, slots=True)
class Cron:
    """The minutes of a day, and the days, that an expression names."""

    minutes_of_day: frozenset[int]
    doms: frozenset[int]
    months: frozenset[int]
    dows: frozenset[int]
    either: bool
    elapsed: bool

    @classmethod
    def read(cls, expression: str) -> Cron:
        minute, hour, dom, month, dow = expression.split()
        return cls(
            frozenset(60 * h + m for h in _values(hour, 0, 23) for m in _values(minute, 0, 59)),
            _values(dom, 1, 31),
            _values(month, 1, 12, MONTHS, 1),
            frozenset(day % 7 for day in _values(dow, 0, 6, DAYS, 0)),
            either=dom[0] != "*" and dow[0] != "*",
            elapsed=hour == "*" or hour.startswith("*/"),
        )

    def on(self, local: datetime) -> bool:
        dom, dow = local.day in self.doms, (local.weekday() + 1) % 7 in self.dows
        return local.month in self.months and (dom or dow if self.either else dom and dow)

    def at(self, local: datetime) -> bool:
        return local.hour * 60 + local.minute in self.minutes_of_day and self.on(local)


def _values(text: str, low: int, high: int, names: Sequence[str] = (), base: int = 0) -> frozenset[int]:
    found: set[int] = set()
    for part in text.split(","):
        whole, _, step = part.partition("/")
        first, _, last = whole.partition("-")
        if whole == "*":
            start, end = low, high
        else:
            start = names.index(first) + base if first in names else int(first)
            end = start if not last else names.index(last) + base if last in names else int(last)
        found.update(range(start, end + 1, int(step or 1)))
    return frozenset(found)


def local_minutes(zone: tzinfo, after: datetime, until: datetime) -> list[tuple[datetime, datetime]]:
    """Every whole minute in (after, until], and what a clock on the wall shows, without its offset."""
    moment = after.astimezone(UTC).replace(second=0, microsecond=0)
    shown = []
    while (moment := moment + MINUTE) <= until:
        shown.append((moment, moment.astimezone(zone).replace(tzinfo=None)))
    return shown


def ticks(
    cron: Cron, shown: Sequence[tuple[datetime, datetime]], *, start: datetime
) -> Iterator[tuple[str, datetime]]:
    """Slot and moment of each tick; `start` is what the clock showed a minute before."""
    furthest = start
    for moment, local in shown:
        if cron.elapsed:
            if cron.at(local):
                yield _with_offset(local, moment), moment
        elif local > furthest:
            # Usually one minute; after a gap, all that the clock never showed come now, as one.
            minute = furthest
            while (minute := minute + MINUTE) <= local:
                if cron.at(minute):
                    yield minute.isoformat(), moment
                    break
        furthest = max(furthest, local)


def _with_offset(local: datetime, moment: datetime) -> str:
    seconds = int((local - moment.replace(tzinfo=None)).total_seconds())
    sign, minutes = "-" if seconds < 0 else "+", abs(seconds) // 60
    return f"{local.isoformat()}{sign}{minutes // 60:02}:{minutes % 60:02}"
