"""What the HTTP routes do, without a framework: from what a request says to a status and a body.

The web layer mounts these under /functions/v1/ and on the public host, and checks the operator's token of `create-batch`.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Annotated, Any

import psycopg
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from onceward import Onceward, jsonsafe
from onceward.dsn import resolve_dsn
from onceward.errors import InvalidPayload
from onceward.worker import Worker
from onceward_apps.proof import jobs, store
from onceward_apps.proof.settings import Settings

# What one call of process-proof-jobs works on at once.
AT_ONCE = 10
_KINDS = {".png": "image/png", ".pdf": "application/pdf"}


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class File:
    """A file, or why there is none."""

    status: int
    content: bytes = b""
    content_type: str = "text/plain"
    headers: Mapping[str, str] = field(default_factory=dict)


class NewBatch(BaseModel):
    model_config = ConfigDict(extra="forbid")
    production_date: date
    kg_produced: Annotated[Decimal, Field(gt=0, lt=1_000_000, allow_inf_nan=False)]


class PageEvent(BaseModel):
    model_config = ConfigDict(extra="forbid")
    event: Annotated[str, Field(max_length=40)]
    public_batch_id: Annotated[str, Field(max_length=20)] | None = None
    meta: dict[str, str | int | float | bool | None] = Field(default_factory=dict, max_length=10)


Connect = Callable[[], AbstractAsyncContextManager[store.Connection]]


class Routes:
    """`connect` gives a connection for one call; without it, each call opens one of its own."""

    def __init__(self, app: Onceward, settings: Settings, connect: Connect | None = None) -> None:
        self._app = app
        self._settings = settings
        self._connect = connect or self._own_connection

    # ------------------------------------------------------------ POST /functions/v1/…

    async def create_batch(self, body: object) -> Answer:
        """create-batch.  The caller has been authenticated as an operator."""
        try:
            new = NewBatch.model_validate(body)
        except ValidationError as error:
            return _invalid(error)
        async with self._connect() as connection:
            answer = await store.call(
                connection, "select raw_ops.fn_create_batch_v1(%s, %s)", new.production_date, new.kg_produced
            )
        return Answer(201 if answer["success"] else 422, answer)

    async def process_proof_jobs(self, secret: str | None) -> Answer:
        """process-proof-jobs: work until nothing is due.  Safe beside workers, and beside itself: each job is claimed once."""
        if not self.is_worker(secret):
            return Answer(401, {"error": "Unauthorized"})
        worker = Worker(
            self._app,
            dsn=resolve_dsn(self._app.dsn),
            lanes={jobs.LANE: None, jobs.DELIVERIES: None},
            concurrency=AT_ONCE,
            name="process-proof-jobs",
        )
        return Answer(200, {"success": True, "executed": await worker.drain()})

    async def run_monitor(self, secret: str | None, body: object) -> Answer:
        """run-monitor, with {"check": …}."""
        if not self.is_worker(secret):
            return Answer(401, {"error": "Unauthorized"})
        check = body.get("check") if isinstance(body, Mapping) else None
        if not isinstance(check, str) or check not in jobs.MONITORS:
            return Answer(
                404, {"success": False, "error": f"unknown check; known: {', '.join(jobs.MONITORS)}"}
            )
        async with self._connect() as connection, connection.transaction():
            answer = await jobs.run_monitor(self._app, self._settings, connection, check)
        return Answer(200 if answer["success"] else 500, answer)

    # ------------------------------------------------------------ the public host

    async def home(self) -> dict[str, Any]:
        """/: the brand, and the batch that was released last."""
        async with self._connect() as connection:
            found: dict[str, Any] = await store.call(connection, "select raw_ops.fn_get_proof_home_v1()")
        return found

    async def page(self, public_batch_id: str) -> Answer:
        """/batch/{public_batch_id}: what the page shows.  An unknown id is a 404, the others are pages."""
        async with self._connect() as connection:
            found = await store.call(
                connection, "select raw_ops.fn_get_proof_page_v1(%s)", _plain(public_batch_id)
            )
        return Answer(200 if found["found"] else 404, found)

    async def latest(self) -> Answer:
        """/batch/PR-00LATEST: where to go."""
        async with self._connect() as connection:
            found = await store.call(connection, "select raw_ops.fn_get_latest_released_batch_v1()")
        target = found["public_batch_id"] if found["found"] else "sample"
        return Answer(302, {"location": f"/batch/{target}"})

    async def search(self, code: str, *, address: str = "") -> Answer:
        """/api/search: {found, status, public_batch_id}, found for released batches only, and not without end."""
        visitor = self._visitor(address, agent="")
        async with self._connect() as connection:
            if not await store.call(connection, "select raw_ops.fn_take_search_place_v1(%s)", visitor):
                return Answer(429, {"error": "Too many searches. Try again in a minute."})
            return Answer(
                200, await store.call(connection, "select raw_ops.fn_search_batch_v1(%s)", _plain(code))
            )

    async def event(self, body: object, *, address: str, agent: str) -> Answer:
        """/api/event.  Who it was is hashed with the day and forgotten with it."""
        try:
            event = PageEvent.model_validate(body)
            # Nothing that the database could not keep.
            jsonsafe.dumps(event.model_dump(), what="event")
        except ValidationError as error:
            return _invalid(error)
        except InvalidPayload as error:
            return Answer(422, {"success": False, "error": error.message})
        async with self._connect() as connection:
            answer = await store.record_event(
                connection, event.event, event.public_batch_id, event.meta, self._visitor(address, agent)
            )
        full = answer.get("reason") == "too many events"
        return Answer(202 if answer["accepted"] else 429 if full else 422, answer)

    async def asset(self, path: str, *, expires: str = "", signature: str = "") -> File:
        """/proof-assets/{path}: QR codes for everybody, labels and lab reports by a signed link."""
        storage = self._settings.storage
        is_public = storage.is_public(path)
        if not is_public and not storage.opens(path, expires=expires, signature=signature):
            # The same for a link that is wrong, has expired, or leads nowhere.
            return File(403, b"This link is not valid, or no longer.")
        try:
            content = await storage.get(path)
        except (FileNotFoundError, ValueError):
            return File(404, b"There is no such file.")
        kind = _KINDS.get(path[path.rfind(".") :], "application/octet-stream")
        age = "public, max-age=31536000" if is_public else "private, no-store"
        return File(200, content, kind, {"Cache-Control": age, "X-Content-Type-Options": "nosniff"})

    # ------------------------------------------------------------ how

    def is_worker(self, secret: str | None) -> bool:
        """In constant time.  Without a secret in the settings, nobody is."""
        wanted = self._settings.worker_secret
        return hmac.compare_digest((secret or "").encode(), wanted.encode()) and bool(wanted)

    def _visitor(self, address: str, agent: str) -> str:
        """A name for somebody that tells nothing and is another one tomorrow."""
        today = datetime.now(UTC).date().isoformat()
        seed = self._settings.storage.secrets[0]
        return hmac.new(seed, f"{today}\n{address}\n{agent}".encode(), hashlib.sha256).hexdigest()

    @contextlib.asynccontextmanager
    async def _own_connection(self) -> AsyncIterator[store.Connection]:
        dsn = resolve_dsn(self._app.dsn)
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
            yield connection


def _plain(text: str) -> str:
    """As PostgreSQL takes it; no code is longer, and none has such characters."""
    return text[:60].replace("\0", "").encode("utf-8", "replace").decode()


def _invalid(error: ValidationError) -> Answer:
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(str(part) for part in first["loc"]) or "body"
    return Answer(422, {"success": False, "error": f"{place}: {first['msg']}"})
