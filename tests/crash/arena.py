"""Where crash tests take place: a PostgreSQL server, a database per fault, worker processes that can be hurt.

Time is real here.  Waiting means polling for a condition with a deadline that only bounds a hang.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self, TypeVar

import psycopg

from onceward.embedded import EmbeddedServer
from onceward.install import upgrade
from onceward.testing import database as testing
from tests.crash.checker import check
from tests.crash.ledger import AttemptRow, History, JobRow, Ledger, now
from tests.crash.verdict import Verdict

T = TypeVar("T")
ROOT = Path(__file__).parents[2]
# A fault that needs longer than this to come to rest hangs.
PATIENCE = 120.0
TABLES = """
create table public.effect (id bigserial primary key, token text not null, job_id uuid not null, epoch bigint not null);
create function public.effect_and_end(p_token text, p_job_id uuid, p_epoch bigint) returns void language plpgsql as $$
begin
  insert into public.effect (token, job_id, epoch) values (p_token, p_job_id, p_epoch);
  perform onceward.complete(p_job_id, p_epoch);
end;
$$;
"""
LIVE = ("ready", "running", "scheduled", "blocked")


class Hang(AssertionError):
    """A condition was not met before its deadline."""


def until(condition: Callable[[], T], *, within: float = PATIENCE, what: str) -> T:
    """Wait for something true; a question that takes long is asked less often."""
    deadline = time.monotonic() + within
    while True:
        asked = time.monotonic()
        if answer := condition():
            return answer
        if asked > deadline:
            raise Hang(f"waited {within:g} s in vain for: {what}")
        time.sleep(max(0.01, 3 * (time.monotonic() - asked)))


class Server:
    """The server of a test session: durable as PostgreSQL is by default, on a file system in memory when there is one."""

    def __init__(self) -> None:
        testing._remove_abandoned()
        self.place = Path(tempfile.mkdtemp(prefix=testing.PREFIX, dir=testing._folder()))
        # Held as long as this process lives: what is not locked has been abandoned, and is removed by the next session.
        self._lock = (self.place / "new.lock").open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        (self.place / "new.lock").rename(self.place / testing.LOCK)
        self.port = free_port()
        self.embedded = EmbeddedServer.start(
            self.place / "pg", port=self.port, settings={"max_connections": "400", "max_wal_size": "4GB"}
        )
        self._count = 0

    def close(self) -> None:
        self.embedded.stop("fast")
        shutil.rmtree(self.place, ignore_errors=True)
        self._lock.close()

    def arena(self, seed: int) -> Arena:
        self._count += 1
        name = f"crash_{self._count}"
        self.embedded.create_database(name)
        folder = self.place / name
        folder.mkdir()
        return Arena(self, name, folder, seed)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Life:
    """One worker process."""

    def __init__(self, number: int, dsn: str) -> None:
        self.number = number
        self.dsn = dsn
        self.pid = 0
        self.started = threading.Event()
        self.exited = threading.Event()
        self.code: int | None = None

    @property
    def alive(self) -> bool:
        return not self.exited.is_set()

    @property
    def name(self) -> str:
        return f"life-{self.number}"


class Arena:
    """One database, its ledgers and its workers."""

    def __init__(self, server: Server, name: str, folder: Path, seed: int) -> None:
        self.server = server
        self.name = name
        self.folder = folder
        self.seed = seed
        self.random = random.Random(seed)
        self.dsn = server.embedded.dsn(name)
        self.tcp_dsn = (
            f"postgresql://postgres@127.0.0.1:{server.port}/{name}?sslmode=disable&gssencmode=disable"
        )
        upgrade(self.dsn)
        self.execute(TABLES)
        self.ledger = Ledger(folder / "harness.log")
        self.lives: list[Life] = []
        self._nursery: subprocess.Popen[str] | None = None
        self.began = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *unused: object) -> None:
        if self._nursery is not None:
            assert self._nursery.stdin is not None
            self._nursery.stdin.close()
            self._nursery.wait(30)
        self.ledger.close()

    # ------------------------------------------------------------ the database

    def execute(self, statement: str, *params: Any) -> None:
        with psycopg.connect(self.dsn, autocommit=True) as conn:
            conn.execute(statement, params or None)

    def query(self, statement: str, *params: Any) -> list[tuple[Any, ...]]:
        """Through restarts of the server: asked again until it answers."""
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                with psycopg.connect(self.dsn, autocommit=True, connect_timeout=10) as conn:
                    return conn.execute(statement, params or None).fetchall()
            except psycopg.OperationalError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def value(self, statement: str, *params: Any) -> Any:
        return self.query(statement, *params)[0][0]

    def done(self) -> int:
        return self.value("select count(*) from onceward.archive_private")

    def live(self) -> int:
        return self.value("select count(*) from onceward.job_private where state <> 'dead_letter'")

    def until_done(self, count: int, *, within: float = PATIENCE) -> None:
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
        while not condition():
            done = self.done()
            if done > best:
                best, since = done, time.monotonic()
            if time.monotonic() - since > within:
                raise Hang(f"no job ended for {within:g} s, waiting for: {what}; {self.states()}")
            time.sleep(0.05)

    def states(self) -> dict[str, int]:
        return dict(self.query("select state, count(*) from onceward.jobs group by 1"))

    # ------------------------------------------------------------ workers

    def spawn(self, *, dsn: str | None = None, handlers_dsn: str | None = None, **settings: Any) -> Life:
        """A worker process, running as soon as it is forked; durations are seconds."""
        life = Life(len(self.lives) + 1, dsn or self.dsn)
        self.lives.append(life)
        nursery = self._ensure_nursery()
        assert nursery.stdin is not None
        spec = {
            "life": life.number,
            "folder": str(self.folder),
            "dsn": life.dsn,
            "handlers_dsn": handlers_dsn or life.dsn,
            "settings": settings,
        }
        nursery.stdin.write(json.dumps(spec) + "\n")
        nursery.stdin.flush()
        if not life.started.wait(PATIENCE):
            raise Hang(f"life {life.number} was not started")
        return life

    def signal(self, life: Life, what: str) -> None:
        number = {
            "kill": signal.SIGKILL,
            "stop": signal.SIGSTOP,
            "cont": signal.SIGCONT,
            "term": signal.SIGTERM,
        }[what]
        # Before and not after: what a process does once it is woken must not seem to come earlier.
        if what in {"cont", "term"}:
            self.ledger.write(what, life.number, now())
        with contextlib.suppress(ProcessLookupError):
            os.kill(life.pid, number)
            if what == "stop":
                until(lambda: _is_stopped(life.pid), within=5, what=f"{life.name} stopped")
        if what in {"kill", "stop"}:
            self.ledger.write(what, life.number, now())

    def until_exited(self, life: Life, within: float = PATIENCE) -> None:
        if not life.exited.wait(within):
            raise Hang(f"{life.name} (process {life.pid}) did not end within {within:g} s")

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

    def end_workers(self) -> list[str]:
        """Stop all workers gently; returns what went wrong."""
        alive = [life for life in self.lives if life.alive]
        for life in alive:
            self.signal(life, "term")
        problems = []
        for life in alive:
            if not life.exited.wait(60):
                problems.append(f"{life.name} did not end within 60 s of SIGTERM")
                self.signal(life, "kill")
                life.exited.wait(30)
            elif life.code != 0:
                problems.append(f"{life.name} ended with code {life.code}")
        return problems

    def _ensure_nursery(self) -> subprocess.Popen[str]:
        if self._nursery is None:
            with (self.folder / "nursery.txt").open("w") as output:
                self._nursery = subprocess.Popen(
                    [sys.executable, "-m", "tests.crash.nursery"],
                    cwd=ROOT,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=output,
                    text=True,
                )
            threading.Thread(target=self._listen, args=[self._nursery], daemon=True).start()
        return self._nursery

    def _listen(self, nursery: subprocess.Popen[str]) -> None:
        assert nursery.stdout is not None
        with nursery.stdout:
            for line in nursery.stdout:
                what, number, *rest = line.split()
                life = self.lives[int(number) - 1]
                if what == "started":
                    life.pid = int(rest[0])
                    life.started.set()
                else:
                    life.code = int(rest[0])
                    self.ledger.write("exit", life.number, rest[1])
                    life.exited.set()

    # ------------------------------------------------------------ judging

    def marks(self) -> History:
        """What was written outside the database up to now."""
        return History().read(self.folder)

    def output(self) -> str:
        """The logs of all workers."""
        path = self.folder / "workers.txt"
        return path.read_text() if path.exists() else ""

    def history(self) -> History:
        history = self.marks()
        with psycopg.connect(self.dsn) as conn:
            for row in _stream(
                conn,
                "select id::text, state, epoch, attempt, payload ->> 'token', coalesce(payload ->> 'mode', 'plain') from onceward.jobs",
            ):
                history.jobs[row[0]] = JobRow(*row[1:])
            history.attempts = [
                AttemptRow(*row)
                for row in _stream(
                    conn,
                    "select job_id::text, epoch, attempt, (extract(epoch from started_at) * 1000000)::bigint, "
                    "(extract(epoch from ended_at) * 1000000)::bigint, outcome, "
                    "(extract(epoch from retry_at) * 1000000)::bigint from onceward.attempts",
                )
            ]
            history.effects = list(_stream(conn, "select token, job_id::text, epoch from public.effect"))
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
        trouble = [*(problems or []), *self.end_workers()]
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

    def deadlocks(self) -> int:
        return self.value("select deadlocks from pg_stat_database where datname = current_database()")


def _is_stopped(pid: int) -> bool:
    """Whether no thread of the process runs any more, which takes a moment; or the process is gone."""
    try:
        states = [
            (task / "stat").read_text().rpartition(")")[2].split()[0]
            for task in Path(f"/proc/{pid}/task").iterdir()
        ]
    except OSError:
        return not Path(f"/proc/{pid}").exists()
    return all(state in "TtZX" for state in states)


def _stream(conn: psycopg.Connection[Any], statement: str) -> Iterator[tuple[Any, ...]]:
    with conn.cursor(name="history") as cursor:
        cursor.itersize = 20_000
        cursor.execute(statement)
        yield from cursor
