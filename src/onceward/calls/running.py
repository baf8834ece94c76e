"""Calls about runs: once per key."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import LiteralString
from uuid import UUID

from onceward import jsonsafe
from onceward.calls.base import Call, nothing, one, rows_of, scalar
from onceward.model_schedules import RunAnswer, RunInfo


def run_key(
    function: str, tenant: str, *, grain: str = "day", entity: str | None = None, at: datetime | None = None,
    zone: str = "UTC",
) -> Call[str]:  # fmt: skip
    """`entity` is JSON text.  Without `at`, the window is that of the engine's clock."""
    return Call(
        "select onceward.run_key(%(function)s::text, %(tenant)s::text, %(grain)s::text, %(entity)s::jsonb, "
        "%(at)s::timestamptz, %(zone)s::text)",
        {"function": function, "tenant": tenant, "grain": grain, "entity": entity, "at": at, "zone": zone},
        scalar,
        repeatable=True,
    )


def begin_run(key: str, holder: str, *, lease: timedelta, tenant: str | None, token: UUID) -> Call[RunAnswer]:
    return Call(
        "select acquired, state, epoch, attempt, holder, since, expires_at, finished_at, result, error "
        "from onceward.begin_run(%(key)s::text, %(holder)s::text, %(lease)s::interval, %(tenant)s::text, %(token)s::uuid)",
        {"key": key, "holder": holder, "lease": lease, "tenant": tenant, "token": token},
        one(lambda row: RunAnswer(*row)),
        repeatable=True,
    )


def renew_run(key: str, epoch: int, *, lease: timedelta, tenant: str | None) -> Call[datetime]:
    return Call(
        "select onceward.renew_run(%(key)s::text, %(epoch)s::bigint, %(lease)s::interval, %(tenant)s::text)",
        {"key": key, "epoch": epoch, "lease": lease, "tenant": tenant},
        scalar,
        repeatable=True,
    )


def finish_run(key: str, epoch: int, result: str | None, *, tenant: str | None) -> Call[None]:
    """`result` is JSON text that jsonsafe has checked."""
    return Call(
        "select onceward.finish_run(%(key)s::text, %(epoch)s::bigint, %(result)s::jsonb, %(tenant)s::text)",
        {"key": key, "epoch": epoch, "result": result, "tenant": tenant},
        nothing,
        repeatable=True,
    )


def fail_run(key: str, epoch: int, error: str, *, tenant: str | None) -> Call[None]:
    return Call(
        "select onceward.fail_run(%(key)s::text, %(epoch)s::bigint, %(error)s::text, %(tenant)s::text)",
        {"key": key, "epoch": epoch, "error": jsonsafe.printable(error, 4000), "tenant": tenant},
        nothing,
        repeatable=True,
    )


_RUN: LiteralString = (
    "select tenant, key, state, holder, epoch, attempt, created_at, since, expires_at, abandoned, finished_at, result, "
    "error from onceward.runs"
)


def runs(
    *, key: str | None = None, prefix: str | None = None, state: str | None = None, tenant: str | None = None, limit: int = 50
) -> Call[list[RunInfo]]:  # fmt: skip
    """The latest first.  `prefix` is the beginning of keys, such as the name of a function."""
    return Call(
        _RUN + " where (%(key)s::text is null or key = %(key)s::text)"
        " and (%(prefix)s::text is null or starts_with(key, %(prefix)s::text))"
        " and (%(state)s::text is null or state = %(state)s::text)"
        " and (%(tenant)s::text is null or tenant = %(tenant)s::text)"
        " order by since desc, key limit %(limit)s::int",
        {"key": key, "prefix": prefix, "state": state, "tenant": tenant, "limit": limit},
        rows_of(RunInfo),
        repeatable=True,
    )
