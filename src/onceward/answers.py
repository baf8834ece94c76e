"""What both clients make of answers about a job: its result, or the error that says why there is none."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from onceward.errors import InvalidArgument, JobFailed, UnknownJob, WaitTimeout, shown
from onceward.model import FINISHED, JobInfo, JobRef, Json

AnyJob = JobRef | UUID | str


def job_id_of(job: AnyJob) -> UUID:
    if isinstance(job, JobRef):
        return job.id
    if isinstance(job, UUID):
        return job
    try:
        return UUID(job)
    except (ValueError, AttributeError, TypeError):
        raise InvalidArgument(f"job id must be a UUID, got {shown(repr(job))}") from None


def found(job: AnyJob, info: JobInfo | None) -> JobInfo:
    if info is None:
        raise no_such_job(job_id_of(job))
    return info


def no_such_job(job_id: UUID) -> UnknownJob:
    # Row-level security hides the jobs of others without a word.
    return UnknownJob(
        f"job {job_id} does not exist",
        detail="It was never committed, or this client may not see it.",
        hint='A role that does not own the schema sees the jobs of one tenant: client(tenant="default").',
    )


def ended(job_id: UUID, found: tuple[str, Json, Json, str | None] | None) -> tuple[bool, Json]:
    """Whether the job is over, and its result; raises when it ended without one."""
    if found is None:
        raise no_such_job(job_id)
    state, result, error, note = found
    if state == "done":
        return True, result
    if state == "dead_letter" or state in FINISHED:
        message = note or (error or {}).get("message")
        raise JobFailed(
            f"job {job_id} ended as {state}" + (f": {message}" if message else ""),
            detail=f"{error['type']}: {error['message']}" if error else None,
            hint=f'See "onceward job show {job_id}".',
        )
    return False, None


def check_timeout(timeout: timedelta) -> float:
    """Seconds to wait."""
    if not isinstance(timeout, timedelta):
        raise InvalidArgument(
            f"timeout must be a timedelta, got {timeout!r:.100}", hint="Pass timedelta(seconds=15)."
        )
    return timeout.total_seconds()


def gave_up(job_id: UUID, timeout: timedelta) -> WaitTimeout:
    return WaitTimeout(
        f"job {job_id} has not finished within {timeout.total_seconds():g} s",
        detail="The job goes on; only the waiting ended.",
        hint=f'Wait longer, or see "onceward job show {job_id}".',
    )
