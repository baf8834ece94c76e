"""How worker processes tell the benchmark what they have handled: a counter in a small mapped file."""

from __future__ import annotations

import itertools
import mmap
import os
import struct
import threading
from pathlib import Path
from time import monotonic_ns

# Of 8 bytes: how many jobs this process has handled.
COUNTER = struct.Struct("<q")
COUNTS, DELAYS = "count.", "delay."
FOLDER = "ONCEWARD_BENCH_FOLDER"


class Tally:
    """What one worker process has handled.  Cheap enough not to show in the figures."""

    def __init__(self) -> None:
        folder = Path(os.environ[FOLDER])
        with (folder / f"{COUNTS}{os.getpid()}").open("w+b") as file:
            file.write(bytes(COUNTER.size))
            file.flush()
            self._map = mmap.mmap(file.fileno(), COUNTER.size)
        self._delays = (folder / f"{DELAYS}{os.getpid()}").open("w", buffering=1)
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()

    def hit(self, sent: int) -> None:
        """The handler has been entered.  `sent`: when its enqueue call began (CLOCK_MONOTONIC, ns), or 0."""
        if sent:
            self._delays.write(f"{monotonic_ns() - sent}\n")
        COUNTER.pack_into(self._map, 0, next(self._numbers))

    def hit_from_thread(self, sent: int) -> None:
        with self._lock:
            self.hit(sent)


def counts(folder: Path) -> list[int]:
    """How many jobs each worker process has handled so far."""
    found = []
    for file in folder.glob(COUNTS + "*"):
        data = file.read_bytes()
        found.append(COUNTER.unpack(data)[0] if len(data) == COUNTER.size else 0)
    return found


def delays(folder: Path) -> list[float]:
    """Milliseconds from the start of the enqueue call to handler entry, in rising order."""
    lines = (line for file in folder.glob(DELAYS + "*") for line in file.read_text().splitlines())
    return sorted(int(line) / 1e6 for line in lines)
