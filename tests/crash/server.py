"""The PostgreSQL server of crash tests."""

from __future__ import annotations

import fcntl
import shutil
import socket
import tempfile
from pathlib import Path

import psycopg

from onceward.embedded import EmbeddedServer
from onceward.install import upgrade
from onceward.testing import database as testing
from tests.crash.arena import Arena

TABLES = """
create table public.effect (id bigserial primary key, token text not null, job_id uuid not null, epoch bigint not null);
create function public.effect_and_end(p_token text, p_job_id uuid, p_epoch bigint) returns void language plpgsql as $$
begin
  insert into public.effect (token, job_id, epoch) values (p_token, p_job_id, p_epoch);
  perform onceward.complete(p_job_id, p_epoch);
end;
$$;
"""
TEMPLATE = "crash_template"


class Server:
    """The server of a test session: durable as PostgreSQL is by default, on a file system in memory when there is one."""

    def __init__(self, *, disk: Path | None = None, **settings: str) -> None:
        testing._remove_abandoned()
        self.place = Path(tempfile.mkdtemp(prefix=testing.PREFIX, dir=testing._folder()))
        # Held as long as this process lives: what is not locked has been abandoned, and is removed by the next session.
        self._lock = (self.place / "new.lock").open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        (self.place / "new.lock").rename(self.place / testing.LOCK)
        self.port = free_port()
        self._data = (disk or self.place) / "pg"
        self._settings = {"max_connections": "400", "max_wal_size": "4GB", **settings}
        self.start()
        self._count = 0
        self._has_template = False

    def start(self) -> None:
        """Start it, unless it runs."""
        self.embedded = EmbeddedServer.start(self._data, port=self.port, settings=self._settings)

    def close(self) -> None:
        self.embedded.stop("fast")
        shutil.rmtree(self.place, ignore_errors=True)
        self._lock.close()

    def arena(self, seed: int, *, folder: Path | None = None) -> Arena:
        """A new database; its ledgers are kept in `folder`, or in one of this server's own."""
        self._count += 1
        name = f"crash_{self._count}"
        if not self._has_template:
            # Installed once, and copied for each fault.
            self.embedded.create_database(TEMPLATE)
            upgrade(self.embedded.dsn(TEMPLATE))
            with psycopg.connect(self.embedded.dsn(TEMPLATE)) as conn:
                conn.execute(TABLES)
            self._has_template = True
        self.embedded.create_database(name, template=TEMPLATE)
        folder = folder or self.place / name
        folder.mkdir()
        return Arena(self, name, folder, seed)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
