"""Who runs the embedded server: PostgreSQL refuses to be root, so root needs somebody else for it."""

from __future__ import annotations

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
        try:
            entry = pwd.getpwnam(SERVER_USER)
        except KeyError:
            made = None
            if useradd := shutil.which("useradd", path="/usr/sbin:/sbin:/usr/bin:/bin"):
                arguments = ["--system", "--user-group", "--no-create-home", "--shell", "/bin/false"]
                made = subprocess.run([useradd, *arguments, SERVER_USER], check=False, capture_output=True)
            # Without useradd, or on a read-only /etc, the user that owns nothing has to do.
            # Exit status 9: another process has just added the same user.
            known = made is not None and made.returncode in {0, 9}
            entry = pwd.getpwnam(SERVER_USER if known else "nobody")
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
