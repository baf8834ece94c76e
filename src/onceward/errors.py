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
├── NotInstalled                the schema is missing or older than this code
├── WaitTimeout                 client.wait() gave up; the job goes on
├── JobFailed                   client.wait() found the job dead or cancelled
└── PermanentFailure            raised by handlers: do not retry
"""

from __future__ import annotations

from typing import ClassVar

import psycopg


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


class NotInstalled(OncewardError):
    """The schema onceward is not installed in this database."""


class WaitTimeout(OncewardError):
    """The job has not finished in time."""


class JobFailed(OncewardError):
    """The job ended without a result."""


class PermanentFailure(OncewardError):
    """The job cannot succeed, however often it is tried."""


BY_SQLSTATE: dict[str, type[OncewardError]] = {
    cls.sqlstate: cls
    for cls in (LeaseLost, UnknownLane, PayloadTooLarge, ResultTooLarge, KeyConflict, UnknownJob, WrongState,
                InvalidArgument, WorkerExpired, CheckFailed, WrongTenant)
    if cls.sqlstate is not None
}  # fmt: skip


def from_database(error: BaseException) -> OncewardError | None:
    """The Onceward error behind a driver's error (psycopg, asyncpg, or one wrapped by SQLAlchemy or Django)."""
    seen: BaseException | None = error
    while seen is not None:
        state = getattr(seen, "sqlstate", None)
        if isinstance(state, str):
            return _translate(seen, state)
        seen = getattr(seen, "orig", None) or seen.__cause__
    return None


def _translate(error: BaseException, state: str) -> OncewardError | None:
    diag = getattr(error, "diag", error)  # psycopg keeps the parts in diag, asyncpg on the error
    message = getattr(diag, "message_primary", None) or getattr(diag, "message", None) or str(error)
    detail = getattr(diag, "message_detail", None) or getattr(diag, "detail", None)
    hint = getattr(diag, "message_hint", None) or getattr(diag, "hint", None)
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


def is_pooler_trouble(error: BaseException) -> bool:
    """Whether a pooler has handed us a session that does not know our prepared statements.  Nothing was executed."""
    return isinstance(error, psycopg.Error) and error.sqlstate in {"26000", "42P05"}


def is_busy(error: BaseException) -> bool:
    """Whether somebody else has a row locked that the call needs.  Nothing was executed; later it may pass."""
    return isinstance(error, psycopg.Error) and error.sqlstate == "55P03"


def is_connection_trouble(error: BaseException) -> bool:
    """Whether the same call may pass on a new connection."""
    if isinstance(error, (OSError, TimeoutError)):
        return True
    if not isinstance(error, psycopg.Error):
        return False
    state = error.sqlstate
    if state is None:
        return isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError))
    # 08 connection, 57P shutdown, 53 resources (disk full, too many connections), 40 deadlock or serialization, 25006 standby
    return state[:2] in {"08", "53", "40"} or state[:3] == "57P" or state in {"57014", "25006"}
