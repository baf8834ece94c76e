"""One system in one fresh database: its producer, its workers, and what can be seen of them."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from psycopg import sql

from onceward.bench.children import Child, resident_megabytes, wait_until
from onceward.bench.place import PACKAGE, Connection, Place
from onceward.bench.programs import tally
from onceward.bench.programs.raw import SCHEMA
from onceward.bench.systems import ONCEWARD, RAW, System
from onceward.install import upgrade

# Longest time for one command to a producer, and for a worker to handle its first job.
COMMAND_SECONDS = 240.0
START_SECONDS = 60.0


@dataclass(slots=True)
class Stage:
    place: Place
    system: System
    database: str
    folder: Path
    # Of the benchmark itself, for looking.
    observer: Connection
    _producer: Child | None = None
    _workers: list[Child] = field(default_factory=list)

    @classmethod
    @contextlib.contextmanager
    def opened(cls, place: Place, system: System) -> Iterator[Stage]:
        def prepare(database: str) -> None:
            _install(place, system, database)

        with (
            place.database(system.family, prepare) as database,
            tempfile.TemporaryDirectory(dir=place.folder) as folder,
            place.connect(database) as observer,
        ):
            stage = cls(place, system, database, Path(folder), observer)
            try:
                yield stage
            finally:
                stage.close()

    def close(self) -> None:
        for child in [*self._workers, *([self._producer] if self._producer else [])]:
            child.kill()
        self._workers.clear()
        self._producer = None

    # ------------------------------------------------------------ producing

    def ask(self, verb: str, **arguments: Any) -> dict[str, Any]:
        if self._producer is None:
            self._producer = self.child("produce", dict(self.system.produce))
            self._producer.ask(timeout=START_SECONDS)
        return self._producer.ask(timeout=COMMAND_SECONDS, verb=verb, **arguments)

    def fill(self, total: int, *, chunk: int = 1000, **options: Any) -> float:
        """Jobs in bulk, at the system's best.  Returns the rate."""
        answer = self.ask("bulk", total=total, chunk=min(chunk, total), **options)
        return float(answer["rate"])

    def settle(self) -> None:
        """End the producer, and do what autovacuum would do within a minute: plans stay sane for all systems."""
        if self._producer is not None:
            self._producer.kill()
            self._producer = None
        self.observer.execute("analyze")

    # ------------------------------------------------------------ working

    def start(self, workers: int = 1) -> None:
        """So many worker processes.  Those of Onceward have one parent, as with `onceward worker --processes`."""
        if self.system.family == ONCEWARD:
            self._workers.append(self.child("work", {**self.system.work, "processes": workers}))
            return
        for _ in range(workers):
            self._workers.append(self.child("work", dict(self.system.work)))

    def stop(self) -> None:
        """End the workers, and wait until their sessions are gone: only then has the server counted all they did."""
        for worker in self._workers:
            worker.kill()
        self._workers.clear()
        wait_until(lambda: self.connections() == 0, timeout=START_SECONDS, step=0.01)

    def handled(self) -> int:
        return sum(tally.counts(self.folder))

    def working(self) -> int:
        """Worker processes that have handled something."""
        return sum(1 for count in tally.counts(self.folder) if count)

    def check(self) -> None:
        for worker in self._workers:
            worker.check()

    def wait_handled(self, count: int, *, timeout: float, step: float = 0.002) -> bool:
        """Wait until so many jobs have been handled.  False when the time is over."""

        def reached() -> bool:
            if self.handled() >= count:
                return True
            self.check()
            return False

        return wait_until(reached, timeout=timeout, step=step)

    def wait_finished(self, *, timeout: float) -> bool:
        """Wait until the database shows no unfinished job."""
        return wait_until(lambda: not self.query(self.system.unfinished), timeout=timeout, step=0.01)

    # ------------------------------------------------------------ looking

    def query(self, statement: str) -> Any:
        row = self.observer.execute(statement.encode()).fetchone()
        return None if row is None else row[0]

    def connections(self) -> int:
        """Of the measured system.  Those on which Onceward runs its checks, for a moment every half minute, are apart."""
        return int(
            self.query(
                "select count(*) from pg_stat_activity where datname = current_database() "
                "and backend_type = 'client backend' and application_name not like 'onceward bench%' "
                "and application_name <> 'onceward monitors'"
            )
        )

    def memory(self) -> float:
        """Megabytes of all programs that work; children of theirs are not counted."""
        return sum(resident_megabytes(worker.pid) for worker in self._workers)

    def delays(self) -> list[float]:
        return tally.delays(self.folder)

    def rows(self) -> dict[str, int]:
        """Rows of each table that holds more than a handful."""
        tables = self.observer.execute(
            "select n.nspname, c.relname from pg_class as c join pg_namespace as n on n.oid = c.relnamespace "
            "where c.relkind = 'r' and n.nspname not in ('pg_catalog', 'information_schema') "
            "and n.nspname not like 'pg_toast%' order by 1, 2"
        ).fetchall()
        found = {}
        for schema, table in tables:
            count = self.observer.execute(
                sql.SQL("select count(*) from {}").format(sql.Identifier(schema, table))
            ).fetchone()
            if count is not None and count[0] > 20:
                found[f"{schema}.{table}"] = count[0]
        return found

    def transactions(self) -> int:
        """Of all sessions that have ended.  Everything a worker calls is a transaction of its own, and a round trip."""
        return int(
            self.query(
                "select xact_commit + xact_rollback from pg_stat_database where datname = current_database()"
            )
        )

    def log_position(self) -> int:
        """Bytes of write-ahead log that the server has written since it was created."""
        return int(self.query("select pg_current_wal_insert_lsn() - '0/0'::pg_lsn"))

    @contextlib.contextmanager
    def held_snapshot(self) -> Iterator[None]:
        """Another session holds a snapshot, so that nothing that dies meanwhile can be vacuumed."""
        with self.place.connect(self.database, name="onceward bench snapshot") as other:
            other.execute("begin isolation level repeatable read")
            other.execute("select count(*) from pg_class")
            yield
            other.execute("rollback")

    def child(self, role: str, options: dict[str, Any] | None = None) -> Child:
        """A process of the system in this database; whoever starts it ends it."""
        command = [self.system.python, "-m", PACKAGE, self.system.program, role, json.dumps(options or {})]
        return Child(
            command,
            _environment(self.place, self.system, self.database, self.folder),
            self.folder / f"{role}.log",
        )


def _environment(place: Place, system: System, database: str, folder: Path) -> dict[str, str]:
    # Variables that name another server, or change how Python runs, are not for these processes.
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PG", "PYTHON", "ONCEWARD_"))
    }
    path = [str(place.folder / "lib")]
    if system.python == sys.executable:
        # This very Onceward, also when it is not installed.
        path.append(str(Path(__file__).parents[2]))
    return {
        **kept,
        "PYTHONPATH": os.pathsep.join(path),
        "ONCEWARD_BENCH_DSN": place.server.dsn(database),
        tally.FOLDER: str(folder),
    }


def _install(place: Place, system: System, database: str) -> None:
    if system.family == ONCEWARD:
        upgrade(place.server.dsn(database))
    elif system.family == RAW:
        with place.connect(database) as connection:
            connection.execute(SCHEMA.encode())
    else:
        subprocess.run(
            [system.python, "-m", PACKAGE, system.program, "install", "{}"],
            env=_environment(place, system, database, place.folder),
            stdin=subprocess.DEVNULL,
            check=True,
            capture_output=True,
            timeout=START_SECONDS,
        )


def steady_rate(stage: Stage, *, windows: int, seconds: float, total: int) -> list[float]:
    """Jobs per second in each of some windows; fewer when the jobs run out."""
    found = []
    for _ in range(windows):
        began, before = time.monotonic(), stage.handled()
        stage.wait_handled(total, timeout=seconds)
        took, now = time.monotonic() - began, stage.handled()
        if took >= seconds / 2:
            found.append((now - before) / took)
        if now >= total:
            break
    return found
