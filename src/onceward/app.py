"""The application object: its tasks, and the way to clients."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, ParamSpec, TypeVar, overload

from onceward.errors import InvalidArgument
from onceward.model import Options, Retry
from onceward.registry import Executor, Registry, Task, build_task, with_options

if TYPE_CHECKING:
    from onceward.client import AsyncClient, Client

P = ParamSpec("P")
R = TypeVar("R")


class Onceward:
    """Holds the tasks of an application.  `dsn` may stay empty: then ONCEWARD_DSN, PG*, or the embedded server."""

    def __init__(self, dsn: str | None = None, *, version: str | None = None) -> None:
        self.dsn = dsn
        self.version = version
        self.tasks = Registry()

    @overload
    def task(self, handler: Callable[P, R], /) -> Task[P, R]: ...
    @overload
    def task(
        self,
        *,
        name: str | None = None,
        lane: str | None = None,
        priority: int | None = None,
        max_attempts: int | None = None,
        retry: Retry | None = None,
        timeout: timedelta | None = None,
        concurrency_limit: int | None = None,
        key_window: str | None = None,
        executor: Executor = "auto",
    ) -> Callable[[Callable[P, R]], Task[P, R]]: ...
    def task(
        self,
        handler: Callable[P, R] | None = None,
        /,
        *,
        name: str | None = None,
        lane: str | None = None,
        priority: int | None = None,
        max_attempts: int | None = None,
        retry: Retry | None = None,
        timeout: timedelta | None = None,
        concurrency_limit: int | None = None,
        key_window: str | None = None,
        executor: Executor = "auto",
    ) -> Task[P, R] | Callable[[Callable[P, R]], Task[P, R]]:
        """Register a handler.  Options given here are the defaults of its jobs; enqueue can override them."""
        options = with_options(
            Options(),
            lane=lane,
            priority=priority,
            max_attempts=max_attempts,
            retry=retry,
            timeout=timeout,
            concurrency_limit=concurrency_limit,
            key_window=key_window,
        )

        def register(function: Callable[P, R]) -> Task[P, R]:
            task = build_task(function, name=name, options=options, executor=executor)
            if task.name in self.tasks:
                raise InvalidArgument(
                    f'task "{task.name}" is registered twice',
                    hint='Give one of them another name: @app.task(name="...").',
                )
            self.tasks[task.name] = task
            return task

        return register if handler is None else register(handler)

    @property
    def lanes(self) -> list[str]:
        """The lanes that the tasks name, and `default`."""
        return sorted({"default", *(task.options.lane for task in self.tasks.values())})

    def client(self, dsn: str | None = None) -> Client:
        from onceward.client import Client

        return Client(dsn or self.dsn, app=self)

    def async_client(self, dsn: str | None = None) -> AsyncClient:
        from onceward.client import AsyncClient

        return AsyncClient(dsn or self.dsn, app=self)
