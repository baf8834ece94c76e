"""Worker processes that can be hurt."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from tests.crash import clocks
from tests.crash.ledger import Ledger, now
from tests.crash.waiting import PATIENCE, Hang, until

ROOT = Path(__file__).parents[2]
SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "cont": signal.SIGCONT, "term": signal.SIGTERM}


class Life:
    """One worker process."""

    def __init__(self, number: int, dsn: str) -> None:
        self.number = number
        self.dsn = dsn
        self.pid = 0
        self.started = threading.Event()
        self.exited = threading.Event()
        self.code: int | None = None

    @property
    def alive(self) -> bool:
        return not self.exited.is_set()

    @property
    def name(self) -> str:
        return f"life-{self.number}"


class Fleet:
    """Starts worker processes, does things to them and writes down when."""

    def __init__(self, folder: Path, dsn: str) -> None:
        self.folder = folder
        self.dsn = dsn
        self.ledger = Ledger(folder / "harness.log")
        self.lives: list[Life] = []
        # By how many seconds the clock of each process is wrong.
        self.skews: dict[int, int] = {}
        # Whoever was sent a signal that ends it, and whom it ends at once.
        self._ended: set[Life] = set()
        self._killed: set[Life] = set()
        # By the skew of their workers.
        self._nurseries: dict[int, subprocess.Popen[str]] = {}

    def close(self) -> None:
        for nursery in self._nurseries.values():
            assert nursery.stdin is not None
            nursery.stdin.close()
            nursery.wait(30)
        self.ledger.close()

    def spawn(
        self,
        *,
        dsn: str | None = None,
        handlers_dsn: str | None = None,
        sink: int = 0,
        skew: int = 0,
        **settings: Any,
    ) -> Life:
        """A worker process, running as soon as it is forked; durations are seconds.

        `sink` is the port where its handlers' outside effects go, `skew` by how many seconds its clock is wrong.
        """
        life = Life(len(self.lives) + 1, dsn or self.dsn)
        self.lives.append(life)
        self.skews[life.number] = skew
        nursery = self._ensure_nursery(skew)
        assert nursery.stdin is not None
        spec = {
            "life": life.number,
            "folder": str(self.folder),
            "dsn": life.dsn,
            "handlers_dsn": handlers_dsn or life.dsn,
            "sink": sink,
            "skew": skew,
            "settings": settings,
        }
        nursery.stdin.write(json.dumps(spec) + "\n")
        nursery.stdin.flush()
        if not life.started.wait(PATIENCE):
            raise Hang(f"life {life.number} was not started")
        return life

    def signal(self, life: Life, what: str) -> None:
        if what in {"kill", "term"}:
            self._ended.add(life)
        if what == "kill":
            self._killed.add(life)
        # Before and not after: what a process does once it is woken must not seem to come earlier.
        if what in {"cont", "term"}:
            self.ledger.write(what, life.number, now())
        with contextlib.suppress(ProcessLookupError):
            os.kill(life.pid, SIGNALS[what])
            if what == "stop":
                until(lambda: _is_stopped(life.pid), within=5, what=f"{life.name} stopped")
        if what in {"kill", "stop"}:
            self.ledger.write(what, life.number, now())

    def until_exited(self, life: Life, within: float = PATIENCE) -> None:
        if not life.exited.wait(within):
            raise Hang(f"{life.name} (process {life.pid}) did not end within {within:g} s")

    def end_workers(self) -> list[str]:
        """Stop all workers gently; returns what went wrong."""
        problems = [
            f"{life.name} ended by itself, with code {life.code}"
            for life in self.lives
            if not life.alive and life not in self._ended
        ]
        # One that was killed a moment ago may not have been seen to end yet.
        for life in self._killed:
            self.until_exited(life)
        alive = [life for life in self.lives if life.alive]
        for life in alive:
            self.signal(life, "term")
        for life in alive:
            if not life.exited.wait(60):
                problems.append(f"{life.name} did not end within 60 s of SIGTERM")
                self.signal(life, "kill")
                life.exited.wait(30)
            elif life.code == -signal.SIGTERM and not self._has_begun(life):
                continue  # Asked before it could listen, while it was still being imported.
            elif life.code != 0:
                problems.append(f"{life.name} ended with code {life.code}")
        return problems

    def _has_begun(self, life: Life) -> bool:
        return re.search(rf"\b{re.escape(life.name)}\b(?!-)", self.output()) is not None

    def output(self) -> str:
        """The logs of all workers."""
        path = self.folder / "workers.txt"
        return path.read_text() if path.exists() else ""

    def _ensure_nursery(self, skew: int) -> subprocess.Popen[str]:
        if skew not in self._nurseries:
            with (self.folder / "nursery.txt").open("a") as output:
                nursery = subprocess.Popen(
                    [sys.executable, "-m", "tests.crash.nursery"],
                    cwd=ROOT,
                    env=clocks.environment(skew),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=output,
                    text=True,
                )
            self._nurseries[skew] = nursery
            threading.Thread(target=self._listen, args=[nursery], daemon=True).start()
        return self._nurseries[skew]

    def _listen(self, nursery: subprocess.Popen[str]) -> None:
        assert nursery.stdout is not None
        with nursery.stdout:
            for line in nursery.stdout:
                what, number, *rest = line.split()
                life = self.lives[int(number) - 1]
                if what == "started":
                    life.pid = int(rest[0])
                    life.started.set()
                else:
                    life.code = int(rest[0])
                    self.ledger.write("exit", life.number, rest[1])
                    life.exited.set()


def _is_stopped(pid: int) -> bool:
    """Whether no thread of the process runs any more, which takes a moment; or the process is gone."""
    try:
        states = [
            (task / "stat").read_text().rpartition(")")[2].split()[0]
            for task in Path(f"/proc/{pid}/task").iterdir()
        ]
    except OSError:
        return not Path(f"/proc/{pid}").exists()
    return all(state in "TtZX" for state in states)
