"""Which job a handler works for: what it asks for meanwhile is recorded as asked for by that job."""

from __future__ import annotations

from contextvars import ContextVar

# The job's id, set by the worker for each attempt, in async handlers, threads and processes.  None: the code is not part of a job.
current_job: ContextVar[str | None] = ContextVar("onceward_job", default=None)
