"""Threads for sync handlers.  They pull from one deque; no future and no task is made per job."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue

from onceward.worker.job import Job

Outcome = tuple[Job, object, BaseException | None]


class Threads:
    """Runs jobs in up to `limit` threads, started as they are needed."""

    def __init__(self, limit: int, run: Callable[[Job], object], on_done: Callable[[], None]) -> None:
        self._limit = limit
        self._run = run
        self._on_done = on_done
        self._jobs: deque[Job] = deque()
        # One token per job; a token whose job was taken back means nothing.
        self._tokens: SimpleQueue[bool] = SimpleQueue()
        self._started = 0
        self.running: set[Job] = set()
        self.done: deque[Outcome] = deque()
        # The loop knows that there is something in `done`.  It resets this before it looks.
        self.told = False

    @property
    def waiting(self) -> deque[Job]:
        return self._jobs

    def put(self, job: Job) -> None:
        if job.start_by is None:
            self._jobs.append(job)
        else:
            self._jobs.appendleft(job)
        self._tokens.put(True)
        if self._started < self._limit and len(self._jobs) + len(self.running) > self._started:
            self._started += 1
            threading.Thread(target=self._work, name=f"onceward-job-{self._started}", daemon=True).start()

    def take_back(self) -> list[Job]:
        """Jobs that no thread has begun."""
        taken: list[Job] = []
        while True:
            try:
                taken.append(self._jobs.popleft())
            except IndexError:
                return taken

    def stop(self) -> None:
        for _ in range(self._started):
            self._tokens.put(False)

    def _work(self) -> None:
        while self._tokens.get():
            try:
                job = self._jobs.popleft()
            except IndexError:
                continue
            self.running.add(job)
            try:
                result: object = self._run(job)
                error: BaseException | None = None
            except BaseException as raised:
                result, error = None, raised
            self.running.discard(job)
            self.done.append((job, result, error))
            # Tell the loop only when it may not be looking already.
            if not self.told:
                self.told = True
                self._on_done()
