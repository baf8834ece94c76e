"""Calls of running jobs: steps, sleeping, waiting, children."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from onceward import jsonsafe
from onceward.calls.base import Call, nothing, one, rows_of, scalar
from onceward.model import JobOutcome, Json, StoredStep


@dataclass(frozen=True, slots=True)
class Place:
    """Where a step is written: the attempt that runs, and the step's place in it."""

    job_id: UUID
    epoch: int
    name: str
    seq: int
    version: str | None

    def params(self, **more: object) -> dict[str, object]:
        return {
            "job_id": self.job_id,
            "epoch": self.epoch,
            "step": self.name,
            "seq": self.seq,
            "version": self.version,
            **more,
        }


def steps_of(job_id: UUID, epoch: int) -> Call[list[StoredStep]]:
    return Call(
        "select name, kind, state, result, coalesce(is_over, false), version "
        "from onceward.steps_of(%(job_id)s::uuid, %(epoch)s::bigint)",
        {"job_id": job_id, "epoch": epoch},
        rows_of(StoredStep),
        repeatable=True,
    )


def finish_step(place: Place, result: str | None, *, kind: str, tries: int, took: float) -> Call[None]:
    """`result` is JSON text that jsonsafe has checked."""
    return Call(
        "select onceward.finish_step(%(job_id)s::uuid, %(epoch)s::bigint, %(step)s::text, %(result)s::jsonb, "
        "%(kind)s::text, %(seq)s::int, %(tries)s::int, %(took)s::interval, %(version)s::text)",
        place.params(result=result, kind=kind, tries=tries, took=timedelta(seconds=took)),
        nothing,
        repeatable=True,
    )


def fail_step(place: Place, error: BaseException, *, kind: str, tries: int, took: float) -> Call[None]:
    return Call(
        "select onceward.fail_step(%(job_id)s::uuid, %(epoch)s::bigint, %(step)s::text, %(type)s::text, "
        "%(message)s::text, %(kind)s::text, %(seq)s::int, %(tries)s::int, %(took)s::interval, %(version)s::text)",
        place.params(
            type=jsonsafe.printable(type(error).__name__, 200),
            message=jsonsafe.printable(str(error), 2000),
            kind=kind,
            tries=tries,
            took=timedelta(seconds=took),
        ),
        nothing,
        repeatable=True,
    )


def sleep(place: Place, delay: timedelta) -> Call[datetime]:
    return Call(
        "select onceward.sleep(%(job_id)s::uuid, %(epoch)s::bigint, %(step)s::text, %(delay)s::interval, "
        "%(seq)s::int, %(version)s::text)",
        place.params(delay=delay),
        scalar,
        repeatable=True,
    )


def wait_event(place: Place, event: str, timeout: timedelta | None) -> Call[datetime]:
    return Call(
        "select onceward.wait_event(%(job_id)s::uuid, %(epoch)s::bigint, %(step)s::text, %(event)s::text, "
        "%(timeout)s::interval, %(seq)s::int, %(version)s::text)",
        place.params(event=event, timeout=timeout),
        scalar,
        repeatable=True,
    )


def receive_event(place: Place, event: str) -> Call[tuple[str, Json]]:
    """`received`, `timeout` or `waiting`, and the payload."""
    return Call(
        "select state, payload from onceward.receive_event(%(job_id)s::uuid, %(epoch)s::bigint, %(step)s::text, "
        "%(event)s::text, %(seq)s::int, %(version)s::text)",
        place.params(event=event),
        one(lambda row: (row[0], row[1])),
        repeatable=True,
    )


def spawn(
    place: Place, task: str, payloads: str, *, lane: str, priority: int, max_attempts: int, retry: str | None,
    timeout: timedelta | None, uses: Sequence[Json] | None = None, headers: str | None = None,
) -> Call[list[UUID]]:  # fmt: skip
    """`payloads` is the JSON text of a list."""
    return Call(
        "select onceward.spawn(%(job_id)s::uuid, %(epoch)s::bigint, %(step)s::text, %(task)s::text, "
        "array(select jsonb_array_elements(%(payloads)s::jsonb)), %(lane)s::text, %(priority)s::int, "
        "%(max_attempts)s::int, %(retry)s::jsonb, %(timeout)s::interval, %(seq)s::int, %(version)s::text, %(uses)s::jsonb, "
        "%(headers)s::jsonb)",
        place.params(
            task=task,
            payloads=payloads,
            lane=lane,
            priority=priority,
            max_attempts=max_attempts,
            retry=retry,
            timeout=timeout,
            uses=json.dumps(uses) if uses else None,
            headers=headers,
        ),
        scalar,
        repeatable=True,
    )


def join_jobs(place: Place, job_ids: Sequence[UUID]) -> Call[None]:
    return Call(
        "select onceward.join_jobs(%(job_id)s::uuid, %(epoch)s::bigint, %(step)s::text, %(job_ids)s::uuid[], "
        "%(seq)s::int, %(version)s::text)",
        place.params(job_ids=list(job_ids)),
        nothing,
        repeatable=True,
    )


def outcomes_of(job_id: UUID, epoch: int, job_ids: Sequence[UUID]) -> Call[list[JobOutcome]]:
    return Call(
        "select job_id, state, result, error from onceward.outcomes_of(%(job_id)s::uuid, %(epoch)s::bigint, "
        "%(job_ids)s::uuid[])",
        {"job_id": job_id, "epoch": epoch, "job_ids": list(job_ids)},
        rows_of(JobOutcome),
        repeatable=True,
    )
