"""The calls of raw_ops, on the connection of a step or on one of their own."""

from __future__ import annotations

from typing import Any, LiteralString
from uuid import UUID

import psycopg
from psycopg.rows import namedtuple_row, tuple_row
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
    await _as_engine(connection)
    answer = await call(
        connection,
        "select raw_ops.fn_set_batch_qr_assets_v1(%s, %s, %s, %s)",
        batch.batch_id, url, batch.proof_url, epoch,
    )  # fmt: skip
    return _held(answer, url)


async def set_label_asset(connection: Connection, batch: Batch, url: str, epoch: int) -> str:
    await _as_engine(connection)
    answer = await call(
        connection, "select raw_ops.fn_set_batch_label_asset_v1(%s, %s, %s)", batch.batch_id, url, epoch
    )
    return _held(answer, url)


async def keep_label_texts(connection: Connection, batch: Batch) -> None:
    texts = {**batch.product.model_dump(mode="json"), "brand": batch.brand.model_dump(mode="json")}
    await call(connection, "select raw_ops.fn_keep_label_texts_v1(%s, %s)", batch.batch_id, Jsonb(texts))


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


async def _as_engine(connection: Connection) -> None:
    """For the rest of the step's transaction: what a worker does is no person's doing, whatever role it has."""
    await call(connection, "select set_config('onceward.actor', 'engine', true)")


def _held(answer: dict[str, Any], url: str) -> str:
    if not answer["success"]:
        raise LeaseLost(answer["error"])
    return url


# ------------------------------------------------------------ what the portal reads


async def rows(connection: Connection, statement: LiteralString, **params: object) -> list[Any]:
    cursor = connection.cursor(row_factory=namedtuple_row)
    return await (await cursor.execute(statement, params)).fetchall()


async def find_batches(
    connection: Connection, *, status: str | None, text: str | None, before: UUID | None, limit: int
) -> list[Any]:
    """The newest first, those created together in the order of their table; by status and by a part of code or public id."""
    return await rows(
        connection,
        "select * from raw_ops.portal_batches as b"
        " where (%(status)s::text is null or b.status = %(status)s)"
        " and (%(text)s::text is null or strpos(b.batch_code, upper(%(text)s)) > 0 or strpos(b.public_batch_id, upper(%(text)s)) > 0)"
        " and (%(before)s::uuid is null or exists (select from raw_ops.batches as o where o.id = %(before)s and (b.created_at < o.created_at"
        " or (b.created_at = o.created_at and (b.place, b.id) > (o.place, o.id)))))"
        " order by b.created_at desc, b.place, b.id limit %(limit)s",
        status=status, text=text, before=before, limit=limit,
    )  # fmt: skip


async def count_batches(connection: Connection) -> dict[str, int]:
    found = await rows(connection, "select status, count(*) as batches from raw_ops.batches group by status")
    return {row.status: row.batches for row in found}


async def dead_letters(connection: Connection, limit: int = 200) -> list[Any]:
    return await rows(
        connection,
        "select b.* from raw_ops.portal_batches as b where b.job_state = 'dead_letter' order by b.created_at desc limit %(limit)s",
        limit=limit,
    )


async def lab_parameters(connection: Connection) -> list[Any]:
    return await rows(connection, "select * from raw_ops.lab_parameters order by place")


async def products(connection: Connection) -> list[Any]:
    return await rows(connection, "select * from raw_ops.products order by sku")


async def questions(connection: Connection) -> dict[str, list[Any]]:
    """The five saved questions."""
    return {
        "status": await rows(connection, "select * from raw_ops.proof_queue_status"),
        "duration": await rows(connection, "select * from raw_ops.proof_duration_trend"),
        "failures": await rows(connection, "select * from raw_ops.proof_failure_history"),
        "partial": await rows(connection, "select * from raw_ops.proof_partial_completions"),
        "volume": await rows(connection, "select * from raw_ops.proof_batch_volume"),
    }
