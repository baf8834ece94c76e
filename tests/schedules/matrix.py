"""Every time zone × every change of its clocks × thirty expressions, against the oracle.

`python -m tests.schedules.matrix` takes all zones and the changes of 2020 to 2037, and prints a JSON verdict.  Python and
the server have time zone files of their own: where the editions differ, the oracle reads the server's, and what differs even
then is named and left out.  (Not the server's for all: after the last change that such a file lists, Python goes by the rule
at its end, which is wrong for America/Ojinaga in November 2022.)
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import sys
import time
import zoneinfo
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg

from onceward.testing import DatabaseServer
from tests.schedules.oracle import Cron, local_minutes, ticks

EXPRESSIONS = [
    "* * * * *", "*/5 * * * *", "*/7 * * * *", "0 * * * *", "30 * * * *", "59 * * * *", "0,15,30,45 * * * *",
    "0 */2 * * *", "30 */3 * * *", "*/20 */6 * * *", "15 */1 * * sun",
    "0 0 * * *", "30 0 * * *", "0 1 * * *", "30 1 * * *", "59 1 * * *", "0 2 * * *", "30 2 * * *", "45 2 * * *",
    "0 3 * * *", "30 3 * * *", "0 23 * * *", "30 23 * * *", "*/15 1-3 * * *", "*/10 0-23 * * *", "0 0,1,2,3,4 * * *",
    "5 0-4 * * sat,sun", "0 2 1-7 mar,apr,oct,nov sun", "30 1 * 3,4,9-11 *", "20 22-23 * * mon-fri",
]  # fmt: skip
BEFORE, AFTER = timedelta(hours=5), timedelta(hours=6)
FIRES = """
select t.change, e.expression, array_agg(k.slot order by k.fire_at), array_agg(k.fire_at order by k.fire_at)
  from unnest(%(expressions)s::text[]) as e (expression)
 cross join lateral (select onceward.read_spec(e.expression, %(zone)s) as plan offset 0) as p
 cross join unnest(%(changes)s::timestamptz[]) as t (change)
 cross join lateral onceward.plan_ticks(p.plan, t.change - %(before)s, t.change + %(after)s, 100000) as k
 group by 1, 2
"""


OFFSETS = """
select array_agg((m at time zone %(zone)s) - (m at time zone 'UTC') order by n)
  from unnest(%(moments)s::timestamptz[]) with ordinality as u (m, n)
"""


@dataclass(slots=True)
class Verdict:
    zones: int = 0
    names: int = 0
    changes: int = 0
    slots: int = 0
    editions: list[str] = field(default_factory=list)
    mismatches: list[str] = field(default_factory=list)


def zone_folder(dsn: str) -> Path:
    """The time zone files that the server reads."""
    with psycopg.connect(dsn) as connection:
        row = connection.execute("select setting from pg_config where name = 'SHAREDIR'").fetchone()
    assert row is not None
    own = Path(row[0]) / "timezone"
    # Built with the system's files, as Debian does.
    return own if own.is_dir() else Path("/usr/share/zoneinfo")


def zones(folder: Path) -> dict[str, list[str]]:
    """One name of each zone, with all its names.  Those without a slash are aliases that the engine refuses."""
    same: dict[str, list[str]] = {}
    for path in sorted(folder.glob("*/**/*")):
        name = str(path.relative_to(folder))
        if (
            path.is_file()
            and path.read_bytes()[:4] == b"TZif"
            and name.split("/", maxsplit=1)[0] not in {"posix", "right"}
        ):
            same.setdefault(hashlib.sha256(path.read_bytes()).hexdigest(), []).append(name)
    return {names[0]: names for names in same.values()}


def changes(zone: zoneinfo.ZoneInfo, first: int, last: int) -> Iterator[datetime]:
    """The moments at which the offset changes, in UTC."""
    step = timedelta(hours=12)
    moment, end = datetime(first, 1, 1, tzinfo=UTC), datetime(last + 1, 1, 1, tzinfo=UTC)
    while moment < end:
        low, high = moment, moment + step
        if low.astimezone(zone).utcoffset() != high.astimezone(zone).utcoffset():
            while high - low > timedelta(seconds=1):
                middle = low + (high - low) // 2
                if middle.astimezone(zone).utcoffset() == low.astimezone(zone).utcoffset():
                    low = middle
                else:
                    high = middle
            yield high.replace(microsecond=0)
        moment += step


def agree(connection: psycopg.Connection[Any], zone: zoneinfo.ZoneInfo, change: datetime) -> bool:
    """Whether the server's files say the same about this change, in all that is looked at."""
    moments = [change - BEFORE, change - timedelta(seconds=1), change, change + AFTER]
    row = connection.execute(OFFSETS, {"zone": zone.key, "moments": moments}).fetchone()
    assert row is not None
    return row[0] == [moment.astimezone(zone).utcoffset() for moment in moments]


def same_edition(
    connection: psycopg.Connection[Any], folder: Path, name: str, years: tuple[int, int]
) -> tuple[zoneinfo.ZoneInfo, list[datetime], list[datetime]]:
    """The zone by Python's files, or else by the server's; its changes; and those about which the two differ."""
    with contextlib.suppress(zoneinfo.ZoneInfoNotFoundError):
        zone = zoneinfo.ZoneInfo(name)
        moments = list(changes(zone, *years))
        if all(agree(connection, zone, moment) for moment in moments):
            return zone, moments, []
    with (folder / name).open("rb") as file:
        zone = zoneinfo.ZoneInfo.from_file(file, key=name)
    moments = list(changes(zone, *years))
    good = [moment for moment in moments if agree(connection, zone, moment)]
    return zone, good, [moment for moment in moments if moment not in good]


def check(dsn: str, folder: Path, names: Iterable[str], years: tuple[int, int]) -> Verdict:
    found = Verdict()
    crons = {expression: Cron.read(expression) for expression in EXPRESSIONS}
    with psycopg.connect(dsn) as connection:
        connection.execute("set timezone = 'UTC'")
        for name in names:
            zone, moments, left_out = same_edition(connection, folder, name, years)
            found.editions += [f"{name} {moment}" for moment in left_out]
            found.zones += 1
            found.changes += len(moments)
            if not moments:
                continue
            rows = connection.execute(
                FIRES,
                {
                    "expressions": EXPRESSIONS,
                    "zone": name,
                    "changes": moments,
                    "before": BEFORE,
                    "after": AFTER,
                },
            ).fetchall()
            given = {(row[0], row[1]): list(zip(row[2], row[3], strict=True)) for row in rows}
            for moment in moments:
                shown = local_minutes(zone, moment - BEFORE, moment + AFTER)
                start = (moment - BEFORE).astimezone(zone).replace(tzinfo=None)
                for expression, cron in crons.items():
                    expected = list(ticks(cron, shown, start=start))
                    found.slots += len(expected)
                    actual = given.get((moment, expression), [])
                    if actual != expected:
                        differing = sorted(set(actual) ^ set(expected), key=str)[:3]
                        found.mismatches.append(f"{name} {moment} {expression!r}: {differing}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.schedules.matrix", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--years", type=int, nargs=2, default=(2020, 2037), metavar=("FIRST", "LAST"))
    parser.add_argument("--zones", nargs="+", help="names of time zones; all when left out")
    options = parser.parse_args()
    began = time.monotonic()
    total = Verdict()
    with DatabaseServer.start() as server, server.cloned() as database:
        folder = zone_folder(database.dsn)
        known = zones(folder)
        wanted = options.zones or sorted(known)
        with ThreadPoolExecutor(2) as pool:
            for verdict in pool.map(
                lambda name: check(database.dsn, folder, [name], tuple(options.years)), wanted
            ):
                total.zones += verdict.zones
                total.changes += verdict.changes
                total.slots += verdict.slots
                total.editions += verdict.editions
                total.mismatches += verdict.mismatches
        total.names = sum(len(known.get(name, [name])) for name in wanted)
    print(
        json.dumps(
            {
                "zones": total.zones, "names": total.names, "changes": total.changes, "expressions": len(EXPRESSIONS),
                "slots": total.slots, "editions": total.editions,
                "mismatches": len(total.mismatches), "first": total.mismatches[:10],
                "seconds": round(time.monotonic() - began, 1),
            }
        )
    )  # fmt: skip
    return 1 if total.mismatches else 0


if __name__ == "__main__":
    sys.exit(main())
