"""The application object: its tasks, and the way to clients."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ParamSpec, TypedDict, TypeVar, Unpack, overload

from onceward.errors import InvalidArgument
from onceward.model import Options, Retry
from onceward.registry import Executor, Registry, Task, build_task, with_options

if TYPE_CHECKING:
    from onceward.client import AsyncClient, Client

P = ParamSpec("P")
R = TypeVar("R")


class TaskOptions(TypedDict, total=False):
    """What @app.task takes."""

    name: str | None
    lane: str | None
    priority: int | None
    max_attempts: int | None
    retry: Retry | None
    timeout: timedelta | None
    concurrency_limit: int | None
    key_window: str | None
    executor: Executor


class Onceward:
    """Holds the tasks of an application.  `dsn` may stay empty: then ONCEWARD_DSN, PG*, or the embedded server."""

    def __init__(self, dsn: str | None = None, *, version: str | None = None) -> None:
        self.dsn = dsn
        self.version = version
        self.tasks = Registry()

    @overload
    def task(self, handler: Callable[P, R], /) -> Task[P, R]: ...
    @overload
    def task(self, **options: Unpack[TaskOptions]) -> Callable[[Callable[P, R]], Task[P, R]]: ...
    def task(self, *handlers: Callable[..., Any], **options: Any) -> Any:
        """Register a handler.  Options given here are the defaults of its jobs; enqueue can override them."""
        unknown = set(options) - set(TaskOptions.__annotations__)
        if unknown:
            raise InvalidArgument(
                f"a task has no option {', '.join(sorted(unknown))}",
                hint=f"Options: {', '.join(TaskOptions.__annotations__)}.",
            )
        name, executor = options.pop("name", None), options.pop("executor", "auto")
        defaults = with_options(Options(), **options)

        def register(function: Callable[..., Any]) -> Task[..., Any]:
            task = build_task(function, name=name, options=defaults, executor=executor)
            if task.name in self.tasks:
                raise InvalidArgument(
                    f'task "{task.name}" is registered twice',
                    hint='Give one of them another name: @app.task(name="...").',
                )
            self.tasks[task.name] = task
            return task

        return register(*handlers) if handlers else register

    @property
    def lanes(self) -> list[str]:
        """The lanes that the tasks name, and `default`."""
        return sorted({"default", *(task.options.lane for task in self.tasks.values())})

    def client(self, dsn: str | None = None, *, tenant: str | None = None) -> Client:
        """A client that knows these tasks.  A role that does not own the schema reads jobs of its tenant only."""
        from onceward.client import Client

        return Client(dsn or self.dsn, app=self, tenant=tenant)

    def async_client(self, dsn: str | None = None, *, tenant: str | None = None) -> AsyncClient:
        """Like `client`, for asyncio code."""
        from onceward.client import AsyncClient

        return AsyncClient(dsn or self.dsn, app=self, tenant=tenant)
