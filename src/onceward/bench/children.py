"""The processes of a run: a producer that takes commands, and workers that work until they are ended."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from onceward.errors import OncewardError


class Child:
    """A process in a session of its own: Ctrl-C reaches the benchmark alone, which ends its children itself."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self._log = log
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                command,
                env=environment,
                cwd=log.parent,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def check(self) -> None:
        """Raise when the process has ended by itself."""
        if self._process.poll() is not None:
            raise OncewardError(
                f"a measured process ended with exit status {self._process.returncode}", detail=self._tail()
            )

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait(10)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def ask(self, *, timeout: float, **command: Any) -> dict[str, Any]:
        """One command, one answer.  Without a command: the line that says that the process is ready."""
        pipe, answers = self._process.stdin, self._process.stdout
        assert pipe is not None
        assert answers is not None
        if command:
            try:
                pipe.write(json.dumps(command).encode() + b"\n")
                pipe.flush()
            except BrokenPipeError:
                self._process.wait(10)
                self.check()
        if not select.select([answers], [], [], timeout)[0]:
            raise TimeoutError(f"no answer to {command.get('verb', 'start')} within {timeout:g} s")
        line = answers.readline()
        if not line:
            self._process.wait(10)
            self.check()
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _tail(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-15:])


def resident_megabytes(pid: int) -> float:
    """Memory of one process that is not shared away or swapped out (RSS)."""
    status = Path(f"/proc/{pid}/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmRSS"))
        return int(line.split()[1]) / 1024
    shown = subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], check=True, capture_output=True, text=True)
    return int(shown.stdout) / 1024


def processor_seconds(pid: int) -> float:
    """What one process has worked so far, in all its threads; 0 where the system does not tell."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def import_milliseconds(statement: str) -> float:
    """How long a statement of imports takes in a new interpreter, the start of that not counted."""
    program = (
        f"import time; began = time.perf_counter()\n{statement}\nprint((time.perf_counter() - began) * 1000)"
    )
    shown = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60
    )
    return float(shown.stdout)


def wait_until(passed: Any, *, timeout: float, step: float = 0.002) -> bool:
    """Poll a condition.  False when the time is over."""
    end = time.monotonic() + timeout
    while not passed():
        if time.monotonic() > end:
            return False
        time.sleep(step)
    return True
