"""Running checks and retention beside the work: on a connection of their own, so that one that hangs holds up nothing.

What is due is begun by maintenance, in the database; here it is executed and ended.  If this process dies meanwhile, the
run is recorded as an error by whoever looks next.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Coroutine, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg

from onceward import calls, contrib, logs
from onceward.calls import Call
from onceward.errors import CheckOver, is_busy, is_connection_trouble
from onceward.model_monitors import BegunCheck
from onceward.monitors import Monitor, findings_text
from onceward.worker.link import cut_off

if TYPE_CHECKING:
    from onceward.app import Onceward

T = TypeVar("T")
log = logs.get("onceward.monitors")
# Batches of SQL checks at once; a slow one holds up those that were begun with it.
MOST_BATCHES = 3
AT_ONCE = 20
# Beyond what the server allows a statement, in seconds: then the connection is dead.
LATENCY = 5.0
RETENTION_TIMEOUT = timedelta(minutes=5)
# One kind at a time, and as often as there is more.
MOST_RETENTIONS = 200
SHORT = timedelta(seconds=15)


class Watch:
    """Executes what was begun.  Every run ends here with its findings or its error."""

    def __init__(self, app: Onceward, dsn: str) -> None:
        self._monitors = app.monitors
        self._dsn = dsn
        self._tasks: set[asyncio.Task[None]] = set()
        self._batches = 0
        # Checks whose thread does not end: not begun again here until it does.
        self._hanging: set[str] = set()
        self._retaining = False

    @property
    def is_free(self) -> bool:
        return self._batches < MOST_BATCHES

    @property
    def known(self) -> list[str]:
        """The checks in Python that could be run here now."""
        return sorted(set(self._monitors) - self._hanging)

    def start(self, begun: Sequence[BegunCheck]) -> None:
        in_sql = [check for check in begun if check.kind == "sql"]
        if in_sql:
            self._batches += 1
            self._spawn(self._run_batch(in_sql))
        for check in begun:
            if check.kind == "python":
                self._spawn(self._run_python(check))

    def start_retention(self) -> None:
        if not self._retaining:
            self._retaining = True
            self._spawn(self._retain())

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # ------------------------------------------------------------ checks in SQL

    async def _run_batch(self, checks: Sequence[BegunCheck]) -> None:
        line = _Line(self._dsn)
        try:
            for check in checks:
                await self._run_sql(line, check)
        finally:
            self._batches -= 1
            await line.close()

    async def _run_sql(self, line: _Line, check: BegunCheck) -> None:
        began = time.monotonic()
        try:
            status = await line.run(calls.run_check(check.run_id), check.timeout)
        except CheckOver:
            log.info("check_over", monitor=check.monitor)
            return
        except psycopg.errors.QueryCanceled:
            error = f"it did not end within {check.timeout}"
        except Exception as trouble:
            if is_connection_trouble(trouble) and not is_busy(trouble):
                # Whether it has ended is not known; if not, its deadline will tell.
                log.warning("check_lost", monitor=check.monitor, error=_one_line(trouble))
                return
            error = f"{type(trouble).__name__}: {_one_line(trouble)}"
        else:
            _report(check, status)
            return
        await self._end(line, check, calls.fail_check(check.run_id, error, _since(began)))
        log.error("check_failed", monitor=check.monitor, error=error)

    # ------------------------------------------------------------ checks in Python

    async def _run_python(self, check: BegunCheck) -> None:
        began = time.monotonic()
        monitor = self._monitors[check.monitor]
        try:
            async with asyncio.timeout(check.timeout.total_seconds()):
                text = findings_text(await self._answer(monitor, check))
        except TimeoutError:
            error: str | None = f"it did not end within {check.timeout}"
        except Exception as trouble:
            error = f"{type(trouble).__name__}: {trouble}"
        else:
            error = None
        took = _since(began)
        line = _Line(self._dsn)
        try:
            if error is not None:
                log.error("check_failed", monitor=check.monitor, error=error)
                await self._end(line, check, calls.fail_check(check.run_id, error, took))
            else:
                await self._end(line, check, calls.finish_check(check.run_id, text, took))
        finally:
            await line.close()

    async def _answer(self, monitor: Monitor, check: BegunCheck) -> object:
        arguments = monitor.arguments(check.thresholds)
        if inspect.iscoroutinefunction(monitor.check):
            return await monitor.check(**arguments)
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[object] = loop.create_future()

        def settle(result: object, error: BaseException | None) -> None:
            self._hanging.discard(monitor.name)
            if not answer.done():
                answer.set_result(result) if error is None else answer.set_exception(error)

        def run() -> None:
            result, error = None, None
            try:
                result = monitor.check(**arguments)
            except BaseException as trouble:  # handed on to whoever waits
                error = trouble
            try:
                loop.call_soon_threadsafe(settle, result, error)
            except RuntimeError:
                # The loop has ended; nobody needs to know any more.
                return

        self._hanging.add(monitor.name)
        # A daemon: one that never ends must not keep the process from ending.
        threading.Thread(target=run, name=f"monitor {monitor.name}", daemon=True).start()
        return await answer

    async def _end(self, line: _Line, check: BegunCheck, call: Call[str]) -> None:
        try:
            _report(check, await line.run(call, SHORT))
        except CheckOver:
            log.info("check_over", monitor=check.monitor)
        except Exception as trouble:
            log.warning("check_lost", monitor=check.monitor, error=_one_line(trouble))

    # ------------------------------------------------------------ retention

    async def _retain(self) -> None:
        line = _Line(self._dsn)
        try:
            for _ in range(MOST_RETENTIONS):
                removed = await line.run(calls.retain_due(), RETENTION_TIMEOUT)
                if removed is None:
                    return
                if removed.row_count or removed.partitions:
                    log.info(
                        "retention_removed",
                        kind=removed.kind,
                        rows=removed.row_count,
                        partitions=removed.partitions,
                    )
                if removed.note:
                    log.info("retention_note", kind=removed.kind, note=removed.note)
        except Exception as trouble:
            log.warning("retention_failed", error=_one_line(trouble))
        finally:
            self._retaining = False
            await line.close()


class _Line:
    """A connection that is opened when needed, with a limit on every statement that the server keeps, too."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._conn: psycopg.AsyncConnection[Any] | None = None

    async def run(self, call: Call[T], timeout: timedelta) -> T:
        conn = await self._open()
        limit = timeout.total_seconds() + LATENCY
        # Not by cancelling: the driver would first ask the server, which does not answer, to end the call.
        timer = asyncio.get_running_loop().call_later(limit, cut_off, conn)
        try:
            async with conn.transaction():
                await contrib.run_async(conn, calls.set_timeout(timeout))
                return await contrib.run_async(conn, call)
        finally:
            timer.cancel()

    async def _open(self) -> psycopg.AsyncConnection[Any]:
        if self._conn is None or self._conn.closed:
            self._conn = await psycopg.AsyncConnection.connect(
                self._dsn,
                autocommit=True,
                application_name="onceward monitors",
                prepare_threshold=None,
                connect_timeout=5,
                keepalives_idle=5,
                keepalives_interval=3,
                keepalives_count=3,
            )
        return self._conn

    async def close(self) -> None:
        if self._conn is not None:
            await self._conn.close()


def _report(check: BegunCheck, status: str) -> None:
    if status == "error":
        log.error("check_failed", monitor=check.monitor)
    else:
        log.debug("monitor_checked", monitor=check.monitor, status=status)


def _since(began: float) -> timedelta:
    return timedelta(seconds=time.monotonic() - began)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
