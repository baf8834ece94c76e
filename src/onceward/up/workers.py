"""The worker beside the pages: a process of its own, started again when it dies."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from pathlib import Path

from onceward import logs
from onceward.embedded import default_data_dir

log = logs.get("onceward.up")
RESTART_FIRST, RESTART_LAST = 0.5, 15.0
GRACE_SECONDS = 5


class WorkerProcess:
    """One worker process at a time, with its log in a file of that name beside the data of the embedded server."""

    def __init__(self, target: str, dsn: str, *, log_name: str = "worker.log") -> None:
        self._target = target
        self._environment = {**os.environ, **({"ONCEWARD_DSN": dsn} if dsn else {})}
        self._process: asyncio.subprocess.Process | None = None
        self.log_file: Path = default_data_dir().parent / log_name

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None and self._process.returncode is None else None

    async def keep_alive(self) -> None:
        """Until it is cancelled."""
        pause = RESTART_FIRST
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            await self._start()
            assert self._process is not None
            status = await self._process.wait()
            pause = RESTART_FIRST if loop.time() - began > RESTART_LAST else min(pause * 2, RESTART_LAST)
            log.error(
                "worker_died", app=self._target, status=status, restart_in=pause, log=str(self.log_file)
            )
            await asyncio.sleep(pause)

    async def _start(self) -> None:
        arguments = [
            "worker",
            self._target,
            "--concurrency",
            "20",
            "--grace",
            f"{GRACE_SECONDS}s",
            "--lease",
            "10s",
        ]
        self.log_file.parent.mkdir(parents=True, exist_ok=True)
        with self.log_file.open("ab") as file:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", "from onceward.cli.start import main; main()", *arguments,
                stdin=asyncio.subprocess.DEVNULL, stdout=file, stderr=file, env=self._environment,
                # The terminal's Ctrl-C reaches us only; we stop it in our own time.
                start_new_session=True,
            )  # fmt: skip

    async def stop(self) -> None:
        """Let it hand back what is unfinished."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            async with asyncio.timeout(GRACE_SECONDS + 5):
                await process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
