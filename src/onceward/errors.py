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
├── CannotConnect               the database cannot be reached; nothing has happened
├── ConnectionLost              the connection broke; the call may have happened
├── NotAllowed                  the role lacks a role of Onceward
├── NotInstalled                the schema is missing or older than this code
├── WaitTimeout                 client.wait() gave up; the job goes on
├── JobFailed                   client.wait() found the job dead or cancelled
├── EventTimeout                job.wait_event() gave up
├── JobsFailed                  job.join() found jobs that failed
└── PermanentFailure            raised by handlers: do not retry
    └── StepsChanged            the handler lacks steps that an earlier attempt has done
"""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

if TYPE_CHECKING:
    from typing import TypeGuard

    import psycopg


def shown(value: object, most: int = 60) -> str:
    """A value as errors show it: enough to be recognised, never a page."""
    try:
        text = value if isinstance(value, str) else repr(value)
    except Exception:  # RecursionError, or whatever a __repr__ does
        text = f"<{type(value).__name__}>"
    return text if len(text) <= most else text[:most] + "…"


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
        return (_rebuild, (type(self), self.message, self.detail, self.hint))


def _rebuild(kind: type[OncewardError], message: str, detail: str | None, hint: str | None) -> OncewardError:
    return kind(message, detail=detail, hint=hint)


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

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild_limited, (self.message, self.retry_after, self.limit, self.detail, self.hint))


def _rebuild_limited(
    message: str, retry_after: timedelta, limit: str | None, detail: str | None, hint: str | None
) -> RateLimited:
    return RateLimited(message, retry_after=retry_after, limit=limit, detail=detail, hint=hint)


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


class PermanentFailure(OncewardError):
    """The job cannot succeed, however often it is tried."""


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


class DriverError(NamedTuple):
    """The parts of a driver's error that PostgreSQL has sent."""

    sqlstate: str
    message: str
    detail: str | None
    hint: str | None


def driver_error(error: BaseException) -> DriverError | None:
    """What PostgreSQL said, from psycopg or asyncpg, also when SQLAlchemy or Django has wrapped it."""
    seen: BaseException | None = error
    while seen is not None:
        state = getattr(seen, "sqlstate", None)
        if isinstance(state, str):
            diag = getattr(seen, "diag", seen)  # psycopg keeps the parts in diag, asyncpg on the error
            return DriverError(
                state,
                getattr(diag, "message_primary", None) or getattr(diag, "message", None) or str(seen),
                getattr(diag, "message_detail", None) or getattr(diag, "detail", None),
                getattr(diag, "message_hint", None) or getattr(diag, "hint", None),
            )
        seen = getattr(seen, "orig", None) or seen.__cause__
    return None


def from_database(error: BaseException) -> OncewardError | None:
    """The Onceward error behind a driver's error."""
    found = driver_error(error)
    if found is None:
        return None
    state, message, detail, hint = found
    if state in BY_SQLSTATE:
        return BY_SQLSTATE[state](message, detail=detail, hint=hint)
    # Raised by the first call against a database without the schema, or with an older one.
    missing = {"3F000", "42883", "42P01"}
    if state in missing and "onceward" in message:
        return NotInstalled(
            message,
            detail="The schema onceward is missing in this database, or older than this version of Onceward.",
            hint='Install or upgrade it with "onceward db upgrade".',
        )
    return None


def _is_psycopg(error: BaseException, *kinds: str) -> TypeGuard[psycopg.Error]:
    """Whether the driver has raised it.  Nobody can have, in a program that has not loaded the driver."""
    driver: Any = sys.modules.get("psycopg")
    return driver is not None and isinstance(
        error, tuple(getattr(driver, kind) for kind in kinds or ("Error",))
    )


def is_pooler_trouble(error: BaseException) -> bool:
    """Whether a pooler has handed us a session that does not know our prepared statements.  Nothing was executed."""
    return _is_psycopg(error) and error.sqlstate in {"26000", "42P05"}


def is_busy(error: BaseException) -> bool:
    """Whether somebody else has a row locked that the call needs.  Nothing was executed; later it may pass."""
    return _is_psycopg(error) and error.sqlstate == "55P03"


def connection_lost(error: BaseException) -> ConnectionLost | None:
    """The error for a call whose connection broke, or None when that is not what happened."""
    if _is_psycopg(error):
        state = error.sqlstate
        if not is_connection_trouble(error) or (
            state is not None and state[:2] != "08" and state[:3] != "57P"
        ):
            return None
    elif not isinstance(error, (OSError, TimeoutError)):
        return None
    return ConnectionLost(
        "the connection to the database was lost",
        detail=" ".join(str(error).split()) or type(error).__name__,
        hint="What was not confirmed may or may not have happened. With a key, enqueue can be repeated safely.",
    )


def is_connection_trouble(error: BaseException) -> bool:
    """Whether the same call may pass on a new connection."""
    if isinstance(error, (OSError, TimeoutError, CannotConnect, ConnectionLost)):
        return True
    if not _is_psycopg(error):
        return False
    state = error.sqlstate
    if state is None:
        return _is_psycopg(error, "OperationalError", "InterfaceError")
    # 08 connection, 57P shutdown, 53 resources (disk full, too many connections), 40 deadlock or serialization, 25006 standby
    return state[:2] in {"08", "53", "40"} or state[:3] == "57P" or state in {"57014", "25006"}
