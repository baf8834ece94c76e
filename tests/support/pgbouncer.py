"""PgBouncer in transaction mode before a server of the tests."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import threading
from pathlib import Path
from typing import Self

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

PROGRAM = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
MISSING = "PgBouncer is not installed (Debian: apt-get install pgbouncer)"
# It starts in milliseconds; this only bounds a hang.
START_SECONDS = 30.0


class PgBouncer:
    """Few server connections for many clients.  It keeps its port when it is killed and started again."""

    def __init__(self, folder: Path, server: str, *, pool_size: int) -> None:
        """`folder` exists and is its own; `server` is the conninfo of any database of the server."""
        assert PROGRAM is not None, MISSING
        self._given = conninfo_to_dict(server)
        self.user = str(self._given.get("user", "postgres"))
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self._log = folder / "pgbouncer.txt"
        settings = folder / "pgbouncer.ini"
        self._write(folder, settings, pool_size)
        self._command = [PROGRAM, *self._other_user(folder), str(settings)]
        self._process: subprocess.Popen[str] | None = None
        self._reader = threading.Thread()
        self._is_up = False

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *unused: object) -> None:
        self.kill()

    def dsn(self, database: str) -> str:
        return make_conninfo(host="127.0.0.1", port=self.port, dbname=database, user=self.user)

    def start(self) -> None:
        """Returns when it listens."""
        self._process = subprocess.Popen(self._command, stderr=subprocess.PIPE, text=True)
        self._is_up = False
        told = threading.Event()
        self._reader = threading.Thread(target=self._read, args=[self._process, told], daemon=True)
        self._reader.start()
        if not told.wait(START_SECONDS) or not self._is_up:
            self.kill()
            raise AssertionError(f"PgBouncer did not start:\n{self._log.read_text()[-2000:]}")

    def kill(self) -> None:
        """SIGKILL: its connections to both sides end without a farewell."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            self._reader.join()

    def count(self, what: str) -> int:
        """How many `clients` or `servers` it has now, without this question."""
        with psycopg.connect(self.dsn("pgbouncer"), autocommit=True) as console:
            shown = psycopg.ClientCursor(console).execute(f"show {what}").fetchall()
        return sum("pgbouncer" not in row for row in shown)

    def _write(self, folder: Path, settings: Path, pool_size: int) -> None:
        # Whoever says this name is let in, as by the server of the tests itself.
        (folder / "users.txt").write_text(f'"{self.user}" ""\n')
        settings.write_text(
            f"[databases]\n* = host={self._given['host']} port={self._given.get('port', 5432)} user={self.user}\n"
            f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {self.port}\nunix_socket_dir =\n"
            f"auth_type = any\nauth_file = {folder}/users.txt\nadmin_users = {self.user}\n"
            f"pool_mode = transaction\ndefault_pool_size = {pool_size}\nmax_client_conn = 400\n"
            "ignore_startup_parameters = extra_float_digits\nlog_connections = 0\nlog_disconnections = 0\n"
        )

    def _other_user(self, folder: Path) -> list[str]:
        """It refuses to run as root."""
        if os.geteuid() != 0:
            return []
        for path in (folder, *folder.parents):
            mode = path.stat().st_mode
            if not mode & 0o001:
                path.chmod(mode | 0o011)
        for path in folder.iterdir():
            path.chmod(path.stat().st_mode | 0o044)
        # The owner of the server's socket folder can reach the socket.
        host = Path(str(self._given["host"]))
        return ["-u", host.owner() if host.is_absolute() else "nobody"]

    def _read(self, process: subprocess.Popen[str], told: threading.Event) -> None:
        """All that it says, because a full pipe would stop it.  Tells when it listens, or has ended."""
        assert process.stderr is not None
        with process.stderr, self._log.open("a") as log:
            for line in process.stderr:
                log.write(line)
                log.flush()
                if "process up" in line:
                    self._is_up = True
                    told.set()
        told.set()
