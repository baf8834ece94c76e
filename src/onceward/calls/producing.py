"""Calls that put jobs in."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import LiteralString
from uuid import UUID

from onceward import jsonsafe
from onceward.calls.base import Call, one, scalar
from onceward.model import (
    JobRef,
    Options,
)

# Delays are counted by the database's clock: the client's may be wrong, or a test may have moved the other.
_TIMES: LiteralString = (
    "coalesce(%(run_at)s::timestamptz, onceward.now() + %(delay)s::interval), "
    "coalesce(%(expires_at)s::timestamptz, "
    "coalesce(%(run_at)s::timestamptz, onceward.now() + coalesce(%(delay)s::interval, '0')) + %(expires_in)s::interval)"
)


def _option_params(task: str, options: Options) -> dict[str, object]:
    return {
        "task": task,
        "lane": options.lane,
        "priority": options.priority,
        "run_at": options.run_at,
        "delay": options.delay,
        "expires_at": options.expires_at,
        "expires_in": options.expires_in,
        "timeout": options.timeout,
        "key_window": options.key_window,
        "concurrency_key": options.concurrency_key,
        "concurrency_limit": options.concurrency_limit,
        "max_attempts": options.max_attempts,
        "retry": json.dumps(options.retry.to_json()) if options.retry else None,
        "tenant": options.tenant,
        "headers": jsonsafe.dumps(dict(options.headers), what="headers") if options.headers else None,
    }


def enqueue(task: str, payload: str, options: Options) -> Call[JobRef]:
    """`payload` is JSON text that jsonsafe has checked."""
    return Call(
        "select job_id, created, answer, until, reason from onceward.enqueue(%(task)s::text, %(payload)s::jsonb, "
        "%(lane)s::text, %(priority)s::int, " + _TIMES + ", "
        "%(timeout)s::interval, %(key)s::text, %(key_window)s::text, %(concurrency_key)s::text, "
        "%(concurrency_limit)s::int, %(max_attempts)s::int, %(retry)s::jsonb, %(tenant)s::text, %(headers)s::jsonb)",
        {**_option_params(task, options), "payload": payload, "key": options.key},
        one(lambda row: JobRef(UUID(str(row[0])), row[1], row[2], row[3], row[4])),
        # A key that lasts as long as its job may be free again when the lost reply is noticed.
        repeatable=options.key is not None and options.key_window != "live",
    )


def enqueue_many(
    task: str, payloads: str, keys: list[str | None] | None, options: Options
) -> Call[list[JobRef]]:
    return Call(
        "select job_id, created from onceward.enqueue_many(%(task)s::text, "
        "array(select jsonb_array_elements(%(payloads)s::jsonb)), "
        "%(keys)s::text[], %(lane)s::text, %(priority)s::int, " + _TIMES + ", "
        "%(timeout)s::interval, %(key_window)s::text, %(concurrency_key)s::text, %(concurrency_limit)s::int, "
        "%(max_attempts)s::int, %(retry)s::jsonb, %(tenant)s::text, %(headers)s::jsonb)",
        {**_option_params(task, options), "payloads": payloads, "keys": keys},
        lambda rows: [JobRef(row[0], row[1], "accepted" if row[1] else "existing") for row in rows],
        repeatable=keys is not None and None not in keys and options.key_window != "live",
    )


def declare_lanes(names: Sequence[str]) -> Call[int]:
    return Call(
        "select onceward.declare_lanes(%(names)s::text[])", {"names": list(names)}, scalar, repeatable=True
    )
