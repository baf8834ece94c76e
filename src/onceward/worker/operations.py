"""Calls that handlers and the worker want made: each is repeated until it is answered, whatever breaks."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from onceward import logs
from onceward.calls import Call
from onceward.errors import NotAllowed, NotInstalled, OncewardError, is_busy, is_connection_trouble
from onceward.worker.link import Link

log = logs.get("onceward.worker")
# How long a call rests that could not be made, because its row is locked for instance; twice as long each time.
FIRST_REST, LAST_REST = 0.5, 10.0


@dataclass(slots=True, eq=False)
class _Operation:
    call: Call[Any]
    answer: asyncio.Future[Any]
    # Only an answer of the engine counts; after anything else, the call is made again.
    insist: bool
    rest: float = FIRST_REST


class Operations:
    """A queue of calls.  One that cannot be made now steps aside, so that it does not stop the others."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._ready: deque[_Operation] = deque()
        self._resting: set[_Operation] = set()

    @property
    def is_ready(self) -> bool:
        return bool(self._ready)

    @property
    def is_empty(self) -> bool:
        return not self._ready and not self._resting

    def submit(self, call: Call[Any], *, insist: bool = False) -> asyncio.Future[Any]:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._ready.append(_Operation(call, answer, insist))
        self._wake()
        return answer

    async def run(self, link: Link, on_answer: Callable[[], None], *, turn: float) -> None:
        """Make the calls that are ready, for so many seconds.  Raises when the connection breaks; what was not answered stays."""
        end = time.monotonic() + turn
        while self._ready and time.monotonic() < end:
            operation = self._ready.popleft()
            try:
                result = await link.run(operation.call)
            except BaseException as error:
                if isinstance(error, TimeoutError):
                    # It may wait for a lock; others go first.
                    self._put_off(operation, error)
                    raise
                if is_connection_trouble(error) or isinstance(error, asyncio.CancelledError):
                    self._ready.appendleft(operation)
                    raise
                if is_busy(error) or (operation.insist and not _is_answer(error)):
                    self._put_off(operation, error)
                    continue
                on_answer()
                if not operation.answer.done():
                    operation.answer.set_exception(error)
            else:
                on_answer()
                if not operation.answer.done():
                    operation.answer.set_result(result)

    def abandon(self) -> None:
        """The lease is gone, and with it the reason for all of them."""
        for operation in [*self._ready, *self._resting]:
            operation.answer.cancel()
        self._ready.clear()
        self._resting.clear()

    def _put_off(self, operation: _Operation, error: BaseException) -> None:
        call = operation.call.sql.partition("(")[0].rpartition(" ")[2]
        log.warning("call_put_off", call=call, again_in=operation.rest, error=str(error).strip())
        self._resting.add(operation)
        asyncio.get_running_loop().call_later(operation.rest, self._resume, operation)
        operation.rest = min(operation.rest * 2, LAST_REST)

    def _resume(self, operation: _Operation) -> None:
        if operation in self._resting:
            self._resting.discard(operation)
            self._ready.append(operation)
            self._wake()


def _is_answer(error: BaseException) -> bool:
    return isinstance(error, OncewardError) and not isinstance(error, (NotInstalled, NotAllowed))
