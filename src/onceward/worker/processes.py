"""Processes for CPU-bound handlers (`executor="process"`).  A process that overruns is killed and replaced."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import multiprocessing
import signal
import traceback
from collections import deque
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from typing import Any

from onceward.errors import OncewardError
from onceward.handling import current_job
from onceward.stopping import ignore_terminal
from onceward.worker.failures import Failure, Reported, failure_of


def unsendable(error: BaseException) -> Failure:
    """The handler has returned what cannot be sent to the worker: the work is done, its result is lost."""
    return Failure(
        kind=type(error).__name__,
        message=f"the result cannot leave the handler's process: {error}. Return what JSON can hold.",
        trace="".join(traceback.format_exception(error)),
        category="result",
        permanent=True,
    )


class Processes:
    """A pool of handler processes, one job each at a time."""

    def __init__(self, limit: int) -> None:
        self._context = multiprocessing.get_context("spawn")
        self._free: deque[_Child] = deque()
        self._slots = asyncio.Semaphore(limit)

    async def run(self, module: str, name: str, payload: str, job: str) -> Any:
        """Run task `name`, found by importing `module`, for a job.  Cancelling kills the process."""
        async with self._slots:
            child = self._free.popleft() if self._free else _Child(self._context)
            try:
                answer = await asyncio.to_thread(child.ask, (module, name, payload, job))
            except asyncio.CancelledError:
                child.kill()
                raise
            except (EOFError, OSError):
                how = await asyncio.to_thread(child.ending)
                child.kill()
                said = f"the handler's process ended without an answer{how}"
                raise Reported(Failure("ProcessDied", said, "")) from None
            except Exception as trouble:
                # It was sent, and cannot be put together here.
                child.kill()
                raise Reported(unsendable(trouble)) from None
            self._free.append(child)
        result, failure = answer
        if failure is not None:
            raise Reported(failure)
        return result

    def stop(self) -> None:
        while self._free:
            self._free.popleft().kill()


class _Child:
    def __init__(self, context: Any) -> None:
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()

    def ask(self, request: tuple[str, str, str, str]) -> tuple[Any, Failure | None]:
        self._pipe.send(request)
        answer: tuple[Any, Failure | None] = self._pipe.recv()
        return answer

    def ending(self) -> str:
        """How it ended by itself, as an addition to a sentence."""
        # Its pipe is closed a moment before the process is gone.
        self._process.join(1)
        code = self._process.exitcode
        if code is None:
            return ""
        if code >= 0:
            return f": exit status {code}"
        names = {number.value: f"{number.name} ({-number})" for number in signal.Signals}
        cause = "; the system may have run out of memory" if -code == signal.SIGKILL else ""
        return f": killed by {names.get(-code, f'signal {-code}')}{cause}"

    def kill(self) -> None:
        with contextlib.suppress(Exception):
            self._process.kill()
            self._process.join(5)
            self._pipe.close()


def _serve(pipe: Connection) -> None:
    ignore_terminal()
    while True:
        try:
            module, name, payload, job = pipe.recv()
        except (EOFError, OSError):
            return
        # What it delivers or emits by a client of its own is known as made by this job.
        current_job.set(job)
        try:
            task = _find_task(module, name)
            answer: tuple[Any, Failure | None] = (task.handler(**task.arguments(payload)), None)
        except BaseException as error:
            answer = (None, failure_of(error))
        try:
            packed = ForkingPickler.dumps(answer)
        except Exception as error:
            # Whatever a class does when it is pickled.
            packed = ForkingPickler.dumps((None, unsendable(error)))
        try:
            pipe.send_bytes(packed)
        except OSError:
            # The worker is gone, and nobody waits for the answer.
            return


def _find_task(module: str, name: str) -> Any:
    from onceward.registry import Task

    for value in vars(importlib.import_module(module)).values():
        if isinstance(value, Task) and value.name == name:
            return value
    raise OncewardError(
        f'task "{name}" is not at the top level of module {module}',
        hint='A handler with executor="process" is found there by the other process.',
    )
