"""Where the benchmark runs: a PostgreSQL server of its own, with default settings, and nothing left behind.

The server is the embedded one, in a new directory beside the default data directory, so that it writes to the same
disk.  Each run gets a database of its own, copied from a template of its system.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from onceward.embedded import EmbeddedServer, default_data_dir
from onceward.embedded_account import Account
from onceward.errors import OncewardError

PREFIX = "bench-run-"
LOCK = "lock"
# What must be at its default for figures to count; the rest of the settings is reported.
DURABLE = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}
REPORTED = (
    *DURABLE, "wal_sync_method", "wal_level", "shared_buffers", "max_wal_size", "checkpoint_timeout", "autovacuum",
    "max_connections", "commit_delay",
)  # fmt: skip

Connection = psycopg.Connection[tuple[Any, ...]]


@dataclass(slots=True)
class Place:
    folder: Path
    server: EmbeddedServer
    _templates: dict[str, str] = field(default_factory=dict)
    _count: int = 0

    @classmethod
    @contextlib.contextmanager
    def opened(cls) -> Iterator[Place]:
        home = default_data_dir().parent
        home.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(home)
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=home))
        # Held as long as this process lives, however it ends: what is not locked has been abandoned.
        with (folder / LOCK).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            server: EmbeddedServer | None = None
            try:
                shutil.copytree(
                    Path(__file__).parent / "programs",
                    folder / "lib" / PACKAGE,
                    ignore=shutil.ignore_patterns("__pycache__"),
                )
                server = EmbeddedServer.start(folder / "pg")
                place = cls(folder, server)
                place.check_durability()
                yield place
            finally:
                with _undisturbed():
                    if server is not None:
                        # Without a checkpoint: its data goes anyway.
                        server.stop("immediate")
                    else:
                        _kill(folder / "pg")
                    shutil.rmtree(folder, ignore_errors=True)

    @contextlib.contextmanager
    def database(self, system: str, prepare: Callable[[str], None]) -> Iterator[str]:
        """The name of a fresh database in which `prepare` has been run, on a template that is made once."""
        if system not in self._templates:
            name = f"template_{system}"
            self.server.create_database(name)
            prepare(name)
            with self.connect(name) as connection:
                connection.execute(
                    "create table caller_row (id bigint generated always as identity, note text)"
                )
                # Bring what the template left in the log to an end before anything is measured.
                connection.execute("vacuum analyze")
            self._templates[system] = name
        self._count += 1
        name = f"run_{self._count}_{system}"
        self.server.create_database(name, self._templates[system])
        try:
            yield name
        finally:
            with _undisturbed(), contextlib.suppress(psycopg.Error, OncewardError), self.connect() as admin:
                admin.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))

    def connect(self, database: str = "postgres", *, name: str = "onceward bench") -> Connection:
        return psycopg.connect(self.server.dsn(database), autocommit=True, application_name=name)

    def settings(self) -> dict[str, str]:
        with self.connect() as connection:
            rows = connection.execute(
                "select name, current_setting(name) from pg_settings where name = any (%s) order by name",
                [list(REPORTED)],
            ).fetchall()
        return dict(rows)

    def server_version(self) -> str:
        with self.connect() as connection:
            row = connection.execute("select current_setting('server_version')").fetchone()
        assert row is not None
        return str(row[0])

    def check_durability(self) -> None:
        found = self.settings()
        wrong = {name: found[name] for name, wanted in DURABLE.items() if found[name] != wanted}
        if wrong:
            raise OncewardError(
                "the server of the benchmark is not durable: "
                + ", ".join(f"{name} = {value}" for name, value in wrong.items()),
                detail="Figures without durability mean nothing here.",
                hint="Remove settings of PostgreSQL from the environment.",
            )


# The name under which the copied programs run.
PACKAGE = "bench_programs"


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """A second Ctrl-C must not keep us from cleaning up."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _kill(data_dir: Path) -> None:
    if not data_dir.exists():
        return
    # Only its process is asked for; it may be of another version, or half-way through its start.
    server = EmbeddedServer(data_dir, bin_dir=data_dir, account=Account.of(data_dir))
    pid = server.pid
    if pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGQUIT)


def _remove_abandoned(home: Path) -> None:
    for folder in home.glob(PREFIX + "*"):
        # In use, or removed by somebody else meanwhile: not ours to care about.
        with contextlib.suppress(OSError), (folder / LOCK).open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _kill(folder / "pg")
            shutil.rmtree(folder, ignore_errors=True)
