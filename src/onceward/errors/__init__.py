"""Every error that Onceward raises, and the SQLSTATE it has in the database.

OncewardError
├── LeaseLost            OW001  another attempt owns the job
├── UnknownLane          OW002
├── PayloadTooLarge      OW003
├── ResultTooLarge       OW004
├── KeyConflict          OW005  same key, different payload
├── UnknownJob           OW006
├── WrongState           OW007
├── InvalidArgument      OW008
│   ├── InvalidPayload          the payload does not fit the task
│   └── UnknownTask             no task of that name in this application
├── WorkerExpired        OW009  the worker's own lease is over
├── CheckFailed          OW010  a dead letter's check does not pass
├── WrongTenant          OW011
├── InvalidWorkflow      OW012  jobs would wait for each other in a circle
├── UnknownSchedule      OW020
├── UnknownLimit         OW030
├── LimitTooSmall        OW031  one job needs more than the limit gives at once
├── HoldOver             OW032  what was acquired of a limit is over
├── EnqueueRejected             the lane is above its bound; there is no job
├── NoRoom                      a limit had no room in time
├── RateLimited                 raised by handlers: the provider asks to wait
├── AuditIsAppendOnly    OW035
├── AuditNotExported     OW036  days that are not sealed and exported stay
├── UnknownEntry         OW037
├── UnknownMonitor       OW038
├── UnknownAlert         OW039
├── UnknownChannel       OW040
├── CheckOver            OW041  the run of a monitor has been ended by somebody else
├── UnknownOperator      OW045
├── SignInRefused        OW046  a link that was used, is over, or never was
├── UnknownToken         OW047
├── RunHeld                     the run of this key is somebody's, or done
├── ClientClosed                the client was closed; nothing has happened
├── CannotConnect               the database cannot be reached; nothing has happened
├── ConnectionLost              the connection broke; the call may have happened
├── NotAllowed                  the role lacks a role of Onceward
├── NotInstalled                the schema is missing or older than this code
├── WaitTimeout                 client.wait() gave up; the job goes on
├── JobFailed                   client.wait() found the job dead or cancelled
├── EventTimeout                job.wait_event() gave up
├── JobsFailed                  job.join() found jobs that failed
├── TemporaryFailure            raised by handlers: retry, after the time that it names
└── PermanentFailure            raised by handlers: do not retry
    └── StepsChanged            the handler lacks steps that an earlier attempt has done
"""

from __future__ import annotations

from datetime import timedelta
from typing import ClassVar

from onceward.errors.words import kinds_of, shown

__all__ = [
    "BY_SQLSTATE", "AuditIsAppendOnly", "AuditNotExported", "CannotConnect", "CheckFailed", "CheckOver",
    "ClientClosed", "ConnectionLost", "DriverError", "EnqueueRejected", "EventTimeout", "HoldOver", "InvalidArgument",
    "InvalidPayload", "InvalidWorkflow", "JobFailed", "JobsFailed", "KeyConflict", "LeaseLost", "LimitTooSmall",
    "NoRoom", "NotAllowed", "NotInstalled", "OncewardError", "PayloadTooLarge", "PermanentFailure", "RateLimited",
    "ResultTooLarge", "RunHeld", "SignInRefused", "StepsChanged", "TemporaryFailure", "UnknownAlert",
    "UnknownChannel", "UnknownEntry", "UnknownJob", "UnknownLane", "UnknownLimit", "UnknownMonitor",
    "UnknownOperator", "UnknownSchedule", "UnknownTask", "UnknownToken", "WaitTimeout", "WorkerExpired",
    "WrongState", "WrongTenant", "connection_lost", "driver_error", "from_database", "is_busy",
    "is_connection_trouble", "is_pool_closed", "is_pool_timeout", "is_pooler_trouble", "kinds_of", "shown",
]  # fmt: skip


class OncewardError(Exception):
    """Onceward could not do what was asked."""

    sqlstate: ClassVar[str | None] = None

    def __init__(
        self, message: str | None = None, *, detail: str | None = None, hint: str | None = None
    ) -> None:
        # The docstring is the default message, so that the two cannot differ.
        self.message = message or (type(self).__doc__ or "").strip()
        self.detail = detail
        self.hint = hint
        super().__init__(self.message)

    def __str__(self) -> str:
        lines = [self.message]
        if self.detail:
            lines.append(f"detail: {self.detail}")
        if self.hint:
            lines.append(f"hint: {self.hint}")
        return "\n".join(lines)

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.args, self.__dict__))


def _rebuild(kind: type[OncewardError], args: tuple[object, ...], state: dict[str, object]) -> OncewardError:
    # Not by calling it: a subclass takes what it likes.
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


class LeaseLost(OncewardError):
    """The lease on the job is no longer held."""

    sqlstate = "OW001"


class UnknownLane(OncewardError):
    """The lane does not exist."""

    sqlstate = "OW002"


class PayloadTooLarge(OncewardError):
    """The payload is larger than the lane allows."""

    sqlstate = "OW003"


class ResultTooLarge(OncewardError):
    """The result is larger than the lane allows."""

    sqlstate = "OW004"


class KeyConflict(OncewardError):
    """The key is taken by a job with a different payload."""

    sqlstate = "OW005"


class UnknownJob(OncewardError):
    """The job does not exist."""

    sqlstate = "OW006"


class WrongState(OncewardError):
    """The job is in a state that does not allow this."""

    sqlstate = "OW007"


class InvalidArgument(OncewardError):
    """An argument has a value that is not allowed."""

    sqlstate = "OW008"


class InvalidPayload(InvalidArgument):
    """The payload does not fit the task."""


class UnknownTask(InvalidArgument):
    """No task of that name is registered."""


class WorkerExpired(OncewardError):
    """The worker holds no lease."""

    sqlstate = "OW009"


class CheckFailed(OncewardError):
    """The check of the task does not pass."""

    sqlstate = "OW010"


class WrongTenant(OncewardError):
    """The job belongs to another tenant."""

    sqlstate = "OW011"


class InvalidWorkflow(OncewardError):
    """Jobs of the workflow wait for each other in a circle."""

    sqlstate = "OW012"


class UnknownSchedule(OncewardError):
    """The schedule does not exist."""

    sqlstate = "OW020"


class UnknownLimit(OncewardError):
    """The limit does not exist."""

    sqlstate = "OW030"


class LimitTooSmall(OncewardError):
    """The limit never gives so much at once."""

    sqlstate = "OW031"


class HoldOver(OncewardError):
    """What was acquired of a limit was released, or its lease is over."""

    sqlstate = "OW032"


class EnqueueRejected(OncewardError):
    """More waits than may; the job was not enqueued."""


class NoRoom(OncewardError):
    """The limit has no room."""


class RateLimited(OncewardError):
    """The provider asks to wait."""

    def __init__(
        self,
        message: str | None = None,
        *,
        retry_after: timedelta = timedelta(seconds=30),
        limit: str | None = None,
        detail: str | None = None,
        hint: str | None = None,
    ) -> None:
        """`limit` is one of those that the job uses; without it, all of them are paused."""
        super().__init__(message, detail=detail, hint=hint)
        self.retry_after = retry_after
        self.limit = limit


class AuditIsAppendOnly(OncewardError):
    """The audit log is append-only."""

    sqlstate = "OW035"


class AuditNotExported(OncewardError):
    """The audit log is not sealed, or no checkpoint that covers it was exported."""

    sqlstate = "OW036"


class UnknownEntry(OncewardError):
    """The audit entry does not exist."""

    sqlstate = "OW037"


class UnknownMonitor(OncewardError):
    """The monitor does not exist."""

    sqlstate = "OW038"


class UnknownAlert(OncewardError):
    """The alert does not exist."""

    sqlstate = "OW039"


class UnknownChannel(OncewardError):
    """The channel does not exist."""

    sqlstate = "OW040"


class CheckOver(OncewardError):
    """The run of the monitor is over."""

    sqlstate = "OW041"


class UnknownOperator(OncewardError):
    """The operator does not exist."""

    sqlstate = "OW045"


class SignInRefused(OncewardError):
    """The sign-in link cannot be used."""

    sqlstate = "OW046"


class UnknownToken(OncewardError):
    """The token does not exist."""

    sqlstate = "OW047"


class RunHeld(OncewardError):
    """Somebody runs this key, or it has completed."""


class ClientClosed(OncewardError):
    """The client was closed."""


class CannotConnect(OncewardError):
    """The database cannot be reached."""


class ConnectionLost(OncewardError):
    """The connection to the database was lost during a call."""


class NotAllowed(OncewardError):
    """The role may not do this."""


class NotInstalled(OncewardError):
    """The schema onceward is not installed in this database."""


class WaitTimeout(OncewardError):
    """The job has not finished in time."""


class JobFailed(OncewardError):
    """The job ended without a result."""


class EventTimeout(OncewardError):
    """The event did not come in time."""


class JobsFailed(OncewardError):
    """Jobs that this one waited for have failed."""


class TemporaryFailure(OncewardError):
    """The job cannot succeed now, and may later."""

    # What the attempt is recorded under.  A subclass may have its own.
    category: str = "temporary"

    def __init__(
        self,
        message: str | None = None,
        *,
        retry_after: timedelta | None = None,
        category: str | None = None,
        detail: str | None = None,
        hint: str | None = None,
    ) -> None:
        """`retry_after` is the wait before the next attempt; without it, the retry policy of the job says."""
        super().__init__(message, detail=detail, hint=hint)
        self.retry_after = retry_after
        if category is not None:
            self.category = category


class PermanentFailure(OncewardError):
    """The job cannot succeed, however often it is tried."""

    category: str = "permanent"

    def __init__(
        self,
        message: str | None = None,
        *,
        category: str | None = None,
        detail: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, detail=detail, hint=hint)
        if category is not None:
            self.category = category


class StepsChanged(PermanentFailure):
    """The handler no longer has the steps that an earlier attempt of the job has done."""


BY_SQLSTATE: dict[str, type[OncewardError]] = {
    cls.sqlstate: cls
    for cls in (LeaseLost, UnknownLane, PayloadTooLarge, ResultTooLarge, KeyConflict, UnknownJob, WrongState,
                InvalidArgument, WorkerExpired, CheckFailed, WrongTenant, InvalidWorkflow,
                UnknownSchedule, UnknownLimit, LimitTooSmall, HoldOver, AuditIsAppendOnly, AuditNotExported, UnknownEntry,
                UnknownMonitor, UnknownAlert, UnknownChannel, CheckOver,
                UnknownOperator, SignInRefused, UnknownToken)
    if cls.sqlstate is not None
}  # fmt: skip

# Last, because drivers' errors are translated into the classes above.
from onceward.errors.drivers import (  # noqa: E402 - see above
    DriverError,
    connection_lost,
    driver_error,
    from_database,
    is_busy,
    is_connection_trouble,
    is_pool_closed,
    is_pool_timeout,
    is_pooler_trouble,
)
