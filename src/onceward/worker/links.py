"""The connections on which a worker makes its calls: each does one thing at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from onceward import logs
from onceward.errors import is_busy, is_connection_trouble
from onceward.worker.link import Link

if TYPE_CHECKING:
    from onceward.worker.exchanges import Action
    from onceward.worker.worker import Worker

log = logs.get("onceward.worker")


class Links:
    """Two of them, so that handlers run while PostgreSQL commits; or one, where other processes keep the cores busy."""

    def __init__(self, worker: Worker, count: int, *, on_note: Callable[[str], None]) -> None:
        self._worker = worker
        self.first = Link(worker.dsn, "onceward worker 1", on_note=on_note)
        # The last one that is free is taken: the first, so that a quiet worker needs only one.
        self._links = [
            *(Link(worker.dsn, f"onceward worker {number}") for number in range(count, 1, -1)),
            self.first,
        ]
        self._free = list(self._links)
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def is_single(self) -> bool:
        return len(self._links) == 1

    @property
    def is_one_free(self) -> bool:
        return bool(self._free)

    @property
    def is_one_busy(self) -> bool:
        return bool(self._tasks)

    def begin(self, action: Action) -> None:
        link = self._free.pop()
        task = asyncio.get_running_loop().create_task(self._guarded(action(link), link))
        self._tasks.add(task)

        def ended(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            self._free.append(link)
            self._free.sort(key=self._links.index)
            self._worker.look()

        task.add_done_callback(ended)

    async def end(self) -> None:
        """Give up what is under way."""
        # Calls that hang end now; cancelling them would have the driver wait for the server.
        for link in self._links:
            if link not in self._free:
                link.cut_off()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=0.5)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def close(self) -> None:
        for link in self._links:
            await link.close()

    async def _guarded(self, work: Coroutine[Any, Any, None] | None, link: Link) -> None:
        try:
            while work is not None:
                await work
                if link.in_trouble:
                    link.in_trouble = False
                    log.info("connection_restored", worker=str(self._worker.id))
                # The only link goes on at once: what it has brought runs while the database does the next thing.
                action = self._worker.following() if self.is_single else None
                work = None if action is None else action(link)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            if is_connection_trouble(error) or is_busy(error):
                link.in_trouble = True
                log.warning(
                    "connection_lost",
                    worker=str(self._worker.id),
                    error=str(error).strip() or type(error).__name__,
                )
            else:
                log.exception("worker_error", worker=str(self._worker.id))
            await link.rest()
