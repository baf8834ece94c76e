"""A workflow: jobs that wait for each other, enqueued as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from onceward.errors import InvalidArgument

if TYPE_CHECKING:
    from onceward.model import Json
    from onceward.registry import Task
    from onceward.requests import AfterPolicy


@dataclass(frozen=True, slots=True)
class Node:
    """One job of a workflow that is being put together."""

    name: str
    task: Task[Any, Any] | str
    payload: Mapping[str, Json] | None
    options: dict[str, Any]


@dataclass(slots=True)
class Workflow:
    """`add` the jobs, then `client.enqueue_workflow`: all of them are enqueued, or none."""

    nodes: list[Node] = field(default_factory=list)

    def add(  # noqa: PLR0913 - the options of a job
        self,
        name: str,
        task: Task[Any, Any] | str,
        payload: Mapping[str, Json] | None = None,
        *,
        after: Sequence[Node | str] = (),
        after_policy: AfterPolicy = "fail",
        lane: str | None = None,
        priority: int | None = None,
        run_at: datetime | None = None,
        timeout: timedelta | None = None,
        max_attempts: int | None = None,
        concurrency_key: str | None = None,
        concurrency_limit: int | None = None,
    ) -> Node:
        """A job that runs after those in `after`.

        When one of those fails, `fail` cancels this one, `ignore` runs it all the same, and `compensate` runs it only then.
        """
        if any(node.name == name for node in self.nodes):
            raise InvalidArgument(
                f'workflow has a node "{name}" already', hint="Give each a name of its own."
            )
        options = {
            "after": [node if isinstance(node, str) else node.name for node in after],
            "after_policy": after_policy,
            "lane": lane,
            "priority": priority,
            "run_at": run_at,
            "timeout": timeout,
            "max_attempts": max_attempts,
            "concurrency_key": concurrency_key,
            "concurrency_limit": concurrency_limit,
        }
        node = Node(name, task, payload, {key: value for key, value in options.items() if value is not None})
        self.nodes.append(node)
        return node
