"""Who runs the embedded server: PostgreSQL refuses to be root, so root needs somebody else for it."""

from __future__ import annotations

import fcntl
import os
import pwd
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from onceward.errors import OncewardError

# What PostgreSQL runs as when we are root.
SERVER_USER = "onceward"


@dataclass(frozen=True, slots=True)
class Account:
    """The operating system's user that owns a data directory and runs its server."""

    uid: int
    gid: int

    @classmethod
    def of(cls, data_dir: Path) -> Account:
        try:
            owner = data_dir.stat()
        except FileNotFoundError:
            owner = None
        if os.geteuid() != 0:
            if owner is not None and owner.st_uid != os.geteuid():
                raise OncewardError(
                    f'data directory "{data_dir}" belongs to another user',
                    detail=f"Its owner has user id {owner.st_uid}, this process has {os.geteuid()}.",
                    hint="Set ONCEWARD_HOME to a directory of your own.",
                )
            return cls(os.geteuid(), os.getegid())
        if owner is not None and owner.st_uid != 0:
            return cls(owner.st_uid, owner.st_gid)
        return cls._unprivileged()

    @classmethod
    def _unprivileged(cls) -> Account:
        entry = _entry() or _added() or pwd.getpwnam("nobody")
        return cls(entry.pw_uid, entry.pw_gid)

    def take(self, path: Path) -> None:
        if os.geteuid() == 0:
            os.chown(path, self.uid, self.gid)

    def let_through(self, path: Path) -> None:
        """As root, let this account reach `path`. Its parents become searchable, not readable."""
        if os.geteuid() != 0:
            return
        for parent in path.absolute().parents:
            mode = parent.stat().st_mode
            if not mode & 0o001 and parent.stat().st_uid != self.uid:
                parent.chmod(mode | 0o001)


def _entry() -> pwd.struct_passwd | None:
    try:
        return pwd.getpwnam(SERVER_USER)
    except KeyError:
        return None


def _added() -> pwd.struct_passwd | None:
    """The user, added now.  None without useradd, or on a read-only /etc: then the user that owns nothing has to do."""
    useradd = shutil.which("useradd", path="/usr/sbin:/sbin:/usr/bin:/bin")
    if useradd is None:
        return None
    # One at a time: of two that run at once, useradd tells both of success, and one of them has no user.
    lock = os.open("/etc", os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if _entry() is None:
            arguments = ["--system", "--user-group", "--no-create-home", "--shell", "/bin/false"]
            subprocess.run([useradd, *arguments, SERVER_USER], check=False, capture_output=True)
        return _entry()
    finally:
        os.close(lock)
