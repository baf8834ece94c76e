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

from onceward import calls, doctor_calls, install, jsonsafe
from onceward.calls import Call
from onceward.cli import output, values
from onceward.cli.values import UsageProblem
from onceward.doctor_calls import Reach
from onceward.dsn import LIBPQ_VARIABLES, resolve_dsn
from onceward.errors import NotInstalled, OncewardError, UnknownLane, from_database

T = TypeVar("T")
Connection = psycopg.Connection[tuple[Any, ...]]
CONNECT_SECONDS = "10"


class CannotConnect(OncewardError):
    """The database cannot be reached."""


class NotAllowed(OncewardError):
    """The role may not do this."""


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
    def conninfo(self) -> str:
        """May start the embedded server."""
        named = self.dsn or os.environ.get("ONCEWARD_DSN") or any(map(os.environ.get, LIBPQ_VARIABLES))
        console = output.stderr()
        with nullcontext() if named or not console.is_terminal else console.status("Starting PostgreSQL …"):
            found = resolve_dsn(self.dsn)
        try:
            given = conninfo_to_dict(found)
        except psycopg.ProgrammingError:
            # libpq repeats what it could not read, password included.
            raise UsageProblem(
                "cannot read the connection string of the database",
                hint="Write --dsn or ONCEWARD_DSN like postgresql://user@host:5432/database "
                'or "host=… dbname=… user=…".',
            ) from None
        if not given.get("connect_timeout") and not os.environ.get("PGCONNECT_TIMEOUT"):
            return make_conninfo(found, connect_timeout=CONNECT_SECONDS)
        return found

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
            raise NotAllowed(
                str(error.diag.message_primary),
                detail=f'Connected as role "{self.reach.user}".',
                hint="An administrator can grant one of onceward_producer, onceward_worker, onceward_operator "
                f'and onceward_auditor to it: grant onceward_operator to "{self.reach.user}".',
            ) from error

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
                    f'lane "{lane}" does not exist',
                    detail=f"Known lanes: {', '.join(known[:20])}.",
                    hint=values.did_you_mean(lane, known),
                )
        if task is not None:
            tasks = self.run(calls.task_names())
            if task not in tasks:
                near = values.did_you_mean(task, tasks)
                output.note(values.join_hints(f'hint: No worker has announced task "{task}".', near) or "")
        if self.tenant is None and not self.reach.sees_all:
            output.note(
                f'hint: Role "{self.reach.user}" may not look at all tenants at once. Name one with --tenant.'
            )


def session_of(ctx: typer.Context) -> Session:
    return cast("Session", ctx.obj)


def connect(conninfo: str, *, autocommit: bool = True) -> Connection:
    try:
        connection = psycopg.connect(
            conninfo, autocommit=autocommit, application_name="onceward cli", prepare_threshold=None
        )
        set_json_loads(jsonsafe.loads, connection)
    except psycopg.OperationalError as error:
        raise connect_error(conninfo, error) from None
    return connection


def connect_error(conninfo: str, error: psycopg.OperationalError) -> CannotConnect:
    """Which database, why, and what to do; without the password."""
    reason = without_password(conninfo, str(error).strip())
    return CannotConnect(
        f"could not connect to {describe(conninfo)}",
        # libpq indents its own questions ("Is the server running …?") on a line of their own.
        detail=" ".join(reason.removeprefix("connection failed: ").split()),
        hint=_connect_hint(reason),
    )


def _connect_hint(reason: str) -> str:
    text = reason.lower()
    if "password" in text or "authentication" in text or 'role "' in text or "pg_hba" in text:
        return "Check user and password in --dsn, ONCEWARD_DSN, PGPASSWORD or the file ~/.pgpass."
    if 'database "' in text and "does not exist" in text:
        return 'Create the database with "createdb", or name another one with --dsn or ONCEWARD_DSN.'
    if "translate host name" in text or "resolve" in text or "name or service" in text:
        return "Check the host name in --dsn, ONCEWARD_DSN or PGHOST."
    if "too many" in text or "remaining connection slots" in text:
        return "Raise max_connections, or connect through a pooler."
    return "Start the server, or correct host and port in --dsn, ONCEWARD_DSN or the PG* variables."


def describe(conninfo: str) -> str:
    """`database "shop" on db.example.com:5432 as "app"`, with what is known."""
    given = conninfo_to_dict(conninfo)
    host = given.get("host") or given.get("hostaddr") or os.environ.get("PGHOST") or "the local socket"
    port = given.get("port") or os.environ.get("PGPORT") or "5432"
    user = given.get("user") or os.environ.get("PGUSER")
    database = given.get("dbname") or os.environ.get("PGDATABASE") or user
    text = f'database "{database}" on ' if database else "the database on "
    text += f"{host}:{port}"
    return text + (f' as "{user}"' if user else "")


def without_password(conninfo: str, text: str) -> str:
    for secret in (conninfo_to_dict(conninfo).get("password"), os.environ.get("PGPASSWORD")):
        if secret:
            text = text.replace(str(secret), "***")
    return text


def _fetch(connection: Connection, call: Call[T]) -> T:
    try:
        cursor = connection.execute(call.sql, call.params)
        return call.parse(cursor.fetchall())
    except psycopg.Error as error:
        ours = from_database(error)
        if ours is None:
            raise
        raise ours from error
