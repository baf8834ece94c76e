"""A step that is a transaction: the caller's rows and the checkpoint are committed together, so each happens once."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, AsyncExitStack, ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Any

import psycopg

from onceward import calls, contrib
from onceward.calls import Call
from onceward.worker.results import dump_result, load_result

if TYPE_CHECKING:
    from onceward.calls.stepping import Place
    from onceward.worker.steps import Steps


class AlreadyDone(Exception):
    """The transaction was committed by an earlier attempt."""


class Replayed:
    """Stands for the connection of a transaction that was committed before: the first use leaves the body."""

    def __getattr__(self, name: str) -> Any:
        raise AlreadyDone(name)


class Transaction:
    """`async with` in async handlers, `with` in sync ones."""

    def __init__(self, job: Steps, name: str) -> None:
        self._job = job
        self._place, self._log = job.begin_step(name)
        self._began = time.monotonic()
        self._done = False
        self._async: AsyncExitStack | None = None
        self._sync: ExitStack | None = None
        self._connection: Any = None

    # ------------------------------------------------------------ async handlers

    async def __aenter__(self) -> psycopg.AsyncConnection[Any]:
        if await self._is_done():
            self._done = True
            replayed: Any = Replayed()
            return replayed  # type: ignore[no-any-return]
        self._async = AsyncExitStack()
        try:
            return await self._enter(self._async)
        except BaseException:
            await self._async.aclose()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if self._done:
            # Whatever went wrong without the connection: the work is done.
            return error is None or isinstance(error, Exception)
        assert self._async is not None
        try:
            if error is None:
                await contrib.run_async(self._connection, self._checkpoint(None))
        except BaseException as trouble:
            await self._async.__aexit__(type(trouble), trouble, trouble.__traceback__)
            raise
        await self._async.__aexit__(kind, error, trace)
        if isinstance(error, Exception):
            await self._failed(error)
        return False

    async def run_async(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        if await self._is_done():
            return load_result(function, self._stored_result(), self._place.name)
        try:
            async with AsyncExitStack() as stack:
                connection = await self._enter(stack)
                value = await function(connection, *args)
                text = dump_result(function, value, self._place.name)
                await contrib.run_async(connection, self._checkpoint(text))
                return value
        except Exception as error:
            await self._failed(error)
            raise

    async def _enter(self, stack: AsyncExitStack) -> psycopg.AsyncConnection[Any]:
        connections: AbstractAsyncContextManager[psycopg.AsyncConnection[Any]] = (
            self._job._operations.connections.lend_async()  # noqa: SLF001 - of the same family
        )
        stack.enter_context(self._job.part("transaction", self._place.name))
        self._connection = await stack.enter_async_context(connections)
        await stack.enter_async_context(self._connection.transaction())
        if self._job.tenant != "default":
            await contrib.run_async(self._connection, calls.set_tenant(self._job.tenant))
        return self._connection  # type: ignore[no-any-return]

    # ------------------------------------------------------------ sync handlers

    def __enter__(self) -> psycopg.Connection[Any]:
        if self._job.finish_call(self._is_done()):
            self._done = True
            replayed: Any = Replayed()
            return replayed  # type: ignore[no-any-return]
        self._sync = ExitStack()
        try:
            return self._enter_sync(self._sync)
        except BaseException:
            self._sync.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if self._done:
            return error is None or isinstance(error, Exception)
        assert self._sync is not None
        try:
            if error is None:
                contrib.run(self._connection, self._checkpoint(None))
        except BaseException as trouble:
            self._sync.__exit__(type(trouble), trouble, trouble.__traceback__)
            raise
        self._sync.__exit__(kind, error, trace)
        if isinstance(error, Exception):
            self._job.finish_call(self._failed(error))
        return False

    def run_sync(self, function: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        if self._job.finish_call(self._is_done()):
            return load_result(function, self._stored_result(), self._place.name)
        try:
            with ExitStack() as stack:
                connection = self._enter_sync(stack)
                value = function(connection, *args)
                text = dump_result(function, value, self._place.name)
                contrib.run(connection, self._checkpoint(text))
                return value
        except Exception as error:
            self._job.finish_call(self._failed(error))
            raise

    def _enter_sync(self, stack: ExitStack) -> psycopg.Connection[Any]:
        connections: AbstractContextManager[psycopg.Connection[Any]] = (
            self._job._operations.connections.lend()  # noqa: SLF001 - of the same family
        )
        stack.enter_context(self._job.part("transaction", self._place.name))
        self._connection = stack.enter_context(connections)
        stack.enter_context(self._connection.transaction())
        if self._job.tenant != "default":
            contrib.run(self._connection, calls.set_tenant(self._job.tenant))
        return self._connection  # type: ignore[no-any-return]

    # ------------------------------------------------------------ both

    async def _is_done(self) -> bool:
        stored = await self._job.known_step(self._log, self._place.name)
        return stored is not None and stored.state == "done"

    def _stored_result(self) -> Any:
        assert self._log.known is not None
        return self._log.known[self._place.name].result

    def _checkpoint(self, result: str | None) -> Call[None]:
        place: Place = self._place
        took = time.monotonic() - self._began
        return calls.finish_step(place, result, kind="transaction", tries=1, took=took)

    async def _failed(self, error: Exception) -> None:
        await self._job.record_failure(self._place, error, "transaction", 1, time.monotonic() - self._began)
