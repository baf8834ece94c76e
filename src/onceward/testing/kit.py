"""Everything a test of an application needs, on one database."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, Self, overload
from uuid import UUID

import psycopg

from onceward import calls
from onceward.errors import InvalidArgument, OncewardError, shown
from onceward.model import JobFilter, JobInfo, Json
from onceward.testing.clock import Clock

if TYPE_CHECKING:
    from onceward.app import Onceward
    from onceward.client import Client
    from onceward.registry import Task

__all__ = ["Crash", "Kit"]

LEASE = timedelta(seconds=30)
# How long a worker of crash_worker may take to start and to pick up its jobs.
PATIENCE = timedelta(seconds=60)
MOST_JOBS = 10_000


@dataclass(frozen=True, slots=True)
class Crash:
    """A worker that was killed, and the jobs that it was running."""

    worker_id: UUID
    job_ids: list[UUID]


class Kit:
    """One database of a test.  Use as a context manager, or call close()."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self.clock = Clock(dsn)
        self._open = contextlib.ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection and client that was asked for."""
        self._open.close()

    def connect(self, *, autocommit: bool = True) -> psycopg.Connection[tuple[Any, ...]]:
        """A connection to the database, closed after the test."""
        return self._open.enter_context(contextlib.closing(psycopg.connect(self.dsn, autocommit=autocommit)))

    def client(self, app: Onceward | None = None) -> Client:
        """A client, closed after the test."""
        from onceward.client import Client

        return self._open.enter_context(Client(self.dsn, app=app))

    def drain(self, app: Onceward, lanes: Sequence[str] | None = None) -> int:
        """Run everything that is ready or due, in this process, until nothing is left; returns how many jobs ran.

        Schedules are declared and fired as by any worker: drain once, move the clock, drain again.

        A job that failed waits for its retry: move the clock and drain again.
        """
        from onceward.app import Onceward
        from onceward.worker import Worker

        if not isinstance(app, Onceward):
            raise InvalidArgument(
                f"drain must be given an Onceward application, got {shown(repr(app))}",
                hint="Import it, and pass the object itself: kit.drain(shop.app).",
            )

        def run() -> int:
            return asyncio.run(Worker(app, dsn=self.dsn, lanes=lanes).drain())

        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return run()
        # Called from a coroutine: the worker needs a loop of its own.
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(run).result()

    def crash_worker(
        self, target: str, *, lanes: Sequence[str] | None = None, running: int = 1, past_lease: bool = True
    ) -> Crash:
        """Start a real worker process, kill it with SIGKILL while it runs jobs, and return what it held.

        `target` is "package.module:app", importable as in this process.  The worker is killed as soon as it runs
        `running` jobs, so their handlers have to wait for something.  Afterwards the clock is moved past the lease, so
        that the next worker rescues the jobs, unless `past_lease` is false.  Raises OncewardError when the worker ends by
        itself, or has not got as many jobs within a minute.
        """
        if not isinstance(target, str) or ":" not in target:
            raise InvalidArgument(
                f'crash_worker must be given a text "package.module:app", got {shown(repr(target))}',
                hint="The worker is another process, which imports the application by that name.",
            )
        name = f"crash-{secrets.token_hex(6)}"
        arguments = ["worker", target, "--name", name, "--lease", f"{LEASE.total_seconds():.0f}s"]
        if lanes is not None:
            arguments += ["--lanes", ",".join(lanes)]
        environment = os.environ | {
            "ONCEWARD_DSN": self.dsn,
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        }
        with tempfile.TemporaryFile("w+") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "onceward.cli", *arguments],
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
            try:
                crash = self._held(name, running, process)
            finally:
                process.kill()
                process.wait()
            if crash is None:
                output.seek(0)
                raise OncewardError(
                    f'the worker of "{target}" did not get to run {running} jobs',
                    detail=output.read().strip()[-4000:] or None,
                    hint="Enqueue the jobs first, and let their handlers wait for something.",
                )
        if past_lease:
            self.clock.advance(LEASE)
        return crash

    def _held(self, name: str, running: int, process: subprocess.Popen[bytes]) -> Crash | None:
        give_up = time.monotonic() + PATIENCE.total_seconds()
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            while time.monotonic() < give_up:
                found = connection.execute(
                    "select w.id, array(select j.id from onceward.jobs as j where j.worker_id = w.id and j.state = 'running') "
                    "  from onceward.workers as w where w.name = %s",
                    [name],
                ).fetchone()
                if found is not None and len(found[1]) >= running:
                    return Crash(found[0], found[1])
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(0.02)
                    return None
        return None

    @overload
    # An int may be 0 at run time without being Literal[0]; whoever computes a count gets what the second one says.
    def assert_enqueued(  # type: ignore[overload-overlap]  # Literal[0] is an int
        self, task: str | Task[Any, Any], payload: Json = None, *, count: Literal[0], **where: object
    ) -> None: ...
    @overload
    def assert_enqueued(
        self, task: str | Task[Any, Any], payload: Json = None, *, count: int | None = None, **where: object
    ) -> JobInfo: ...
    def assert_enqueued(
        self, task: str | Task[Any, Any], payload: Json = None, *, count: int | None = None, **where: object
    ) -> JobInfo | None:
        """Assert that there is a job of this task; returns it, the oldest one when there are several.

        `payload` is what the payload has to contain: of an object, some of its fields.  `where` names columns of the
        view `jobs`, such as lane="mail", state="scheduled", key="invoice-7".  With `count`, exactly as many have to be there;
        with `count=0` none, and nothing is returned.
        """
        if count is not None and (not isinstance(count, int) or isinstance(count, bool) or count < 0):
            raise InvalidArgument(
                f"count must be a whole number of at least 0, got {count!r}",
                hint="Leave it out for any number.",
            )
        name = task if isinstance(task, str) else task.name
        unknown = set(where) - {field.name for field in fields(JobInfo)}
        if unknown:
            raise InvalidArgument(
                f"a job has no column {', '.join(sorted(unknown))}",
                hint=f"Columns: {', '.join(field.name for field in fields(JobInfo))}.",
            )
        # The newest come first.
        there = self.client().run(calls.jobs(JobFilter(task=name, limit=MOST_JOBS)))[::-1]
        matching = [
            job
            for job in there
            if contains(job.payload, payload)
            and all(getattr(job, column) == value for column, value in where.items())
        ]
        if count == len(matching) or (count is None and matching):
            return matching[0] if matching else None
        wanted = ", ".join(
            [f"payload {payload}"] * (payload is not None) + [f"{k} {v!r}" for k, v in where.items()]
        )
        found = "\n".join(f"  {_described(job, where)}" for job in there[-20:]) or "  none"
        raise AssertionError(
            f'expected {"a job" if count is None else "no job" if count == 0 else f"{count} jobs"} of task "{name}"{f" with {wanted}" if wanted else ""}, '
            f"found {len(matching)}\njobs of this task:\n{found}"
        )


def contains(actual: Json, wanted: Json) -> bool:
    """Whether `actual` has everything that `wanted` names.  None names nothing."""
    if wanted is None:
        return True
    if isinstance(wanted, Mapping):
        return isinstance(actual, Mapping) and all(
            key in actual and (value == actual[key] or (value is not None and contains(actual[key], value)))
            for key, value in wanted.items()
        )
    return bool(actual == wanted)


def _described(job: JobInfo, where: Mapping[str, object]) -> str:
    named = "".join(f" {column}={getattr(job, column)!r}" for column in where if column != "state")
    return f"{job.id} {job.state}{named} payload={job.payload}"
