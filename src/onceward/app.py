"""The application object: its tasks, and the way to clients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ParamSpec, TypedDict, TypeVar, Unpack, overload

from onceward.declaring import check_limit, check_options
from onceward.errors import InvalidArgument
from onceward.model import Options, Retry, with_options
from onceward.model_limits import Limit, LimitOver, Use
from onceward.monitors import Check, Monitor, MonitorOptions
from onceward.monitors import declare as declare_monitor
from onceward.registry import Executor, Registry, Task, build_task
from onceward.schedules import DEFAULT_NAME, Schedule, ScheduleOptions, Spec, declare

if TYPE_CHECKING:
    from onceward.async_client import AsyncClient
    from onceward.client import Client
    from onceward.deliveries import Deliveries
    from onceward.tracing import Tracing

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound=Check)


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
    # Shared capacity that its jobs use: [use("openai", tokens=lambda p: p.tokens)].
    limits: Sequence[Use]


class LimitOptions(TypedDict, total=False):
    """What app.limit takes: at least one of requests, tokens and slots."""

    requests: int
    per: timedelta
    tokens: int
    tokens_per: timedelta
    # How many may run at once.
    slots: int
    # The most that is given at once: of requests a fiftieth, of tokens three hundredths, unless given.
    burst: int
    tokens_burst: int
    # How soon a claimed job has to begin: a fiftieth of the period, at least 100 ms, unless given.
    allowance: timedelta
    # One bucket for each key, as a tenant or an API key.
    per_key: bool
    # When more waits than this share of what one period gives, and what happens to new work then.
    threshold: float
    over: LimitOver


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
        self.limits: dict[str, Limit] = {}
        # Set by onceward.contrib.opentelemetry.
        self.tracing: Tracing | None = None
        self.monitors: dict[str, Monitor] = {}
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
        limits = options.pop("limits", ())
        defaults = with_options(Options(), **options)

        def register(function: Callable[..., Any]) -> Task[..., Any]:
            task = build_task(function, name=name, options=defaults, executor=executor, limits=limits)
            check_options(f'task "{task.name}"', options)
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

    def limit(self, name: str, **options: Unpack[LimitOptions]) -> Limit:
        """Declare shared capacity: app.limit("openai", requests=500, per=timedelta(minutes=1), tokens=90_000).

        Workers write it into the database when they start; what a person has set there stays.
        """
        unknown = set(options) - set(LimitOptions.__annotations__)
        if unknown:
            raise InvalidArgument(
                f"a limit has no option {', '.join(sorted(unknown))}",
                hint=f"Options: {', '.join(LimitOptions.__annotations__)}.",
            )
        check_limit(name, options)
        if name in self.limits:
            raise InvalidArgument(f'limit "{name}" is declared twice')
        self.limits[name] = limit = Limit(name, **options)
        return limit

    def monitor(self, name: str, **options: Unpack[MonitorOptions]) -> Callable[[C], C]:
        """Check something again and again: @app.monitor("stock", every="5 minutes").

        The function returns None when all is well, or findings, which become alerts.  Its parameters are thresholds.
        """

        def register(check: C) -> C:
            if name in self.monitors:
                raise InvalidArgument(
                    f'monitor "{name}" is declared twice', hint="Give one of them another name."
                )
            self.monitors[name] = declare_monitor(name, check, options)
            return check

        return register

    @property
    def lanes(self) -> list[str]:
        """The lanes that the tasks and schedules name; a task that names none is in `default`.

        No others: a worker puts off what it claims and does not know, and another application waits for it.
        """
        of_tasks = (task.options.lane for task in self.tasks.values())
        named = {*of_tasks, *(schedule.lane for schedule in self.schedules.values())}
        return sorted(named or {"default"})

    def client(self, dsn: str | None = None, *, tenant: str | None = None) -> Client:
        """A client that knows these tasks.  A role that does not own the schema reads jobs of its tenant only."""
        from onceward.client import Client

        return Client(dsn or self.dsn, app=self, tenant=tenant)

    def async_client(self, dsn: str | None = None, *, tenant: str | None = None) -> AsyncClient:
        """Like `client`, for asyncio code."""
        from onceward.async_client import AsyncClient

        return AsyncClient(dsn or self.dsn, app=self, tenant=tenant)
