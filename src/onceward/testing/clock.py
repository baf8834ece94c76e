"""The virtual clock: one row in the database, read by `onceward.now()`, so every process and session shares it.

Moving it moves everything the engine decides by time: due jobs, retries, leases, windows of keys, expiry.  In particular,
a worker that is running while the clock jumps past its lease has lost that lease, as if it had been suspended for as long.
A transaction in REPEATABLE READ or SERIALIZABLE keeps the time of its snapshot.  Ids keep the machine's time.
"""

from __future__ import annotations

import contextlib
from datetime import datetime, timedelta
from typing import LiteralString

import psycopg

from onceward.errors import InvalidArgument

__all__ = ["Clock", "install_clock"]

# Replaces the engine's only clock.  Whoever may call onceward.now() has to be able to read the row.
_INSTALL: LiteralString = """
create schema onceward_testing;
create table onceward_testing.clock (
  only_row boolean primary key default true check (only_row),
  pinned   timestamptz,
  shift    interval not null default '0'
);
comment on table onceward_testing.clock is 'The time that onceward.now() tells: pinned, or the machine''s plus shift.';
insert into onceward_testing.clock default values;
grant usage on schema onceward_testing to public;
grant select on onceward_testing.clock to public;
create or replace function onceward.now()
  returns timestamptz
  language sql stable
begin atomic
  select coalesce(c.pinned, pg_catalog.statement_timestamp() + c.shift) from onceward_testing.clock as c;
end;
"""


def install_clock(dsn: str) -> None:
    """Put the virtual clock into a database of tests, in which Onceward is installed."""
    with psycopg.connect(dsn) as connection:
        connection.execute(_INSTALL)


class Clock:
    """The clock of one database of tests."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn

    def now(self) -> datetime:
        """What `onceward.now()` tells."""
        return self._instant("select onceward.now()")

    def advance(self, by: str | timedelta) -> datetime:
        """Move the time forward by a timedelta, or by a text such as "31 s", "2h", "1 day"; returns the new time.

        Leases of running workers end when the step is longer than what is left of them.
        """
        if not isinstance(by, (str, timedelta)):
            raise InvalidArgument(
                f"step of the clock must be a timedelta or a text such as '2h', got {by!r}",
                hint="Name the unit: timedelta(seconds=5), or '5 s'.",
            )
        try:
            return self._instant(
                "with step as materialized (select %(by)s::interval as length) "
                "update onceward_testing.clock "
                "   set pinned = pinned + step.length, "
                "       shift  = case when pinned is null then shift + step.length else shift end "
                "  from step where step.length >= '0' "
                "returning coalesce(pinned, statement_timestamp() + shift)",
                by=by,
            )
        except psycopg.DataError as error:
            raise InvalidArgument(
                f"step of the clock must be a timedelta or a text such as '2h', got {by!r}",
                detail=error.diag.message_primary,
            ) from error
        except LookupError:
            raise InvalidArgument(
                f"step of the clock must not be negative, got {by!r}",
                hint="To go back, pin the clock at an earlier time.",
            ) from None

    def pin(self, at: datetime | str | None = None) -> datetime:
        """Stop the clock at this moment, also as a text such as "2031-01-01T09:00Z", or at the present one."""
        moment = at
        if isinstance(at, str):
            with contextlib.suppress(ValueError):
                moment = datetime.fromisoformat(at)
        if moment is not None and (not isinstance(moment, datetime) or moment.tzinfo is None):
            raise InvalidArgument(
                f"the clock must be pinned at a moment with a time zone, got {at!r}",
                hint='Pass datetime(2031, 1, 1, tzinfo=UTC), or "2031-01-01T00:00Z".',
            )
        return self._instant(
            "update onceward_testing.clock "
            "   set pinned = coalesce(%(at)s::timestamptz, pinned, statement_timestamp() + shift) "
            "returning pinned",
            at=moment,
        )

    def unpin(self) -> datetime:
        """Let the time run again, from where it stands."""
        return self._instant(
            "update onceward_testing.clock "
            "   set shift = coalesce(pinned - statement_timestamp(), shift), pinned = null "
            "returning statement_timestamp() + shift"
        )

    def _instant(self, statement: LiteralString, **parameters: object) -> datetime:
        # A connection for each call: the clock is used from anywhere, and a test may restart the server.
        with psycopg.connect(self._dsn, autocommit=True) as connection:
            row = connection.execute(statement, parameters).fetchone()
        if row is None:
            raise LookupError(statement)
        moment: datetime = row[0]
        return moment
