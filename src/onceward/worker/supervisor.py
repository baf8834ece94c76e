"""`onceward worker`: one process that works, or a parent that keeps several of them alive."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import time
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType
from typing import Any

from onceward import logs
from onceward.app import Onceward
from onceward.errors import InvalidArgument, OncewardError
from onceward.registry import nearest_hint
from onceward.stopping import ignore_terminal, stop_signals
from onceward.worker.exposition import Exposition
from onceward.worker.health import Health
from onceward.worker.relay import Relay, Relayed
from onceward.worker.settings import WorkerSettings
from onceward.worker.worker import Worker

log = logs.get("onceward.worker")
# A child that dies is replaced; one that dies again and again, ever more slowly.
RESTART_FIRST, RESTART_LAST = 0.2, 10.0


def load_app(target: str) -> Onceward:
    """The app named by `package.module:attribute`."""
    module_name, _, attribute = target.partition(":")
    if not module_name or not attribute:
        raise InvalidArgument(
            f"app must be given as package.module:app, got {target!r}", hint=f"Most likely {module_name}:app."
        )
    # As `python -m` does: programs in the current folder are found.
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and (module_name == error.name or module_name.startswith(error.name + ".")):
            raise InvalidArgument(
                f"module {module_name} does not exist",
                hint="Run from the folder that contains it, or install it.",
            ) from None
        raise
    found = getattr(module, attribute, None)
    if not isinstance(found, Onceward):
        apps = [name for name, value in vars(module).items() if isinstance(value, Onceward)]
        raise InvalidArgument(
            f"{target} is not an Onceward app"
            if found is not None
            else f"module {module_name} has no {attribute!r}",
            hint=nearest_hint(attribute, apps)
            or (f"It has: {', '.join(apps)}." if apps else "Create one with Onceward()."),
        )
    return found


def run_worker(target: str, settings: WorkerSettings) -> int:
    """Run until a signal says stop.  Returns the exit code."""
    logs.configure(settings.log_format)
    if settings.processes < 1:
        raise InvalidArgument(f"processes must be at least 1, got {settings.processes}")
    if settings.processes == 1:
        return _work(target, settings)
    app = load_app(target)  # Say at once what is wrong, not from every child.
    return _Parent(target, settings, Relay(settings.dsn or app.dsn, lease=settings.lease)).run()


def _work(target: str, settings: WorkerSettings, relay: Relayed | None = None) -> int:
    app = load_app(target)
    worker = Worker(
        app,
        dsn=settings.dsn,
        lanes=settings.lanes,
        concurrency=settings.concurrency,
        lease=settings.lease,
        grace=settings.grace,
        poll=settings.poll,
        name=settings.name,
        relay=relay,
    )

    async def main() -> None:
        loop = asyncio.get_running_loop()
        for number in stop_signals():
            loop.add_signal_handler(number, _stop, worker, number)
        health = metrics = None
        if settings.health_port is not None:
            metrics = Exposition(worker)
            health = Health(
                settings.health_port,
                lambda: worker.healthy,
                host=settings.health_host,
                metrics=metrics.page,
            )
        try:
            if health is not None:
                port = await health.start()
                log.info("health_port_open", port=port)
            await worker.run()
        finally:
            if health is not None and metrics is not None:
                await health.stop()
                await metrics.close()
        # From here: threads of interrupted handlers may still run, and the loop would wait for handlers that do not
        # let themselves be cancelled.  Their jobs are handed back already.
        logs.flush()
        os._exit(0)

    _run(main())
    return 0


def _stop(worker: Worker, number: int) -> None:
    log.info("signal_received", signal=signal.Signals(number).name)
    # A terminal that is closed says so more than once, and nobody is in a hurry.
    if not (number == signal.SIGHUP and worker.is_draining):
        worker.stop()


def _run(main: Any) -> None:
    # Not run while its absence is handled, of which every traceback would tell.
    run: Any = asyncio.run
    with contextlib.suppress(ImportError):
        import uvloop

        run = uvloop.run
    run(main)


def _child(target: str, settings: WorkerSettings, tell: Connection, ask: Connection) -> None:
    logs.configure(settings.log_format)
    ignore_terminal()
    try:
        _work(target, settings, Relayed(ask))
    except OncewardError as error:
        # Its parts: what else is attached to an error need not fit into a pipe.
        tell.send((type(error), error.message, error.detail, error.hint))
        os._exit(1)


class _Parent:
    """Starts the workers, beats for those that ask, replaces those that die, passes signals on."""

    def __init__(self, target: str, settings: WorkerSettings, relay: Relay) -> None:
        self._target = target
        self._settings = settings
        self._relay = relay
        self._context = multiprocessing.get_context("spawn")
        self._children: dict[int, Any] = {}
        self._began: dict[int, float] = {}
        # What each child says when it cannot work.
        self._told: dict[int, Connection] = {}
        self._replaced: set[int] = set()
        self._pause = RESTART_FIRST
        self._stopping = 0

    def run(self) -> int:
        for number in stop_signals():
            signal.signal(number, self._signal)
        for index in range(self._settings.processes):
            self._start(index)
        try:
            self._look_after()
        finally:
            self._relay.close()
        return 0

    def _look_after(self) -> None:
        while self._children:
            self._relay.watch()
            multiprocessing.connection.wait(
                [child.sentinel for child in self._children.values()], timeout=1.0
            )
            for index, child in list(self._children.items()):
                if child.is_alive():
                    continue
                del self._children[index]
                error = self._error_of(index)
                if self._stopping:
                    continue
                if error is not None and index not in self._replaced:
                    # It has never worked, and would not the next time: a lane that does not exist, a wrong password.
                    self._end_all()
                    raise error
                self._replace(index, child.exitcode, error)

    def _error_of(self, index: int) -> OncewardError | None:
        with self._told.pop(index) as told:
            try:
                kind, message, detail, hint = told.recv()
            except EOFError:
                return None
        error: OncewardError = kind(message, detail=detail, hint=hint)
        return error

    def _end_all(self) -> None:
        self._stopping += 1
        self._pass_on(signal.SIGTERM)
        for child in self._children.values():
            child.join()

    def _start(self, index: int) -> None:
        settings = self._settings
        port = settings.health_port + index if settings.health_port is not None else None
        name = f"{settings.name}-{index + 1}" if settings.name else None
        self._told[index], tell = self._context.Pipe(duplex=False)
        asked, ask = self._context.Pipe()
        child = self._context.Process(
            target=_child,
            args=(self._target, replace(settings, processes=1, health_port=port, name=name), tell, ask),
        )
        child.start()
        # From here on only the child has these ends: when it is gone, so are the pipes.
        tell.close()
        ask.close()
        self._relay.serve(asked)
        self._children[index] = child
        self._began[index] = time.monotonic()
        if self._stopping:
            self._pass_on(signal.SIGTERM)

    def _replace(self, index: int, code: int | None, error: OncewardError | None) -> None:
        self._replaced.add(index)
        lived = time.monotonic() - self._began[index]
        self._pause = RESTART_FIRST if lived > RESTART_LAST else min(self._pause * 2, RESTART_LAST)
        log.error(
            "process_died",
            index=index,
            exit_code=code,
            restart_in=round(self._pause, 1),
            **({} if error is None else {"error": error.message, "hint": error.hint}),
        )
        deadline = time.monotonic() + self._pause
        while not self._stopping and (left := deadline - time.monotonic()) > 0:
            time.sleep(min(left, 0.1))
            self._relay.watch()
        if not self._stopping:
            self._start(index)

    def _signal(self, number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGHUP and self._stopping:
            # As in _stop.
            return
        self._stopping += 1
        self._pass_on(signal.SIGTERM)

    def _pass_on(self, number: signal.Signals) -> None:
        for child in self._children.values():
            with contextlib.suppress(ProcessLookupError, TypeError):
                os.kill(child.pid, number)
