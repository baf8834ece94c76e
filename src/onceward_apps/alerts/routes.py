"""POST /functions/v1/{name}: run a function, once per window, for the tenant of the caller's token.

200  it ran: {"success": true, "job_id", "result"}
202  it has begun, and takes longer than a caller waits
409  somebody else runs it, or it has run in this window: {"success": false, "reason", "existing_job_id", …}
4xx  the request; 5xx  the run failed, or the database: {"success": false, "error", …}
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, TypeVar
from uuid import UUID

import psycopg
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from onceward import OncewardError, jsonsafe, logs
from onceward.calls import access
from onceward.errors import is_connection_trouble
from onceward.web import secrets, web_of
from onceward.web.context import Web
from onceward_apps.alerts import store
from onceward_apps.alerts.functions import Connection, Function, Functions

log = logs.get("onceward_apps.alerts")
MOST_BODY = 16 * 1024
# As many calls look at the database at once; the others wait for their turn here, and leave connections to the pages.
AT_ONCE = 3
# How long a caller waits for the result.
PATIENCE_SECONDS = 25.0
# A token is sent on purpose, never by a browser on its own: any page may call with one.
CORS = {
    "access-control-allow-origin": "*",
    "access-control-allow-headers": "authorization, x-client-info, apikey, content-type",
    "access-control-allow-methods": "POST, OPTIONS",
}
# The fields that name a window, and what they may be.
_RANGES = {"date": "a past day", "at": "a moment"}
T = TypeVar("T")
REASONS = {
    "running": "Job already running",
    "completed": "Job already completed",
    "cancelled": "Job was cancelled",
}


class Refused(Exception):
    """An answer that is no success.  `more` joins the body."""

    def __init__(self, status: int, error: str, **more: Any) -> None:
        super().__init__(error)
        self.status = status
        self.more = more


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls, for one tenant, with the rights of a producer: as the database sees it."""

    name: str
    scope: str
    database_role: str = "onceward_producer"


def public_routes(functions: Functions, *, patience: float = PATIENCE_SECONDS) -> list[Route]:
    turns = asyncio.Semaphore(AT_ONCE)

    async def call(request: Request) -> Response:
        return await _guarded(lambda: _call(request, functions, patience, turns))

    # Every method, so that the answer to a wrong one is ours as well.
    return [Route("/functions/v1/{name}", call, methods=["POST", "OPTIONS", "GET", "PUT", "PATCH", "DELETE"])]


async def _guarded(work: Callable[[], Any]) -> Response:
    try:
        response: Response = await work()
    except Refused as refused:
        return _answer(refused.status, {"success": False, "error": str(refused), **refused.more})
    except (psycopg.Error, OncewardError) as error:
        if is_connection_trouble(error):
            return _answer(503, {"success": False, "error": "The database cannot be reached"})
        log.error(
            "function_call_failed", error=type(error).__name__, sqlstate=getattr(error, "sqlstate", None)
        )
        return _answer(500, {"success": False, "error": "Database error"})
    return response


async def _call(
    request: Request, functions: Functions, patience: float, turns: asyncio.Semaphore
) -> Response:
    if request.method == "OPTIONS":
        return Response(status_code=204, headers=CORS)
    if request.method != "POST":
        raise Refused(405, "Functions are called with POST")
    web = web_of(request)
    body = await _body(request)
    async with turns:
        caller = await _caller(request, web)
        name = request.path_params["name"]
        function = functions.get(name)
        if function is None:
            raise Refused(404, f"Function {name[:100]!r} does not exist", hint=functions.hint(name))
        begun = await _begin(web, caller, function, functions, body)
    if not begun.is_ours:
        return _answer(
            409,
            {
                "success": False,
                "reason": REASONS[begun.outcome],
                "existing_job_id": str(begun.job_id),
                "lock_key": begun.lock_key,
                "holder": begun.holder,
                "since": begun.since.isoformat(timespec="seconds"),
            },
        )
    return await _outcome(web, caller, begun.job_id, patience)


async def _caller(request: Request, web: Web) -> Caller:
    """The token decides who it is and for which tenant."""
    kind, _, secret = request.headers.get("authorization", "").partition(" ")
    if kind.lower() != "bearer" or not secret.strip():
        raise Refused(401, "A token is required: Authorization: Bearer …")
    found = await web.database.serve(access.token_scopes(secrets.digest(secret.strip())))
    if found is None:
        raise Refused(401, "The token is not valid")
    name, scopes, tenant = found
    if "enqueue" not in scopes:
        raise Refused(403, "The token lacks the scope enqueue")
    if tenant is None:
        raise Refused(403, "The token is bound to no tenant", hint="Create one with --only-tenant.")
    return Caller(f"token {name}", tenant)


async def _body(request: Request) -> dict[str, Any]:
    raw = b""
    async for chunk in request.stream():
        raw += chunk
        if len(raw) > MOST_BODY:
            raise Refused(413, f"The body may have {MOST_BODY // 1024} KiB")
    if not raw.strip():
        return {}
    try:
        found = jsonsafe.loads(raw.decode())
    except (ValueError, OncewardError):
        raise Refused(400, "The body must be a JSON object") from None
    if not isinstance(found, dict):
        raise Refused(400, "The body must be a JSON object")
    return found


async def _begin(
    web: Web, caller: Caller, function: Function, functions: Functions, body: Mapping[str, Any]
) -> store.Begun:
    async with web.database.acting(caller, writes=True) as db:
        connection = db.connection
        tenant = await store.row(
            connection, "select id, slug from alerts.tenants where slug = %(slug)s", slug=caller.scope
        )
        if tenant is None:
            raise Refused(403, "The token's tenant is not one of this system")
        known = {"tenant_id", "date", "at", *function.entity}
        unknown = sorted(set(body) - known)
        if unknown:
            raise Refused(
                400, f"Field {unknown[0][:100]!r} is not known", hint=f"Fields: {', '.join(sorted(known))}."
            )
        # Callers of the old kind name their tenant; it is theirs, or nothing happens.
        if body.get("tenant_id") not in {None, tenant["slug"], str(tenant["id"])}:
            raise Refused(403, "The token is bound to another tenant")
        entity = {field: _identifier(field, body[field]) for field in function.entity if field in body}
        if "alert_id" in entity and not await store.alert_exists(connection, entity["alert_id"]):
            raise Refused(404, f"Alert {entity['alert_id']} does not exist")
        at = await _moment(connection, body)
        try:
            return await store.begin(
                connection, function, functions, caller=caller.name, entity=entity, at=at
            )
        except psycopg.errors.DatabaseError as error:
            if error.sqlstate == "OW008":
                named = next((field for field in _RANGES if body.get(field) is not None), None)
                if named is not None:
                    raise _out_of_range(named, body[named]) from None
                raise Refused(400, str(error.diag.message_primary)) from None
            raise


async def _moment(connection: Connection, body: Mapping[str, Any]) -> datetime | None:
    """For which window: that of now, of a moment, or the last one of a day."""
    day, at = body.get("date"), body.get("at")
    if day is not None and at is not None:
        raise Refused(400, "Give date or at, not both")
    if at is not None:
        moment = _read("at", at, datetime.fromisoformat, "2026-02-06T09:30:00Z")
        if moment.tzinfo is None:
            raise Refused(400, f"at must have an offset, as in 2026-02-06T09:30:00Z, got {_sent(at)}")
        return moment
    if day is not None:
        read = _read("date", day, date.fromisoformat, "2026-02-06")
        try:
            return await store.end_of_day(connection, read)
        except (ValueError, psycopg.DataError):
            # The day after it has no date.
            raise _out_of_range("date", day) from None
    return None


def _read(field: str, given: object, parse: Callable[[str], T], example: str) -> T:
    try:
        return parse(given)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise Refused(400, f"{field} must be like {example}, got {_sent(given)}") from None


def _out_of_range(field: str, given: object) -> Refused:
    return Refused(400, f"{field} must be {_RANGES[field]} of the last ten years, got {_sent(given)}")


def _sent(given: object) -> str:
    return repr(given)[:100]


def _identifier(field: str, given: object) -> str:
    try:
        return str(UUID(str(given)))
    except ValueError:
        raise Refused(400, f"{field} must be a UUID, got {_sent(given)}") from None


async def _outcome(web: Web, caller: Caller, job_id: UUID, patience: float) -> Response:
    give_up, pause = time.monotonic() + patience, 0.01
    while True:
        async with web.database.acting(caller) as db:
            run = await store.row(
                db.connection,
                "select status, result, error_message from alerts.job_runs where id = %(id)s",
                id=job_id,
            )
        status = run["status"] if run else "cancelled"
        if run is not None and status == "completed":
            return _answer(200, {"success": True, "job_id": str(job_id), "result": run["result"]})
        if status != "running":
            error = (run["error_message"] if run else None) or f"The run was {status}"
            return _answer(500, {"success": False, "error": error, "job_id": str(job_id)})
        if time.monotonic() + pause > give_up:
            return _answer(
                202, {"success": True, "job_id": str(job_id), "status": "running"}, {"retry-after": "30"}
            )
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, 0.5)


def _answer(status: int, body: dict[str, Any], headers: Mapping[str, str] | None = None) -> Response:
    more = {401: {"www-authenticate": "Bearer"}, 405: {"allow": "POST, OPTIONS"}}.get(status, {})
    return JSONResponse(body, status, {**CORS, "cache-control": "no-store", **more, **(headers or {})})
