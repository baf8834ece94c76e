"""A parent and its worker processes, as `onceward worker --processes` starts them, each of which can be hurt."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

from tests.crash.arena import Arena
from tests.crash.fleet import ROOT
from tests.crash.waiting import until
from tests.sdk.children import CODE

# Those of clients and monitors are apart.
SESSIONS = """
select application_name, count(*) from pg_stat_activity
 where datname = current_database() and application_name like 'onceward %'
   and application_name not in ('onceward client', 'onceward monitors')
 group by 1
"""


class Host:
    """Its workers are ready when it is entered; whoever is left is killed at the end."""

    def __init__(self, arena: Arena, processes: int, *, dsn: str | None = None, **settings: Any) -> None:
        self._arena = arena
        self._processes = processes
        self._dsn = dsn or arena.dsn
        self._settings = settings
        self._log = arena.folder / "host.txt"

    def __enter__(self) -> Self:
        spec = repr({"dsn": self._dsn, "processes": self._processes, **self._settings})
        with self._log.open("wb") as log:
            self.parent = subprocess.Popen(
                [sys.executable, "-c", CODE, "tests.sdk.stage:app", spec],
                cwd=ROOT,
                stderr=log,
                start_new_session=True,
            )
        self.until_said("worker_started", self._processes)
        # Identities of the workers by process; the others are those of processes that were replaced.
        self.workers: dict[int, str] = dict(
            self._arena.query("select pid, id::text from onceward.workers where state = 'live'")
        )
        return self

    def __exit__(self, *unused: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.parent.pid, signal.SIGKILL)
        self.parent.wait(30)

    def said(self, event: str) -> int:
        return self._log.read_text().count(f'"event": "{event}"')

    def until_said(self, event: str, times: int = 1) -> None:
        until(lambda: self.said(event) >= times, what=f"{event} said {times} times")

    def sessions(self) -> dict[str, int]:
        """How many connections of each name there are."""
        return dict(self._arena.query(SESSIONS))

    def until_sessions(self, expected: dict[str, int]) -> None:
        until(lambda: self.sessions() == expected, what=f"the sessions {expected}")

    def identities(self) -> dict[int, str]:
        """Of the workers that hold their lease now."""
        return dict(self._arena.query("select pid, id::text from onceward.workers where state = 'live'"))

    def until_renewed(self, pids: list[int], times: int = 2) -> None:
        """The leases of these workers have been renewed so often from now."""
        beats = "select heartbeat_at from onceward.workers where pid = any (%s) order by pid"
        for _ in range(times):
            before = self._arena.query(beats, pids)
            until(
                lambda before=before: all(
                    now > then for (now,), (then,) in zip(self._arena.query(beats, pids), before, strict=True)
                ),
                what=f"the leases of {pids} renewed",
            )


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
