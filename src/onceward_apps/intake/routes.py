"""The functions of the contract: POST /functions/v1/shell-file-processor-v3 and audit-logger-v3.

A caller is whoever the bearer token names.  Answers are JSON; every one carries the correlation id, which is in the log, in the
job and in the audit log as well.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Annotated, Final
from uuid import UUID, uuid4

import psycopg
from psycopg.types.json import Jsonb
from psycopg_pool import PoolTimeout
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from onceward import jsonsafe
from onceward.logs import get as get_log
from onceward_apps.intake import store, tokens
from onceward_apps.intake.bodies import BadForm, Form
from onceward_apps.intake.settings import Settings
from onceward_apps.intake.tokens import Caller, Unauthorized
from onceward_apps.intake.uploads import Refusal, Uploads, Wish

log = get_log("onceward_apps.intake")
# Of what is refused, so much is read and thrown away, so that the client gets to see why.
_DRAINED: Final = 1024 * 1024
_MOST_JSON: Final = 256 * 1024
_MOST_EVENTS: Final = 100

Word = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.:/-]{1,64}$")]
Values = Annotated[dict[Word, Word | int | float | bool | None], Field(max_length=30)]


class AuditEvent(BaseModel):
    """One line for the audit log: names, ids, states and counts.  Free text is refused, because it may be private."""

    model_config = ConfigDict(extra="forbid")
    table_name: Annotated[str, StringConstraints(pattern=r"^[a-z_]{1,63}$")]
    record_id: Word
    operation: Annotated[str, StringConstraints(pattern=r"^(INSERT|UPDATE|DELETE|SELECT|EXECUTE)$")]
    old_values: Values | None = None
    new_values: Values | None = None
    reason: Word | None = None
    compliance_category: Word = "system"
    patient_id: UUID | None = None
    job_id: UUID | None = None
    correlation_id: UUID | None = None


class AuditEvents(BaseModel):
    model_config = ConfigDict(extra="forbid")
    events: Annotated[list[AuditEvent], Field(min_length=1, max_length=_MOST_EVENTS)]


class Functions:
    def __init__(self, settings: Settings, database: store.Database) -> None:
        self._settings = settings
        self._database = database
        self.uploads = Uploads(settings, database)

    @property
    def routes(self) -> list[Route]:
        return [
            Route("/functions/v1/shell-file-processor-v3", self.process_file, methods=["POST", "OPTIONS"]),
            Route("/functions/v1/audit-logger-v3", self.log_audit, methods=["POST", "OPTIONS"]),
        ]

    # ------------------------------------------------------------ shell-file-processor-v3

    async def process_file(self, request: Request) -> Response:
        if request.method == "OPTIONS":
            return self._preflight(request)

        async def act(correlation: UUID) -> Response:
            caller = self._caller(request)
            if caller.user is None:
                raise Refusal(403, "forbidden", "A file is uploaded by a person, not by a service.")
            return await self.upload(request, caller.user, correlation)

        return await self.answer(request, act)

    async def upload(self, request: Request, user: UUID, correlation: UUID) -> Response:
        """The upload of a known user: raw, with profile_id and filename in the address, or as a form.  Raises Refusal."""
        length = request.headers.get("content-length", "")
        if length.isdecimal() and int(length) > self._settings.most_bytes + _DRAINED:
            most = self._settings.most_bytes // 1024 // 1024
            raise Refusal(413, "too_large", f"The file is larger than {most} MB.")
        fields, filename, chunks = await self._body(request)
        wish = Wish.read(
            user,
            profile=fields.get("profile_id", ""),
            filename=filename,
            key=request.headers.get("idempotency-key") or fields.get("idempotency_key") or None,
            correlation=correlation,
        )
        await self.uploads.check(wish)
        answer = await self.uploads.receive(wish, chunks)
        created = answer.pop("outcome") == "created"
        return JSONResponse({"success": True, "duplicate": not created, **answer}, 201 if created else 200)

    async def _body(self, request: Request) -> tuple[dict[str, str], str, AsyncIterator[bytes]]:
        kind = request.headers.get("content-type", "")
        stream = request.stream()
        if kind.lower().startswith("multipart/"):
            form = Form(kind, stream)
            part = await form.begin()
            return form.fields, part.filename or "", form.chunks()
        query = dict(request.query_params)
        return query, query.get("filename", ""), stream

    # ------------------------------------------------------------ audit-logger-v3

    async def log_audit(self, request: Request) -> Response:
        if request.method == "OPTIONS":
            return self._preflight(request)

        async def act(correlation: UUID) -> Response:
            caller = self._caller(request)
            events = _events(await _json(request))
            async with self._database.serving(caller.user) as connection:
                ids = [await self._log(connection, event, caller, correlation) for event in events]
            return JSONResponse(
                {"success": True, "logged": len(ids), "audit_ids": ids, "correlation_id": str(correlation)},
                201,
            )

        return await self.answer(request, act)

    async def _log(
        self, connection: store.Connection, event: AuditEvent, caller: Caller, correlation: UUID
    ) -> int:
        if caller.user is not None and event.patient_id is None:
            raise Refusal(422, "invalid", "patient_id is required.")
        values = dict(event.new_values or {})
        values["correlation_id"] = str(event.correlation_id or correlation)
        if event.job_id is not None:
            values["job_id"] = str(event.job_id)
        number: int = await store.call(
            connection,
            "select intake.log_audit_event(%s, %s, %s, %s, %s, %s, %s, %s)",
            event.table_name, event.record_id, event.operation,
            None if event.old_values is None else Jsonb(event.old_values), Jsonb(values), event.reason,
            event.compliance_category, event.patient_id,
        )  # fmt: skip
        return number

    # ------------------------------------------------------------ what both share

    def _caller(self, request: Request) -> Caller:
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer":
            raise Unauthorized
        return tokens.verify(self._settings, token.strip())

    async def answer(self, request: Request, act: Callable[[UUID], Awaitable[Response]]) -> Response:
        """Do it; whatever goes wrong becomes an answer that says what, and nothing about anybody."""
        correlation = correlation_of(request)
        try:
            response = await act(correlation)
        except ClientDisconnect:
            # Nobody listens any more; nothing was recorded.
            log.info("upload_cut", correlation_id=str(correlation))
            return Response(status_code=400)
        except _EXPECTED as trouble:
            why = _refusal_of(trouble)
            if why.status >= 500:
                log.warning("not_available", correlation_id=str(correlation), error=type(trouble).__name__)
            response = await self._refused(request, why, correlation)
        response.headers["x-correlation-id"] = str(correlation)
        self._allow(request, response)
        return response

    @staticmethod
    async def _refused(request: Request, refusal: Refusal, correlation: UUID) -> Response:
        log.info("refused", status=refusal.status, code=refusal.code, correlation_id=str(correlation))
        drained = 0
        with contextlib.suppress(ClientDisconnect, RuntimeError):
            async for chunk in request.stream():
                drained += len(chunk)
                if drained > _DRAINED:
                    break
        body = {
            "success": False,
            "error": {"code": refusal.code, "message": refusal.message},
            "correlation_id": str(correlation),
        }
        return JSONResponse(body, refusal.status, _HEADERS.get(refusal.status))

    # ------------------------------------------------------------ other origins

    def _preflight(self, request: Request) -> Response:
        response = Response(status_code=204)
        self._allow(request, response)
        return response

    def _allow(self, request: Request, response: Response) -> None:
        origin = request.headers.get("origin", "")
        if origin not in self._settings.origins:
            return
        response.headers["access-control-allow-origin"] = origin
        response.headers["vary"] = "Origin"
        response.headers["access-control-allow-methods"] = "POST"
        response.headers["access-control-allow-headers"] = (
            "authorization, content-type, idempotency-key, x-correlation-id"
        )


# What may go wrong without being a defect.
_EXPECTED = (
    Refusal,
    Unauthorized,
    BadForm,
    psycopg.errors.InsufficientPrivilege,
    psycopg.OperationalError,
    PoolTimeout,
    OSError,
)
_HEADERS: Final = {401: {"www-authenticate": "Bearer"}, 503: {"retry-after": "5"}}


def _refusal_of(trouble: Exception) -> Refusal:
    match trouble:
        case Refusal():
            return trouble
        case Unauthorized():
            return Refusal(401, "unauthorized", "A valid token is needed.")
        case BadForm():
            return Refusal(400, "bad_request", "The form cannot be read, or has no file.")
        case psycopg.errors.InsufficientPrivilege():
            return Refusal(403, "forbidden", "You have no access to this profile.")
        case _:
            return Refusal(503, "unavailable", "Try again in a moment; with the same key it counts once.")


def correlation_of(request: Request) -> UUID:
    """What the client names, when it is an id, else a new one."""
    try:
        return UUID(request.headers.get("x-correlation-id", ""))
    except ValueError:
        return uuid4()


async def _json(request: Request) -> object:
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MOST_JSON:
            raise Refusal(413, "too_large", "The request is larger than 256 kB.")
    try:
        read = jsonsafe.loads(body.decode())
    except (UnicodeDecodeError, ValueError):
        read = None
    if not isinstance(read, dict):
        raise Refusal(400, "bad_request", "The body must be a JSON object.")
    return read


def _events(body: object) -> list[AuditEvent]:
    assert isinstance(body, dict)
    try:
        if "events" in body:
            return AuditEvents.model_validate(body).events
        return [AuditEvent.model_validate(body)]
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        if first["loc"] == ("events",) and first["type"] in {"too_short", "too_long"}:
            raise Refusal(422, "invalid", f"events: there must be 1 to {_MOST_EVENTS} of them.") from None
        # The place, and never the value.
        place = ".".join(str(part) for part in first["loc"] if re.fullmatch(r"[a-z_0-9]{1,40}", str(part)))
        raise Refusal(422, "invalid", f"{place or 'body'}: this is missing, or not of its kind.") from None
