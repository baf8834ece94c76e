"""Calls that put jobs in."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import repeat
from typing import LiteralString, cast
from uuid import UUID

from onceward import jsonsafe
from onceward.calls.base import Call, Row, scalar
from onceward.errors import EnqueueRejected
from onceward.model import (
    Answer,
    JobRef,
    Json,
    Options,
)

# Delays are counted by the database's clock: the client's may be wrong, or a test may have moved the other.
_TIMES: LiteralString = (
    ", p_run_at => coalesce(%(run_at)s::timestamptz, onceward.now() + %(delay)s::interval), "
    "p_expires_at => coalesce(%(expires_at)s::timestamptz, "
    "coalesce(%(run_at)s::timestamptz, onceward.now() + coalesce(%(delay)s::interval, '0')) + %(expires_in)s::interval)"
)
# Option, argument, and the value that need not be sent because the function has it as its default.
_OPTIONS: list[tuple[str, LiteralString, object]] = [
    ("lane", ", p_lane => %(lane)s::text", "default"),
    ("priority", ", p_priority => %(priority)s::int", 0),
    ("timeout", ", p_timeout => %(timeout)s::interval", None),
    ("key_window", ", p_key_window => %(key_window)s::text", "live"),
    ("max_attempts", ", p_max_attempts => %(max_attempts)s::int", 8),
    ("tenant", ", p_tenant => %(tenant)s::text", None),
]


def _arguments(options: Options) -> tuple[LiteralString, dict[str, object]]:
    """Named arguments and their values; only what differs from the defaults, because each one costs time."""
    sql: LiteralString = ""
    params: dict[str, object] = {}
    for name, argument, default in _OPTIONS:
        value = getattr(options, name)
        if value != default:
            sql += argument
            params[name] = value
    if options.run_at or options.delay is not None or options.expires_at or options.expires_in is not None:
        sql += _TIMES
        for name in ("run_at", "delay", "expires_at", "expires_in"):
            params[name] = getattr(options, name)
    if options.concurrency_key is not None:
        sql += ", p_concurrency_key => %(concurrency_key)s::text, p_concurrency_limit => %(concurrency_limit)s::int"
        params["concurrency_key"] = options.concurrency_key
        # A task may name a limit for those of its jobs that have a key.
        params["concurrency_limit"] = options.concurrency_limit
    if options.retry:
        sql += ", p_retry => %(retry)s::jsonb"
        params["retry"] = json.dumps(options.retry.to_json())
    if options.after is not None:
        sql += ", p_after => %(after)s::uuid[], p_after_policy => %(after_policy)s::text"
        params["after"], params["after_policy"] = list(options.after), options.after_policy
    if options.workflow_id is not None:
        sql += ", p_workflow_id => %(workflow_id)s::uuid"
        params["workflow_id"] = options.workflow_id
    if options.headers:
        sql += ", p_headers => %(headers)s::jsonb"
        params["headers"] = jsonsafe.dumps(dict(options.headers), what="headers")
    return sql, params


def enqueue(task: str, payload: str, options: Options, uses: Sequence[Json] | None = None) -> Call[JobRef]:
    """`payload` is JSON text that jsonsafe has checked; `uses` are the limits that the job uses."""
    arguments, params = _arguments(options)
    is_plain = not uses and options.key is None and params.keys() <= {"lane"}
    params["task"], params["payload"] = task, payload
    if is_plain:
        return Call(
            "select onceward.enqueue_plain(%(task)s::text, %(payload)s::jsonb" + arguments + ")",
            params,
            _plain_ref,
            otherwise=lambda: _enqueue(arguments, params),
        )
    if uses:
        arguments += ", p_uses => %(uses)s::jsonb"
        params["uses"] = json.dumps(uses)
    if options.key is not None:
        arguments += ", p_key => %(key)s::text"
        params["key"] = options.key
    # A key that lasts as long as its job may be free again when the lost reply is noticed.
    return _enqueue(arguments, params, repeatable=options.key is not None and options.key_window != "live")


def _enqueue(
    arguments: LiteralString, params: dict[str, object], *, repeatable: bool = False
) -> Call[JobRef]:
    return Call(
        "select job_id, created, answer, until, reason "
        "from onceward.enqueue(p_task => %(task)s::text, p_payload => %(payload)s::jsonb" + arguments + ")",
        params,
        _job_ref,
        repeatable=repeatable,
    )


def _plain_ref(rows: Sequence[Row]) -> JobRef:
    job_id = rows[0][0]
    # None: it was not plain after all.
    return cast("JobRef", None) if job_id is None else JobRef(_uuid(job_id))


def _uuid(job_id: object) -> UUID:
    """Drivers differ in what they make of a uuid."""
    return job_id if type(job_id) is UUID else UUID(str(job_id))


def _job_ref(rows: Sequence[Row]) -> JobRef:
    job_id, created, answer, until, reason = rows[0]
    if answer == "rejected":
        raise rejected(reason)
    return JobRef(_uuid(job_id), created, answer, until, reason)


def rejected(reason: str | None) -> EnqueueRejected:
    return EnqueueRejected(
        f"the job was rejected: {reason}",
        detail="Nothing was written.",
        hint="Enqueue it later, or raise the bound of the lane.",
    )


def _job_refs(rows: Sequence[Row]) -> list[JobRef]:
    job_ids, are_new, answer, until, reason = rows[0]
    if answer == "rejected":
        raise rejected(reason)
    # Drivers make the same of each.
    ids = job_ids if job_ids and type(job_ids[0]) is UUID else map(_uuid, job_ids or ())
    if are_new is None and answer == "accepted" and reason is None:
        return list(map(JobRef, ids))
    new = (True, answer, until, reason)
    old: tuple[bool, Answer, None, None] = (False, "existing", None, None)
    return [
        JobRef(job_id, *(new if is_new else old))
        for job_id, is_new in zip(ids, are_new or repeat(True), strict=False)
    ]


def enqueue_many(
    task: str,
    payloads: str,
    options: Options,
    *,
    keys: Sequence[str | None] | None = None,
    concurrency_keys: Sequence[str | None] | None = None,
    uses: Sequence[Sequence[Json]] | None = None,
) -> Call[list[JobRef]]:
    """One key and concurrency key per payload, and one list of limits in `uses`."""
    arguments, params = _arguments(options)
    params["task"], params["payloads"] = task, payloads
    if keys is not None:
        # As one text: the driver makes arrays item by item.
        arguments += ", p_keys => array(select jsonb_array_elements_text(%(keys)s::jsonb))"
        params["keys"] = jsonsafe.dumps_texts(list(keys), what="keys")
    if concurrency_keys is not None:
        arguments += (
            ", p_concurrency_keys => array(select jsonb_array_elements_text(%(concurrency_keys)s::jsonb))"
            ", p_concurrency_limit => %(concurrency_limit)s::int"
        )
        params["concurrency_keys"] = jsonsafe.dumps_texts(list(concurrency_keys), what="concurrency_keys")
        params["concurrency_limit"] = options.concurrency_limit
    if uses:
        arguments += ", p_uses => %(uses)s::jsonb"
        params["uses"] = json.dumps(uses)
    return Call(
        "select job_ids, are_new, answer, until, reason from onceward.enqueue_set(p_task => %(task)s::text, "
        "p_payloads => array(select jsonb_array_elements(%(payloads)s::jsonb))" + arguments + ")",
        params,
        _job_refs,
        repeatable=keys is not None and None not in keys and options.key_window != "live",
    )


def declare_lanes(names: Sequence[str]) -> Call[int]:
    return Call(
        "select onceward.declare_lanes(%(names)s::text[])", {"names": list(names)}, scalar, repeatable=True
    )
