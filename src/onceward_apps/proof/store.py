"""The calls of raw_ops, on the connection of a step or on one of their own."""

from __future__ import annotations

from typing import Any, LiteralString
from uuid import UUID

import psycopg
from psycopg.rows import tuple_row
from psycopg.types.json import Jsonb

from onceward.errors import LeaseLost, PermanentFailure
from onceward_apps.kit import schema
from onceward_apps.proof.domain import Batch

Connection = psycopg.AsyncConnection[Any]
SCHEMA = "raw_ops"


def install(dsn: str) -> bool:
    """Apply the schema unless it is there; whether it was applied.  The engine must be installed."""
    return schema.install(dsn, "proof", SCHEMA)


async def call(connection: Connection, statement: LiteralString, *params: object) -> Any:
    """The one value of a call."""
    cursor = connection.cursor(row_factory=tuple_row)
    row = await (await cursor.execute(statement, params)).fetchone()
    return row[0] if row else None


async def get_batch(connection: Connection, batch_id: UUID) -> Batch:
    found = await call(connection, "select raw_ops.fn_get_batch_v1(%s)", batch_id)
    if found is None:
        raise PermanentFailure(f"batch {batch_id} does not exist")
    return Batch.model_validate(found)


async def set_qr_assets(connection: Connection, batch: Batch, url: str, epoch: int) -> str:
    answer = await call(
        connection,
        "select raw_ops.fn_set_batch_qr_assets_v1(%s, %s, %s, %s)",
        batch.batch_id, url, batch.proof_url, epoch,
    )  # fmt: skip
    return _held(answer, url)


async def set_label_asset(connection: Connection, batch: Batch, url: str, epoch: int) -> str:
    answer = await call(
        connection, "select raw_ops.fn_set_batch_label_asset_v1(%s, %s, %s)", batch.batch_id, url, epoch
    )
    return _held(answer, url)


async def email_was_reported(connection: Connection, job_id: UUID) -> bool:
    """A program that worked on the job before may have sent the email itself."""
    return bool(await call(connection, "select raw_ops.fn_email_is_reported_v1(%s)", job_id))


async def email_state(connection: Connection, batch_id: UUID, *, again: bool) -> dict[str, Any]:
    """What the ledger says about the batch's email; `again` puts one that was given up in line once more."""
    found: dict[str, Any] | None = await call(
        connection, "select raw_ops.fn_copacker_email_v1(%s, %s)", batch_id, again
    )
    return found or {"state": "missing", "can_pass_later": False, "message": None}


async def check_health(connection: Connection) -> dict[str, Any]:
    answer: dict[str, Any] = await call(connection, "select raw_ops.fn_check_proof_system_health_v2()")
    return answer


async def record_event(
    connection: Connection, event: str, public_batch_id: str | None, meta: dict[str, Any], visitor: str
) -> dict[str, Any]:
    answer: dict[str, Any] = await call(
        connection,
        "select raw_ops.fn_record_proof_page_event_v1(%s, %s, %s, %s)",
        event, public_batch_id, Jsonb(meta), visitor,
    )  # fmt: skip
    return answer


def _held(answer: dict[str, Any], url: str) -> str:
    if not answer["success"]:
        raise LeaseLost(answer["error"])
    return url
