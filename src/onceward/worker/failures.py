"""What an exception of a handler means for its job.  Recording a failure must not fail, whatever a class does."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from datetime import timedelta

from onceward.errors import InvalidPayload, PermanentFailure, RateLimited, ResultTooLarge, TemporaryFailure


@dataclass(frozen=True, slots=True)
class Failure:
    """How an attempt failed, as it is recorded.  Plain values, so that another process can send it."""

    kind: str
    message: str
    trace: str
    category: str = "error"
    permanent: bool = False
    # None: as the retry policy of the job says.
    retry_after: timedelta | None = None
    # The provider asks to wait: a limit (without a name, all that the job uses) is paused, and nothing has failed.
    is_pause: bool = False
    limit: str | None = None


class Reported(Exception):
    """A failure that is known already, as when it comes from another process."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def failure_of(error: BaseException) -> Failure:
    """What a handler's exception says about its job."""
    if isinstance(error, Reported):
        return error.failure
    category, permanent, retry_after = "error", False, None
    if isinstance(error, PermanentFailure):
        category, permanent = _category(error, "permanent"), True
    elif isinstance(error, InvalidPayload):
        category, permanent = "payload", True
    elif isinstance(error, ResultTooLarge):
        # Also of a step: what it did is done, and cannot be kept.
        category, permanent = "result", True
    elif isinstance(error, TemporaryFailure):
        category, retry_after = _category(error, "temporary"), _duration(error.retry_after)
    elif isinstance(error, RateLimited):
        retry_after = _duration(error.retry_after)
    return Failure(
        kind=type(error).__name__,
        message=message_of(error),
        trace="".join(traceback.format_exception(error)),
        category=category,
        permanent=permanent,
        retry_after=retry_after,
        is_pause=isinstance(error, RateLimited),
        limit=error.limit if isinstance(error, RateLimited) else None,
    )


def message_of(error: BaseException) -> str:
    try:
        # What libraries keep under this name need not be text.
        given = getattr(error, "message", None)
        return (isinstance(given, str) and given) or str(error) or type(error).__name__
    except Exception:
        return f"<{type(error).__name__} whose text cannot be read>"


def _category(error: TemporaryFailure | PermanentFailure, otherwise: str) -> str:
    # A subclass may say anything.
    return error.category if isinstance(error.category, str) and error.category else otherwise


def _duration(given: object) -> timedelta | None:
    return given if isinstance(given, timedelta) else None
