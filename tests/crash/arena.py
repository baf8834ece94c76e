"""Where crash tests take place: a database per fault, its ledgers, its workers and the judgement.

Time is real here; see waiting.py.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import psycopg

from onceward import calls
from onceward.audit import verify
from tests.crash.checker import check
from tests.crash.fleet import Fleet, Life
from tests.crash.ledger import AttemptRow, History, JobRow
from tests.crash.verdict import Verdict
from tests.crash.waiting import PATIENCE, Hang, until
from tests.support.audit import runner

if TYPE_CHECKING:
    from tests.crash.server import Server


class Arena(Fleet):
    """One database, its ledgers and its workers."""

    def __init__(self, server: Server, name: str, folder: Path, seed: int) -> None:
        super().__init__(folder, server.embedded.dsn(name))
        self.server = server
        self.name = name
        self.seed = seed
        self.random = random.Random(seed)
        self._asking = threading.Lock()
        self._conn: psycopg.Connection[tuple[Any, ...]] | None = None
        self.began = time.monotonic()
        # So many jobs had ended when somebody last looked.
        self._had_ended = 0
        # Tasks whose jobs nobody enqueues by a call of his own: the fault that has them judges them itself.
        self.apart: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()

    def close(self) -> None:
        super().close()
        with self._asking:
            self._hang_up()

    # ------------------------------------------------------------ the database

    def execute(self, statement: str, *params: Any) -> None:
        with psycopg.connect(self.dsn, autocommit=True) as conn:
            conn.execute(statement, params or None)

    def query(self, statement: str, *params: Any) -> list[tuple[Any, ...]]:
        """Through restarts of the server: asked again until it answers."""
        deadline = time.monotonic() + PATIENCE
        with self._asking:
            while True:
                try:
                    # Kept: who waits asks many times a second, and a new session for each question took a core of its own.
                    if self._conn is None:
                        self._conn = psycopg.connect(self.dsn, autocommit=True, connect_timeout=10)
                    return self._conn.execute(statement, params or None).fetchall()
                except psycopg.OperationalError:
                    self._hang_up()
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.05)

    def _hang_up(self) -> None:
        if self._conn is not None:
            self._conn.close()
            self._conn = None

    def value(self, statement: str, *params: Any) -> Any:
        return self.query(statement, *params)[0][0]

    def done(self) -> int:
        self._had_ended = int(self.value("select count(*) from onceward.archive_private"))
        return self._had_ended

    def live(self) -> int:
        return int(self.value("select count(*) from onceward.job_private where state <> 'dead_letter'"))

    def until_done(self, count: int, *, within: float = PATIENCE) -> None:
        if self._had_ended >= count:
            return
        self.progress(lambda: self.done() >= count, what=f"{count} jobs done", within=within)

    def until_more(self, before: int, what: str) -> None:
        """Some job more has ended, or there is none left."""
        until(lambda: self.done() > before or self.live() == 0, what=what)

    def until_quiet(self, *, within: float = PATIENCE) -> None:
        """Nothing left to do.  What is left when nothing moves any more is for the checker to report as stuck."""
        with contextlib.suppress(Hang):
            self.progress(lambda: self.live() == 0, what="an empty lane", within=within)

    def progress(self, condition: Callable[[], bool], *, what: str, within: float) -> None:
        """Wait for the condition as long as jobs keep ending; `within` bounds a time without any."""
        best, since = -1, time.monotonic()
        while True:
            asked = time.monotonic()
            if condition():
                return
            done = self.done()
            if done > best:
                best, since = done, time.monotonic()
            if time.monotonic() - since > within:
                raise Hang(f"no job ended for {within:g} s, waiting for: {what}; {self.states()}")
            # A million jobs take a while to count.
            time.sleep(max(0.05, 3 * (time.monotonic() - asked)))

    def states(self) -> dict[str, int]:
        return dict(self.query("select state, count(*) from onceward.jobs group by 1"))

    def until_registered(self, *lives: Life) -> None:
        names = [life.name for life in lives]
        until(
            lambda: (
                self.value(
                    "select count(distinct name) from onceward.workers where state = 'live' and name = any (%s)",
                    names,
                )
                == len(names)
            ),
            what=f"workers {names} registered",
        )

    # ------------------------------------------------------------ judging

    def marks(self) -> History:
        """What was written outside the database up to now."""
        return History().read(self.folder)

    def notes(self) -> list[list[str]]:
        """What handlers have noted: see handlers.note."""
        lines = [
            line for path in sorted(self.folder.glob("notes-*.txt")) for line in path.read_text().splitlines()
        ]
        return [line.split() for line in lines]

    def history(self) -> History:
        history = self.marks()
        with psycopg.connect(self.dsn) as conn:
            for row in stream(
                conn,
                "select id::text, state, epoch, attempt, payload ->> 'token', coalesce(payload ->> 'mode', 'plain'), "
                "concurrency_key, concurrency_limit from onceward.jobs where task <> all (%s)",
                self.apart,
            ):
                history.jobs[row[0]] = JobRow(*row[1:])
            history.attempts = [
                AttemptRow(*row)
                for row in stream(
                    conn,
                    "select job_id::text, epoch, attempt, (extract(epoch from started_at) * 1000000)::bigint, "
                    "(extract(epoch from ended_at) * 1000000)::bigint, outcome, "
                    "(extract(epoch from retry_at) * 1000000)::bigint from onceward.attempts",
                )
            ]
            history.effects = list(stream(conn, "select token, job_id::text, epoch from public.effect"))
        return history

    def save(self, folder: Path) -> None:
        """Keep the ledgers and the logs of the workers."""
        shutil.copytree(self.folder, folder, dirs_exist_ok=True)

    def verdict(
        self,
        fault: str,
        injected: dict[str, int],
        *,
        facts: dict[str, Any] | None = None,
        also: Callable[[History], dict[str, Any]] | None = None,
        problems: list[str] | None = None,
        ledger: dict[str, int] | None = None,
    ) -> Verdict:
        """End the workers, read everything, judge.

        `also` tells more facts from the history; with `ledger`, there is none, and it was judged already.
        """
        trouble = [*(problems or []), *self.end_workers(), *self.audit_trouble()]
        history = self.history() if ledger is None else History()
        found = check(history)
        known = {"jobs": self.value("select count(*) from onceward.jobs"), "deadlocks": self.deadlocks()}
        if known["deadlocks"]:
            trouble.append(f"{known['deadlocks']} deadlocks")
        trouble += [f"{kind}: {text}" for kind, texts in found.examples.items() for text in texts]
        return Verdict(
            fault=fault,
            seed=self.seed,
            injected=injected,
            ledger=found.counts if ledger is None else ledger,
            facts={
                **known,
                "uncertain": found.uncertain,
                "zombie_runs": found.zombie_runs,
                "refused": found.refused,
                "inversions": found.inversions,
                **(facts or {}),
                **(also(history) if also is not None else {}),
            },
            problems=trouble,
            seconds=round(time.monotonic() - self.began, 1),
        )

    def audit_trouble(self) -> list[str]:
        """The audit log is whole, and has one entry for every job that is done, and for no other."""
        done = "select id from onceward.archive_private where state = 'done'"
        told = "select unnest(jobs) from onceward.audit_private where kind = 'job.done'"
        missing = self.value(f"select count(*) from ({done} except all {told}) as m")
        false = self.value(f"select count(*) from ({told} except all {done}) as m")
        with psycopg.connect(self.dsn, autocommit=True) as conn:
            run = runner(conn)
            while run(calls.seal()).entries:
                pass
            found = verify(run)
        return [
            *([f"{missing} jobs are done and not in the audit log"] if missing else []),
            *([f"{false} entries of the audit log tell of jobs that are not done"] if false else []),
            *(f"audit log: {finding}" for finding in found.findings[:10]),
        ]

    def deadlocks(self) -> int:
        return int(self.value("select deadlocks from pg_stat_database where datname = current_database()"))


def stream(conn: psycopg.Connection[Any], statement: str, *params: Any) -> Iterator[tuple[Any, ...]]:
    with conn.cursor(name="history") as cursor:
        cursor.itersize = 20_000
        cursor.execute(statement, params or None)
        yield from cursor
