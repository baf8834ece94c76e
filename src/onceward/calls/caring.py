"""Calls about who looks after dead letters, and what they say."""

from __future__ import annotations

from uuid import UUID

from onceward.calls.base import Call, rows_of, scalar
from onceward.model_care import AssignmentInfo, CommentInfo


def assign_dead_letters(task: str, fingerprint: str | None, to: str | None) -> Call[bool]:
    """None: nobody looks after them any more.  Whether that is new."""
    return Call(
        "select onceward.assign_dead_letters(%(task)s::text, %(fingerprint)s::text, %(to)s::text)",
        {"task": task, "fingerprint": fingerprint, "to": to},
        scalar,
        repeatable=True,
    )


def comment_dead_letters(
    task: str, fingerprint: str | None, body: str, job_id: UUID | None = None
) -> Call[UUID]:
    return Call(
        "select onceward.comment_dead_letters(%(task)s::text, %(fingerprint)s::text, %(body)s::text, %(job_id)s::uuid)",
        {"task": task, "fingerprint": fingerprint, "body": body, "job_id": job_id},
        scalar,
    )


def assignments(limit: int = 1000) -> Call[list[AssignmentInfo]]:
    """The latest first; those of all tenants before those of one."""
    return Call(
        "select tenant, task, fingerprint, assigned_to, assigned_by, assigned_at from onceward.assignments "
        "order by tenant is not null, assigned_at desc limit %(limit)s::int",
        {"limit": limit},
        rows_of(AssignmentInfo),
        repeatable=True,
    )


def assignment_of(task: str, fingerprint: str | None) -> Call[list[AssignmentInfo]]:
    """Those of all tenants before those of one."""
    return Call(
        "select tenant, task, fingerprint, assigned_to, assigned_by, assigned_at from onceward.assignments "
        "where task = %(task)s::text and fingerprint is not distinct from %(fingerprint)s::text "
        "order by tenant is not null, assigned_at desc limit 100",
        {"task": task, "fingerprint": fingerprint},
        rows_of(AssignmentInfo),
        repeatable=True,
    )


def comments_of(task: str, fingerprint: str | None, limit: int = 200) -> Call[list[CommentInfo]]:
    """The latest of them, in the order in which they were said."""
    return Call(
        "select * from (select id, tenant, task, fingerprint, job_id, author, said_at, body from onceward.comments "
        "where task = %(task)s::text and fingerprint is not distinct from %(fingerprint)s::text "
        "order by id desc limit %(limit)s::int) as latest order by id",
        {"task": task, "fingerprint": fingerprint, "limit": limit},
        rows_of(CommentInfo),
        repeatable=True,
    )
