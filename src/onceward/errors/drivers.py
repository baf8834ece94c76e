"""What the error of a database driver means: which error of ours, and whether another try may pass."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from onceward.errors import BY_SQLSTATE, CannotConnect, ConnectionLost, NotInstalled, OncewardError

if TYPE_CHECKING:
    from typing import TypeGuard

    import psycopg


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


def is_pool_timeout(error: BaseException) -> bool:
    """Whether a pool had no connection for us in time.  It does not say why."""
    pool: Any = sys.modules.get("psycopg_pool")
    return pool is not None and isinstance(error, pool.PoolTimeout)


def is_pool_closed(error: BaseException) -> bool:
    """Whether a pool was closed before it had a connection for us."""
    pool: Any = sys.modules.get("psycopg_pool")
    return pool is not None and isinstance(error, pool.PoolClosed)


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
