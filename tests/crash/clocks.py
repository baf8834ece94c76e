"""Processes whose clock is wrong, by libfaketime."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from pathlib import Path

from tests.crash.verdict import CannotInject

LIBRARY = "libfaketime.so.1"
ASK = "import time; print(time.time() - time.monotonic())"


def environment(skew: int) -> dict[str, str] | None:
    """For a process whose clock is wrong by so many seconds; None for one whose clock is right.

    Raises CannotInject where there is no way to make it wrong.
    """
    if not skew:
        return None
    # CLOCK_MONOTONIC stays as it is: it has no time of day that could be wrong.
    faked = {
        **os.environ,
        "LD_PRELOAD": str(_library()),
        "FAKETIME": f"{skew:+d}s",
        "DONT_FAKE_MONOTONIC": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        # Each process reads its own clock; nothing is shared with others.
        "FAKETIME_NO_CACHE": "1",
    }
    told = subprocess.run([sys.executable, "-c", ASK], env=faked, check=False, capture_output=True, text=True)
    right = time.time() - time.monotonic()
    # A library that does not fit the machine is passed over with a word on stderr.
    if told.returncode or abs(float(told.stdout) - right - skew) > 1:
        raise CannotInject(
            f"libfaketime does not move the clock here: {told.stderr.strip() or told.stdout.strip()}"
        )
    return faked


def _library() -> Path:
    package = importlib.util.find_spec("libfaketime")
    inside = [Path(package.origin).parent.rglob(LIBRARY)] if package is not None and package.origin else []
    system = [Path(folder).glob(f"**/faketime/{LIBRARY}") for folder in ("/usr/lib", "/usr/local/lib")]
    for places in [*inside, *system]:
        for place in places:
            return place
    raise CannotInject(
        'moving the clock of a process needs libfaketime ("pip install libfaketime", on Linux)'
    )
