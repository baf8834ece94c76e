"""The worker processes of the demo."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from typing import IO

from onceward.demo.tasks import LANE, LEASE, PARENT
from onceward.errors import OncewardError


class StoryError(OncewardError):
    """The demo did not go as planned."""


class Workers:
    """One worker process at a time, with its log in a file."""

    def __init__(self, dsn: str) -> None:
        self._environment = {**os.environ, PARENT: str(os.getpid()), **({"ONCEWARD_DSN": dsn} if dsn else {})}
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> int:
        arguments = ["worker", "onceward.demo:app", "--lanes", LANE, "--concurrency", "6", "--grace", "2s"]
        arguments += ["--lease", f"{LEASE.seconds}s", "--name", "demo"]
        self._process = subprocess.Popen(
            [sys.executable, "-c", "from onceward.cli.start import main; main()", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            env=self._environment,
            # The terminal's Ctrl-C reaches the demo only, which then stops the worker.
            start_new_session=True,
        )
        return self._process.pid

    def kill(self) -> int:
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        return self._process.pid

    def check(self) -> None:
        if self._process is not None and self._process.poll() is not None:
            raise StoryError(f"the worker ended with status {self._process.returncode}", detail=self.log)

    @property
    def log(self) -> str:
        self._log.seek(0)
        return self._log.read().decode(errors="replace")[-2000:].strip()

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(5)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._log.close()
