"""Idempotency keys: the effect of a request, once for each key.

The key is a run key of the engine, taken in the transaction of the effect and completed with the answer.  So the two
commit together: after a crash there is neither, and the request can be sent again; after a lost reply there are both,
and it gets the answer of the first.  A second request that comes while the first is under way waits for it a moment.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any
from uuid import uuid4

from fastapi import Header
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from onceward import jsonsafe
from onceward.calls import browsing
from onceward.calls.running import begin_run, finish_run
from onceward.errors import is_busy
from onceward.web.api.callers import Rights
from onceward.web.api.problems import Field, Refused
from onceward.web.context import web_of
from onceward.web.database import Acting
from onceward.web.identity import Actor

# How long a request waits for another one with the same key.
PATIENCE = timedelta(seconds=2)
_LEASE = timedelta(minutes=5)

IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=200,
        pattern=r"^[!-~]+$",
        description="Sent again with the same key, the request has no second effect and gets the same answer. Choose a new one, such as a UUID, for each effect.",
        examples=["5f0c1d3e-order-17"],
    ),
]
REPLAYED: dict[str, Any] = {
    "Idempotent-Replayed": {
        "description": "`true` when this is the answer of an earlier request with the same Idempotency-Key.",
        "schema": {"type": "string", "enum": ["true"]},
    }
}


@dataclass(frozen=True, slots=True)
class Done:
    """What a request has done, and the status and headers that say so."""

    value: Any
    status: int = 200
    headers: dict[str, str] | None = None


async def perform(
    request: Request,
    rights: Rights,
    act: Callable[[Acting], Awaitable[Done]],
    *,
    answers: type[BaseModel],
    key: str | None = None,
    tenant: str | None = None,
) -> Response:
    """One transaction: the effect, and with a key the record of it.  Raises Refused."""
    database = web_of(request).database
    if key is None:
        async with database.acting(rights, writes=True) as db:
            return _response(_shown(await act(db), answers))
    try:
        async with database.acting(rights, writes=True) as db:
            return await _once(request, db, act, answers=answers, key=key, tenant=tenant or _tenant(rights))
    except Exception as error:
        if is_busy(error):
            raise _still_running() from error
        raise


def _tenant(rights: Actor) -> str | None:
    return None if rights.scope == "*" else rights.scope


async def _once(
    request: Request,
    db: Acting,
    act: Callable[[Acting], Awaitable[Done]],
    *,
    answers: type[BaseModel],
    key: str,
    tenant: str | None,
) -> Response:
    run_key = f"http:{request.method} {request.scope['route'].path}:{key}"
    asked = _fingerprint(request)
    await db.run(browsing.wait_for_locks(PATIENCE))
    begun = await db.run(begin_run(run_key, "onceward web", lease=_LEASE, tenant=tenant, token=uuid4()))
    # Only the wait for the key is short.
    await db.run(browsing.wait_for_locks(None))
    if begun.acquired:
        made = _shown(await act(db), answers)
        record = jsonsafe.dumps({"asked": asked, **made}, what="answer")
        await db.run(finish_run(run_key, begun.epoch, record, tenant=tenant))
        return _response(made)
    kept = begun.result
    if begun.state != "completed" or not isinstance(kept, dict):
        raise _still_running()
    if kept.get("asked") != asked:
        raise Refused(
            422,
            "key-reused",
            "The Idempotency-Key was used for another request.",
            detail="The first request with this key had another body or another address.",
            hint="Nothing was written. Choose a new key for a new effect.",
            errors=[Field("Idempotency-Key", "header", "was used for another request", "Choose a new one.")],
        )
    replayed = _response(kept)
    replayed.headers["idempotent-replayed"] = "true"
    return replayed


def _still_running() -> Refused:
    return Refused(
        409,
        "still-running",
        "The first request with this Idempotency-Key is still running.",
        hint="Send it again in a moment: it gets the answer of the first.",
        headers={"retry-after": "1"},
    )


def _fingerprint(request: Request) -> str:
    """What was asked, however the JSON was written."""
    sent = json.dumps(request.state.sent, sort_keys=True)
    return hashlib.sha256(f"{request.url.path}?{request.url.query}\n{sent}".encode()).hexdigest()


def _shown(done: Done, answers: type[BaseModel]) -> dict[str, Any]:
    body = answers.model_validate(done.value, from_attributes=True).model_dump(mode="json")
    return {"status": done.status, "headers": done.headers or {}, "body": body}


def _response(made: dict[str, Any]) -> Response:
    return JSONResponse(made["body"], made["status"], made["headers"])
