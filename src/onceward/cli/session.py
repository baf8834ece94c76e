"""One command's way to the database: which one, for which tenant, and what went wrong in a person's words."""

from __future__ import annotations

import os
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar, cast

import psycopg
import typer
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.types.json import set_json_loads

from onceward import calls, connecting, doctor_calls, install, jsonsafe
from onceward.calls import Call
from onceward.calls.arguments import unfit
from onceward.calls.rights import not_allowed
from onceward.cli import output, values
from onceward.cli.values import UsageProblem
from onceward.doctor_calls import Reach
from onceward.dsn import LIBPQ_VARIABLES, resolve_dsn
from onceward.errors import InvalidArgument, NotInstalled, UnknownLane, from_database, shown

T = TypeVar("T")
Connection = psycopg.Connection[tuple[Any, ...]]
CONNECT_SECONDS = "10"


@dataclass
class Session:
    """Settings of one invocation, and its connection, which is opened by the first call."""

    dsn: str | None = None
    tenant: str | None = None
    _connection: Connection | None = field(default=None, repr=False)

    def choose(self, dsn: str | None, tenant: str | None) -> None:
        """Take what was typed.  An empty text is a variable that was not set, and must not mean everything."""
        for option, value in (("--dsn", dsn), ("--tenant", tenant)):
            if value is not None and not value.strip():
                raise UsageProblem(f"{option} is empty", hint="Leave it out, or give it a value.")
        self.dsn = self.dsn if dsn is None else dsn
        self.tenant = self.tenant if tenant is None else tenant

    @cached_property
    def named(self) -> str:
        """The DSN of the database that is meant; empty when the PG* variables decide.  May start the embedded server."""
        named = self.dsn or os.environ.get("ONCEWARD_DSN") or any(map(os.environ.get, LIBPQ_VARIABLES))
        console = output.stderr()
        with nullcontext() if named or not console.is_terminal else console.status("Starting PostgreSQL …"):
            try:
                return resolve_dsn(self.dsn)
            except InvalidArgument as error:
                raise UsageProblem(error.message, hint=error.hint) from None

    @cached_property
    def conninfo(self) -> str:
        """The same, with a limit on the time that connecting may take."""
        given = conninfo_to_dict(self.named)
        if not given.get("connect_timeout") and not os.environ.get("PGCONNECT_TIMEOUT"):
            return make_conninfo(self.named, connect_timeout=CONNECT_SECONDS)
        return self.named

    @property
    def connection(self) -> Connection:
        if self._connection is None or self._connection.closed:
            self._connection = connect(self.conninfo)
        return self._connection

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    @cached_property
    def reach(self) -> Reach:
        """Who is connected, and which tenants they may see."""
        return _fetch(self.connection, doctor_calls.reach())

    def run(self, call: Call[T]) -> T:
        """Run a call in a transaction of its own, for the tenant that was chosen."""
        try:
            with self.connection.transaction():
                _fetch(self.connection, calls.set_tenant(self.tenant or "*"))
                return _fetch(self.connection, call)
        except NotInstalled:
            # The state of the installation says more than the name of what is missing.
            with suppress(psycopg.Error):
                install.require_current(self.connection)
            raise
        except psycopg.errors.InsufficientPrivilege as error:
            raise self.refused(error, call.sql) from error

    def refused(self, error: psycopg.errors.InsufficientPrivilege, sql: str = "") -> Exception:
        """The error that names the role which the connected one lacks."""
        return not_allowed(error, sql, user=self.reach.user) or error

    def run_in_lane(self, lane: str, call: Call[T]) -> T:
        """Like run; an unknown lane is answered with the nearest names."""
        try:
            return self.run(call)
        except UnknownLane as error:
            known = [info.name for info in self.run(calls.lanes())]
            raise UnknownLane(
                error.message,
                detail=error.detail,
                hint=values.join_hints(values.did_you_mean(lane, known), error.hint),
            ) from error

    def explain_empty(self, *, lane: str | None = None, task: str | None = None) -> None:
        """Nothing was found: say so when the reason may be a slip or a missing right."""
        if lane is not None:
            known = [info.name for info in self.run(calls.lanes())]
            if lane not in known:
                raise UnknownLane(
                    f'lane "{shown(lane)}" does not exist',
                    detail=f"Known lanes: {', '.join(known[:20])}.",
                    hint=values.did_you_mean(lane, known),
                )
        if task is not None:
            tasks = self.run(calls.task_names())
            if task not in tasks:
                near = values.did_you_mean(task, tasks)
                output.note(
                    values.join_hints(f'hint: No worker has announced task "{shown(task)}".', near) or ""
                )
        if self.tenant is None and not self.reach.sees_all:
            output.note(
                f'hint: Role "{self.reach.user}" may not look at all tenants at once. Name one with --tenant.'
            )


def session_of(ctx: typer.Context) -> Session:
    return cast("Session", ctx.obj)


def connect(conninfo: str, *, autocommit: bool = True) -> Connection:
    connection = connecting.connect(
        conninfo, autocommit=autocommit, application_name="onceward cli", prepare_threshold=None
    )
    set_json_loads(jsonsafe.loads_to_show, connection)
    return connection


def _fetch(connection: Connection, call: Call[T]) -> T:
    try:
        result = call.parse(connection.execute(call.sql, call.params).fetchall())
        if result is None and call.otherwise is not None:
            call = call.otherwise()
            result = call.parse(connection.execute(call.sql, call.params).fetchall())
        return result
    except (psycopg.Error, UnicodeError) as error:
        ours = from_database(error) or unfit(error, call)
        if ours is None:
            raise
        raise ours from error
