"""What both clients share: turning arguments into calls.  Answers are in `answers`."""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import datetime, timedelta
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict, cast
from uuid import UUID

from onceward import calls, jsonsafe
from onceward.answers import AnyJob, job_id_of
from onceward.calls import Call
from onceward.errors import ClientClosed, InvalidArgument, InvalidPayload, kinds_of, shown
from onceward.model import JobRef, Json, Options, Retry, WorkflowRef, with_options
from onceward.model_limits import Use, check_limits, uses_json
from onceward.workflow import Node, Workflow

# A producer that names its tasks has no use for pydantic, which takes longer to load than all of this.
if TYPE_CHECKING:
    from pydantic import BaseModel

    from onceward.app import Onceward
    from onceward.registry import Task
    from onceward.tracing import Tracing

Payload: TypeAlias = "Mapping[str, Json] | BaseModel"
AnyTask: TypeAlias = "Task[Any, Any] | str"
# What happens to a job when one that it waits for fails: it is cancelled, runs all the same, or runs only then.
AfterPolicy = Literal["fail", "ignore", "compensate"]

# How long a call may wait for a connection, and how often a repeatable call is tried on a new one.
CONNECT_TIMEOUT = 15.0
TRIES = 3
# jsonb holds a quarter of a gigabyte; stay well below.
MOST_AT_ONCE = 64 * 1024 * 1024
CONNECTION_OPTIONS: dict[str, Any] = {
    "autocommit": True,
    "application_name": "onceward client",
    "connect_timeout": 10,
    # A half-open connection is noticed by the operating system within 15 seconds.
    "keepalives_idle": 5,
    "keepalives_interval": 3,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
}


class EnqueueOptions(TypedDict, total=False):
    """What enqueue takes beside task and payload.  What is left out comes from the task's declaration."""

    key: str | None
    key_window: str | timedelta | None
    lane: str | None
    priority: int | None
    delay: timedelta | None
    run_at: datetime | None
    expires_in: timedelta | None
    expires_at: datetime | None
    timeout: timedelta | None
    concurrency_key: str | None
    concurrency_limit: int | None
    max_attempts: int | None
    retry: Retry | None
    tenant: str | None
    headers: Mapping[str, str] | None
    after: Sequence[AnyJob] | None
    after_policy: AfterPolicy | None
    workflow_id: UUID | None
    limits: Sequence[Use] | None


_NO_OPTIONS = Options()
_TYPES: dict[str, tuple[type, ...]] = {
    "key": (str,),
    "key_window": (str, timedelta),
    "lane": (str,),
    "priority": (int,),
    "delay": (timedelta,),
    "run_at": (datetime,),
    "expires_in": (timedelta,),
    "expires_at": (datetime,),
    "timeout": (timedelta,),
    "concurrency_key": (str,),
    "concurrency_limit": (int,),
    "max_attempts": (int,),
    "retry": (Retry,),
    "tenant": (str,),
    "headers": (Mapping,),
    "after": (list, tuple),
    "after_policy": (str,),
    "workflow_id": (UUID,),
    "limits": (list, tuple),
}


class Requests:
    """Base of both clients: knows the application, speaks no protocol."""

    def __init__(self, dsn: str | None, app: Onceward | None, *, tenant: str | None, pool_size: int) -> None:
        self._given_dsn = dsn
        self._app = app
        self._tenant = tenant
        self._pool_size = pool_size
        self._prepare_after: int | None = 3
        # Whether the database has ever been reached: until then, trouble is reported at once.
        self._reached = False
        self._lanes_declared = app is None or (app.lanes == ["default"] and not app.limits)
        self._is_closed = False

    def _connection_options(self) -> dict[str, Any]:
        return {**CONNECTION_OPTIONS, "prepare_threshold": self._prepare_after}

    def _resolve(self) -> str:
        from onceward.dsn import resolve_dsn

        return resolve_dsn(self._given_dsn or (self._app.dsn if self._app else None))

    def _check_open(self) -> None:
        """Connections that open again after `close` are never closed."""
        if self._is_closed:
            raise ClientClosed(hint="Make a new one, or close it when nothing uses it any more.")

    @property
    def _is_simple(self) -> bool:
        """Nothing has to be done around an enqueue: no span, no lane that may be new."""
        return self._lanes_declared and (self._app is None or self._app.tracing is None)

    def _learn_of_lanes(self, created: int, *, in_callers_transaction: bool) -> None:
        # What a caller's transaction created may still be rolled back, and looks as if it existed until then.
        self._lanes_declared = not (in_callers_transaction and created > 0)

    def _traced(
        self, task: AnyTask, given: EnqueueOptions, *, count: int = 1
    ) -> AbstractContextManager[EnqueueOptions]:
        """A span around an enqueue, if the application is traced; gives the options with the trace in their headers."""
        tracing = self._app.tracing if self._app is not None else None
        return nullcontext(given) if tracing is None else _traced(tracing, task, given, count)

    def _enqueue(self, task: AnyTask, payload: Payload | None, given: EnqueueOptions) -> Call[JobRef]:
        name, known = self._task(task)
        _check_window(given, has_key=given.get("key") is not None)
        options = self._options(known, given)
        return calls.enqueue(name, _dump(known, payload), options, _uses(known, payload, given.get("limits")))

    def _enqueue_many(
        self,
        task: AnyTask,
        payloads: Iterable[Payload],
        keys: Sequence[str | None] | None,
        given: EnqueueOptions,
        concurrency_keys: Sequence[str | None] | None = None,
    ) -> Call[list[JobRef]]:
        name, known = self._task(task)
        listed = list(payloads)
        text = (
            jsonsafe.dumps([_plain(item) for item in listed], what="payloads")
            if known is None
            else known.dump_many(listed)
        )
        if len(text) > MOST_AT_ONCE:
            raise InvalidArgument(
                f"payloads must be at most {MOST_AT_ONCE} bytes together, got {len(text)}",
                hint="Call enqueue_many in parts; parts in one transaction stay all or nothing.",
            )
        if given.get("key") is not None:
            raise InvalidArgument("key cannot be given for many jobs", hint="Pass keys, one per payload.")
        _check_each("keys", keys, len(listed))
        _check_each("concurrency_keys", concurrency_keys, len(listed))
        if concurrency_keys is not None and given.get("concurrency_key") is not None:
            raise InvalidArgument(
                "concurrency_key and concurrency_keys cannot be given together", hint="Leave one of them out."
            )
        _check_window(given, has_key=keys is not None)
        options = self._options(known, given, has_keys=concurrency_keys is not None)
        limits = given.get("limits")
        uses = [_uses(known, item, limits) for item in listed] if limits or (known and known.limits) else None
        return calls.enqueue_many(
            name, text, options, keys=keys, concurrency_keys=concurrency_keys, uses=uses
        )

    def _enqueue_workflow(
        self,
        workflow: Workflow,
        key: str | None,
        key_window: str | timedelta | None,
        carried: Mapping[str, str] | None,
    ) -> Call[WorkflowRef]:
        _check_window({"key_window": key_window}, has_key=key is not None)
        return calls.enqueue_workflow(
            [self._node(node, carried or {}) for node in workflow.nodes],
            tenant=None if self._tenant == "*" else self._tenant,
            key=key,
            key_window=_window(key_window) if isinstance(key_window, timedelta) else key_window,
        )

    def _node(self, node: Node, carried: Mapping[str, str]) -> dict[str, Any]:
        name, known = self._task(node.task)
        given = {key: value for key, value in node.options.items() if key not in {"after", "after_policy"}}
        options = self._options(known, cast("EnqueueOptions", given))
        plain: dict[str, Any] = {
            "name": node.name,
            "task": name,
            "payload": _dump(known, node.payload),
            "after": node.options["after"],
            "after_policy": node.options["after_policy"],
            "lane": options.lane,
            "priority": options.priority,
            "max_attempts": options.max_attempts,
        }
        if options.run_at is not None:
            plain["run_at"] = options.run_at.isoformat()
        if options.timeout is not None:
            plain["timeout"] = f"{options.timeout.total_seconds()} seconds"
        if options.retry is not None:
            plain["retry"] = options.retry.to_json()
        if uses := _uses(known, node.payload, None):
            plain["uses"] = uses
        if options.concurrency_key is not None:
            plain["concurrency_key"] = options.concurrency_key
            plain["concurrency_limit"] = options.concurrency_limit
        if headers := {**carried, **(options.headers or {})}:
            plain["headers"] = headers
        return plain

    def _task(self, task: AnyTask) -> tuple[str, Task[Any, Any] | None]:
        if not isinstance(task, str):
            return _declared(task).name, task
        if self._app is None:
            return task, None
        return task, self._app.tasks.find(task)

    def _options(
        self, known: Task[Any, Any] | None, given: EnqueueOptions, *, has_keys: bool = False
    ) -> Options:
        if not given and self._tenant in {None, "*"}:
            return known.options if known else _NO_OPTIONS
        unknown = set(given) - set(EnqueueOptions.__annotations__)
        if unknown:
            raise InvalidArgument(
                f"enqueue has no option {', '.join(sorted(unknown))}",
                hint=f"Options: {', '.join(EnqueueOptions.__annotations__)}.",
            )
        options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        if "limits" in options:
            check_limits(options.pop("limits"))
        for name, value in options.items():
            if not isinstance(value, _TYPES[name]) or isinstance(value, bool):
                raise InvalidArgument(
                    f"{name} must be {kinds_of(_TYPES[name])}, got {value!r:.100}",
                    hint="For durations: timedelta(seconds=5)." if timedelta in _TYPES[name] else None,
                )
            if isinstance(value, int) and abs(value) >= 2**31:
                raise InvalidArgument(f"{name} is out of range, got {value!r:.100}")
            if isinstance(value, str) and jsonsafe.printable(value) != value:
                raise InvalidArgument(f"{name} must not contain NUL or lone surrogates, got {value!r:.100}")
        for name, instead in (("delay", "run_at"), ("expires_in", "expires_at")):
            if options.get(name) is not None:
                _positive(name, options[name])
                if options.get(instead) is not None:
                    raise InvalidArgument(
                        f"{name} and {instead} cannot be given together", hint="Leave one of them out."
                    )
        for name in ("run_at", "expires_at"):
            moment = options.get(name)
            if moment is not None and moment.tzinfo is None:
                raise InvalidArgument(
                    f"{name} must have a time zone, got {moment.isoformat()}",
                    hint="Use datetime.now(UTC), or attach a zone.",
                )
        if options.get("after") is not None:
            options["after"] = [job_id_of(job) for job in options["after"]]
        has_keys = has_keys or options.get("concurrency_key") is not None
        if options.get("concurrency_limit") is not None and not has_keys:
            raise InvalidArgument(
                f"concurrency_limit goes with a concurrency_key, got {options['concurrency_limit']} alone",
                hint="Give the key whose jobs share the limit, or leave the limit out.",
            )
        if isinstance(options.get("key_window"), timedelta):
            options["key_window"] = _window(options["key_window"])
        if options.get("tenant") is None and self._tenant != "*":
            options["tenant"] = self._tenant
        return with_options(known.options if known else Options(), **options)


@contextmanager
def _traced(
    tracing: Tracing, task: AnyTask, given: EnqueueOptions, count: int
) -> Generator[EnqueueOptions, None, None]:
    headers: object = given.get("headers") or {}
    if not isinstance(headers, Mapping):
        # Refused in a moment, with the name of the option.
        yield given
        return
    name = task if isinstance(task, str) else _declared(task).name
    with tracing.enqueue(name, headers, count=count) as carried:
        yield {**given, "headers": carried} if carried else given


def _check_each(name: str, given: Sequence[str | None] | None, count: int) -> None:
    """Keys of many jobs: one per payload."""
    if given is None:
        return
    if len(given) != count:
        raise InvalidArgument(f"{name} must be as many as payloads ({count}), got {len(given)}")
    if not {str, NoneType}.issuperset(map(type, given)):
        for key in given:
            if key is not None and not isinstance(key, str):
                raise InvalidArgument(
                    f"{name} must each be a str or None, got {key!r:.100}", hint="Write it out with str()."
                )


def _check_window(given: EnqueueOptions, *, has_key: bool) -> None:
    """Of a task it is a default; of a call without a key it would be forgotten, and the job made again and again."""
    window = given.get("key_window")
    if window is not None and not has_key:
        raise InvalidArgument(
            f"key_window goes with a key, got {window!r} alone", hint="Give the key, or leave it out."
        )


def _declared(task: Task[Any, Any]) -> Task[Any, Any]:
    # Whoever has a task has loaded this already.  Looked up, not imported: an import in a function costs each call.
    registry = sys.modules.get("onceward.registry")
    if registry is not None and isinstance(task, registry.Task):
        return cast("Task[Any, Any]", task)
    raise InvalidArgument(
        f"task must be a task or its name, got {task!r:.100}", hint="Declare it with @app.task."
    )


def _window(window: timedelta) -> str:
    return f"{window.total_seconds()} seconds"


def edited(payload: Mapping[str, Json] | None) -> str | None:
    """The payload of a requeue, as JSON text."""
    return None if payload is None else jsonsafe.dumps(an_object(payload))


def _uses(
    known: Task[Any, Any] | None, payload: Payload | None, given: Sequence[Use] | None
) -> list[dict[str, Json]]:
    if known is not None:
        return known.uses(payload, given)
    return uses_json(given, payload) if given else []


def _dump(known: Task[Any, Any] | None, payload: Payload | None) -> str:
    return jsonsafe.dumps(_plain(payload)) if known is None else known.dump(payload)


def _plain(payload: Payload | None) -> Json:
    if payload is None:
        return {}
    if isinstance(payload, Mapping):
        return payload
    from pydantic import BaseModel

    return an_object(payload.model_dump(mode="json") if isinstance(payload, BaseModel) else payload)


def an_object(payload: Json) -> Json:
    """The payload, which has to be an object: handlers take its members by name."""
    if not isinstance(payload, Mapping):
        raise InvalidPayload(
            f"payload must be an object of named values, got {type(payload).__name__}: {shown(repr(payload))}",
            detail="Nothing was written.",
            hint='Name the values, as in {"order": 1}.',
        )
    return payload


def _positive(name: str, value: timedelta) -> None:
    if value < timedelta(0):
        raise InvalidArgument(
            f"{name} must not be negative, got {value.total_seconds():g} s",
            hint="Leave it out to run at once."
            if name == "delay"
            else "Leave it out for a job that does not expire.",
        )
    if value > timedelta(days=3652):
        raise InvalidArgument(f"{name} must be at most 10 years, got {value}")
