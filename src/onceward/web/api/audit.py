"""The audit log: search it, and take the proof of an entry along."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, TypeVar
from uuid import UUID

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, Field
from starlette.requests import Request

from onceward import calls
from onceward.audit.checkpoints import make_checkpoint
from onceward.audit.proofs import make_proof
from onceward.calls import Call
from onceward.model_audit import AuditEntry, AuditFilter
from onceward.web.api.callers import Reader
from onceward.web.api.fields import Limit, Tenant, Text, When, answer_of
from onceward.web.context import web_of

T = TypeVar("T")
router = APIRouter()
Entry = answer_of(AuditEntry, "AuditEntry", "One line of the audit log.")
Seq = Annotated[int, Path(ge=1, le=2**63 - 1, description="The number of the entry.")]


class Entries(BaseModel):
    """Newest first."""

    entries: list[Entry]  # type: ignore[valid-type] # made by answer_of
    next: int | None = Field(description="Pass it as `before` for what follows; null at the end.")


class Proved(BaseModel):
    """The entry, the hashes that lead from it to the checkpoint, and the checkpoint.

    "onceward audit check-proof" and the verifier, which is one file without dependencies, check it offline.
    """

    proof: dict[str, Any]
    checkpoint: dict[str, Any] = Field(description="Compare it with one that was kept elsewhere.")


@router.get("/audit", summary="Search the audit log", response_model=Entries)
async def search_audit(
    request: Request,
    caller: Reader,
    kind: Annotated[
        Text | None, Query(description="A kind, or the beginning of one when it ends in a dot.")
    ] = None,
    actor: Text | None = None,
    entity_type: Text | None = None,
    entity_id: Text | None = None,
    tenant: Tenant | None = None,
    since: When | None = None,
    until: When | None = None,
    before: Annotated[int | None, Query(ge=1, le=2**63 - 1, description="`next` of the page before.")] = None,
    limit: Limit = 100,
) -> Any:
    """Newest first."""
    wanted = AuditFilter(
        kind=kind, actor=actor, entity_type=entity_type, entity_id=entity_id, tenant=tenant, since=since, until=until,
        before=before, limit=limit,
    )  # fmt: skip
    found = await web_of(request).database.run(caller.reading, calls.audit_entries(wanted))
    return {"entries": found, "next": found[-1].seq if len(found) == limit else None}


@router.get("/jobs/{id}/audit", summary="The audit log of a job", response_model=Entries)
async def audit_of_job(request: Request, caller: Reader, id: UUID) -> Any:  # noqa: A002
    """In order; entries of batches are among them. Empty for a job that the token may not see."""
    return {"entries": await web_of(request).database.run(caller.reading, calls.audit_of(id)), "next": None}


@router.get("/audit/{seq}/proof", summary="The proof of an entry", response_model=Proved)
async def prove_entry(request: Request, caller: Reader, seq: Seq) -> Any:
    """Of an entry that is sealed. For tokens without a tenant: a proof holds hashes of everybody's entries."""
    caller.check_shared("Seals")
    loop = asyncio.get_running_loop()
    async with web_of(request).database.acting(caller.reading) as db:
        status, now = await db.run(calls.audit_status()), await db.run(calls.now())
        checkpoint = make_checkpoint(status, at=now)

        def run(call: Call[T]) -> T:
            return asyncio.run_coroutine_threadsafe(db.run(call), loop).result()

        # Hashing is done in a thread; the transaction stays the one above.
        proof = await asyncio.to_thread(make_proof, run, seq, checkpoint)
    return {"proof": proof, "checkpoint": checkpoint}
