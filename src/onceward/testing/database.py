"""A fresh database for every test, cloned from a template in which Onceward is installed.

Where the server comes from, first match:

ONCEWARD_TEST_DSN     an administrator's database on a running server; databases are created and dropped beside it
ONCEWARD_TEST_PG_BIN  the programs of an installed PostgreSQL, from which a server of our own is started
otherwise             the embedded PostgreSQL

A server of our own lives in a temporary directory and ends with the test session; under pytest-xdist each worker process
has one.  It does not wait for the disk, which is safe for data that nobody keeps.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import signal
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, LiteralString, Self

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from onceward.embedded import EmbeddedServer
from onceward.embedded_account import Account
from onceward.install import upgrade
from onceward.testing.clock import Clock, install_clock

__all__ = ["Database", "DatabaseServer"]

PREFIX = "onceward-test-"
LOCK = "session.lock"
# Days after today that have partitions.  Rows of later days go to the default ones, as when no worker has run for long.
DAYS_AHEAD = 1
# Workers keep to that as well: the first one of each test would make the partitions that the template does without.
_KEEP_TO_IT: LiteralString = """
do $$
begin
  execute replace(pg_get_functiondef('onceward.ensure_partitions(integer)'::regprocedure), 'DEFAULT 14', 'DEFAULT 1');
end;
$$
"""
SETTINGS = {
    "fsync": "off", "full_page_writes": "off", "max_connections": "200", "max_wal_size": "2GB",
    # A test is alone on its server: autovacuum, in whichever database, has transactions, and seals wait for those.
    "autovacuum_naptime": "1d",
    # The servers of most systems compile what looks costly: seconds for a view over many tables, which hold a few rows here.
    "jit": "off",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Database:
    """One database of tests."""

    name: str
    dsn: str

    @property
    def clock(self) -> Clock:
        return Clock(self.dsn)


@dataclass(slots=True)
class DatabaseServer:
    """Creates and drops databases of tests.  Use as a context manager, or call close()."""

    admin_dsn: str
    embedded: EmbeddedServer | None = None
    _lock: IO[str] | None = None
    _admin: psycopg.Connection[tuple[Any, ...]] | None = None
    _template: Database | None = None
    _tag: str = field(default_factory=lambda: f"{os.getpid()}_{secrets.token_hex(3)}")
    _count: int = 0

    @classmethod
    def from_environment(cls) -> DatabaseServer:
        if dsn := os.environ.get("ONCEWARD_TEST_DSN"):
            return cls(dsn)
        programs = os.environ.get("ONCEWARD_TEST_PG_BIN")
        return cls.start(bin_dir=Path(programs) if programs else None)

    @classmethod
    def start(cls, *, bin_dir: Path | None = None) -> DatabaseServer:
        """A new server in a temporary directory."""
        _remove_abandoned()
        place = Path(tempfile.mkdtemp(prefix=PREFIX, dir=_folder()))
        # Held as long as this process lives, however it ends: what is not locked has been abandoned.
        lock = (place / "new.lock").open("w")
        fcntl.flock(lock, fcntl.LOCK_EX)
        (place / "new.lock").rename(place / LOCK)
        try:
            embedded = EmbeddedServer.start(place / "pg", bin_dir=bin_dir, settings=SETTINGS)
        except BaseException:
            lock.close()
            shutil.rmtree(place, ignore_errors=True)
            raise
        return cls(embedded.dsn(), embedded, lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()

    @property
    def template(self) -> Database:
        """Onceward and the virtual clock, installed once."""
        if self._template is None:
            template = self.create("template")
            upgrade(template.dsn, days_ahead=DAYS_AHEAD)
            install_clock(template.dsn)
            with psycopg.connect(template.dsn) as connection:
                connection.execute(_KEEP_TO_IT)
            self._template = template
        return self._template

    def clone(self, template: Database | None = None) -> Database:
        """A fresh database with Onceward and the virtual clock in it, in some 30 ms.

        `template` is a clone to which more was added, such as tables of your own; nobody may be connected to it.
        """
        self._count += 1
        return self.create(str(self._count), template=(template or self.template).name)

    @contextlib.contextmanager
    def cloned(self, template: Database | None = None) -> Iterator[Database]:
        database = self.clone(template)
        try:
            yield database
        finally:
            self.drop(database)

    def create(self, name: str, *, template: str = "template1", owner: str | None = None) -> Database:
        """An empty database, or a copy of another; its full name tells whose it is."""
        name = f"onceward_test_{self._tag}_{name}"
        command = sql.SQL("create database {} template {}").format(
            sql.Identifier(name), sql.Identifier(template)
        )
        if self.embedded is not None:
            # Files instead of log: half the work where nothing is written to a disk.  It needs checkpoints, with which a
            # server that others use would better not be bothered.
            command += sql.SQL(" strategy file_copy")
        if owner is not None:
            command += sql.SQL(" owner {}").format(sql.Identifier(owner))
        self._administer(command)
        return Database(name, make_conninfo(self.admin_dsn, dbname=name))

    def drop(self, database: Database) -> None:
        self._administer(
            sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(database.name))
        )

    def close(self) -> None:
        """Stop a server of our own and remove it; on another one, remove the template.  Roles stay there."""
        if self.embedded is not None:
            _remove(self.embedded)
        elif self._template is not None:
            self.drop(self._template)
        self._template = None
        if self._admin is not None:
            self._admin.close()
        if self._lock is not None:
            self._lock.close()

    def _administer(self, command: LiteralString | sql.Composed) -> None:
        # Kept open: a connection costs a tenth of a clone.
        if self._admin is None or self._admin.closed:
            self._admin = psycopg.connect(self.admin_dsn, autocommit=True)
        self._admin.execute(command)


def _folder() -> Path:
    """Memory when there is plenty: a clone is some 500 files, which takes half a second on a slow disk."""
    memory = Path("/dev/shm")  # noqa: S108 - the directory made in it has a random name and is private
    if memory.is_dir() and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free >= 4 * 2**30:
        return memory
    return Path(tempfile.gettempdir())


def _remove(embedded: EmbeddedServer) -> None:
    embedded.stop("immediate")
    shutil.rmtree(embedded.data_dir.parent, ignore_errors=True)


def _remove_abandoned() -> None:
    """Stop and remove servers whose test session was killed."""
    for place in _folder().glob(PREFIX + "*"):
        # Another user's, in use, or removed by somebody else meanwhile: not ours to care about.
        with contextlib.suppress(OSError), (place / LOCK).open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            data_dir = place / "pg"
            # Only its process is asked for; the programs of its version may be gone.
            left = EmbeddedServer(data_dir, bin_dir=data_dir, account=Account.of(data_dir))
            if left.pid is not None:
                os.kill(left.pid, signal.SIGQUIT)
            shutil.rmtree(place, ignore_errors=True)
