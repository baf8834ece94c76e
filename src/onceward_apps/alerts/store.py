"""The calls of the schema, on the connection of a transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date, datetime
from typing import Any, LiteralString
from uuid import UUID

from psycopg.rows import class_row, dict_row
from psycopg.types.json import Jsonb

from onceward_apps.alerts.functions import Connection, Function, Functions, Result, Tenant
from onceward_apps.kit import schema

SCHEMA = "alerts"


def install(dsn: str) -> bool:
    """Apply the schema unless it is there; whether it was applied.  The engine must be installed."""
    return schema.install(dsn, "alerts", SCHEMA)


@dataclass(frozen=True, slots=True)
class Begun:
    """What became of a call.  `started` and `resumed`: the caller's run.  The rest: somebody else's, who is named."""

    outcome: str
    job_id: UUID
    lock_key: str
    holder: str
    since: datetime

    @property
    def is_ours(self) -> bool:
        return self.outcome in {"started", "resumed"}

    def to_json(self) -> Result:
        return {**asdict(self), "job_id": str(self.job_id), "since": self.since.isoformat(timespec="seconds")}


@dataclass(frozen=True, slots=True)
class Told:
    """A notification that is to be sent."""

    id: UUID
    alert_id: UUID
    recipient: str
    title: str
    message: str
    severity: str
    alert_date: date


async def rows(connection: Connection, statement: LiteralString, **params: object) -> list[dict[str, Any]]:
    cursor = connection.cursor(row_factory=dict_row)
    return await (await cursor.execute(statement, params)).fetchall()


async def row(connection: Connection, statement: LiteralString, **params: object) -> dict[str, Any] | None:
    found = await rows(connection, statement, **params)
    return found[0] if found else None


async def acting_tenant(connection: Connection) -> Tenant:
    found = await row(connection, "select id, slug, name, time_zone, notify from alerts.acting_tenant()")
    assert found is not None
    return Tenant(**{**found, "notify": tuple(found["notify"])})


async def begin(
    connection: Connection,
    function: Function,
    functions: Functions,
    *,
    caller: str,
    entity: Mapping[str, str] | None = None,
    at: datetime | None = None,
) -> Begun:
    """Begin a run for the tenant of the transaction, or hear who has it."""
    cursor = connection.cursor(row_factory=class_row(Begun))
    await cursor.execute(
        "select outcome, job_id, lock_key, holder, since from alerts.begin_function(%s, %s, %s, %s, %s, %s)",
        [
            function.name,
            function.window,
            Jsonb(dict(entity)) if entity else None,
            at,
            [] if entity else functions.chain(function),
            caller,
        ],
    )
    begun = await cursor.fetchone()
    assert begun is not None
    return begun


async def end_of_day(connection: Connection, day: date) -> datetime:
    """The last moment of a day of the tenant."""
    found = await row(
        connection,
        "select ((%(day)s::date + 1)::timestamp at time zone t.time_zone) - interval '1 microsecond' as moment"
        " from alerts.acting_tenant() as t",
        day=day,
    )
    assert found is not None
    return found["moment"]  # type: ignore[no-any-return]


async def plan(connection: Connection, functions: Functions) -> int:
    """Make the schedules of every tenant what the registry says; how many have changed."""
    wanted = [{"name": one.name, "spec": one.spec} for one in functions.values() if one.spec is not None]
    return len(
        await rows(connection, "select * from alerts.plan_schedules(%(wanted)s)", wanted=Jsonb(wanted))
    )


async def one_result(connection: Connection, statement: LiteralString, **params: object) -> Result:
    """The one row of a call, as the result of a run."""
    found = await row(connection, statement, **params)
    assert found is not None
    return found


async def alert_exists(connection: Connection, alert_id: str) -> bool:
    """Whether it is one of the acting tenant's."""
    found = await row(connection, "select alerts.has_alert(%(id)s) as is_there", id=alert_id)
    return bool(found and found["is_there"])


async def reserve_notifications(connection: Connection, alert_id: str | None) -> list[Told]:
    cursor = connection.cursor(row_factory=class_row(Told))
    await cursor.execute("select * from alerts.reserve_notifications(%s)", [alert_id])
    return await cursor.fetchall()


async def note_deliveries(connection: Connection, sent: Sequence[tuple[UUID, UUID]]) -> None:
    await connection.execute(
        "select alerts.note_deliveries(%s, %s)",
        [[one for one, _ in sent], [delivery for _, delivery in sent]],
    )
