"""The application object: its tasks, and the way to clients."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ParamSpec, TypedDict, TypeVar, Unpack, overload

from onceward.errors import InvalidArgument
from onceward.model import Options, Retry
from onceward.registry import Executor, Registry, Task, build_task, with_options
from onceward.schedules import DEFAULT_NAME, Schedule, ScheduleOptions, Spec, declare

if TYPE_CHECKING:
    from onceward.client import AsyncClient, Client
    from onceward.deliveries import Deliveries

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
    """Holds the tasks of an application.  `dsn` may stay empty: then ONCEWARD_DSN, PG*, or the embedded server.

    `name` tells applications on one database apart, so that each knows which schedules are its own.
    """

    def __init__(
        self, dsn: str | None = None, *, version: str | None = None, name: str = DEFAULT_NAME
    ) -> None:
        self.dsn = dsn
        self.version = version
        self.name = name
        self.tasks = Registry()
        # Set by Deliveries(app, …).
        self.deliveries: Deliveries | None = None
        self.schedules: dict[tuple[str | None, str], Schedule] = {}
        # Web pages of the application: onceward.web.Section, which stands above this module.
        self.sections: list[Any] = []

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
        if not 1 <= defaults.concurrency_limit <= 10_000:
            raise InvalidArgument(
                f"concurrency_limit must be between 1 and 10000, got {defaults.concurrency_limit}"
            )

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

    def schedule(
        self, spec: Spec, **options: Unpack[ScheduleOptions]
    ) -> Callable[[Task[P, R] | Callable[P, R]], Task[P, R]]:
        """Run a task again and again: @app.schedule("0 7 * * mon-fri", zone="America/Los_Angeles").

        Stands above @app.task, or makes a task of a plain function.  A task may have several, with different names.
        """

        def register(function: Task[P, R] | Callable[P, R]) -> Task[P, R]:
            task = function if isinstance(function, Task) else self.task(function)
            self._declare_schedule(task, spec, options)
            return task

        return register

    def add_schedule(
        self, name: str, task: Task[Any, Any] | str, spec: Spec, /, **options: Unpack[ScheduleOptions]
    ) -> None:
        """Like @app.schedule, for a task that is declared elsewhere."""
        found = task if isinstance(task, Task) else self.tasks.find(task)
        options["name"] = name
        self._declare_schedule(found, spec, options)

    def _declare_schedule(self, task: Task[Any, Any], spec: Spec, options: ScheduleOptions) -> None:
        schedule = declare(task, spec, options)
        place = (options.get("tenant"), schedule.name)
        if place in self.schedules:
            raise InvalidArgument(
                f'schedule "{schedule.name}" is declared twice',
                hint='Give one of them another name: @app.schedule(..., name="...").',
            )
        self.schedules[place] = schedule

    @property
    def lanes(self) -> list[str]:
        """The lanes that the tasks and schedules name, and `default`."""
        of_tasks = (task.options.lane for task in self.tasks.values())
        return sorted({"default", *of_tasks, *(schedule.lane for schedule in self.schedules.values())})

    def client(self, dsn: str | None = None, *, tenant: str | None = None) -> Client:
        """A client that knows these tasks.  A role that does not own the schema reads jobs of its tenant only."""
        from onceward.client import Client

        return Client(dsn or self.dsn, app=self, tenant=tenant)

    def async_client(self, dsn: str | None = None, *, tenant: str | None = None) -> AsyncClient:
        """Like `client`, for asyncio code."""
        from onceward.client import AsyncClient

        return AsyncClient(dsn or self.dsn, app=self, tenant=tenant)
