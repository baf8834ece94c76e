"""How a person starts our commands: an environment that is not active is not on the path."""

from __future__ import annotations

import contextlib
import shlex
import shutil
import sys
from pathlib import Path


def program() -> str:
    """`onceward`, or the way to it from here."""
    if shutil.which("onceward"):
        return "onceward"
    here = Path(sys.executable).parent / "onceward"
    with contextlib.suppress(ValueError):
        here = here.relative_to(Path.cwd())
    return shlex.quote(str(here))
