"""Errors as problem+json (RFC 9457): which one, what happened, what to do, and which fields are concerned."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from typing import Any

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict
from pydantic import Field as Described
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from onceward import errors, jsonsafe, logs

log = logs.get("onceward.api")
URN = "urn:onceward:problem:"
MEDIA = "application/problem+json"
# How long to wait when the engine does not say.
RETRY_SECONDS = 5
_STATUS: tuple[tuple[type[errors.OncewardError], int], ...] = (
    # Another tenant's job looks like one that does not exist.
    (errors.UnknownJob, 404),
    (errors.WrongTenant, 404),
    (errors.UnknownLane, 404),
    (errors.UnknownSchedule, 404),
    (errors.UnknownLimit, 404),
    (errors.UnknownAlert, 404),
    (errors.UnknownEntry, 404),
    (errors.InvalidArgument, 422),
    (errors.InvalidWorkflow, 422),
    (errors.KeyConflict, 422),
    (errors.LimitTooSmall, 422),
    (errors.WrongState, 409),
    (errors.CheckFailed, 409),
    (errors.HoldOver, 409),
    (errors.PayloadTooLarge, 413),
    (errors.ResultTooLarge, 413),
    (errors.EnqueueRejected, 429),
    (errors.NotAllowed, 403),
    (errors.CannotConnect, 503),
    (errors.ConnectionLost, 503),
    (errors.NotInstalled, 503),
)
_WORDS: dict[int, tuple[str, str, str | None]] = {
    400: ("unreadable", "The request cannot be read.", "Send JSON in UTF-8."),
    404: ("no-such-address", "There is no such address.", "See /api/v1/openapi.json for what there is."),
    405: ("wrong-method", "The address does not take this method.", "See the header Allow."),
}
_HINTS = {
    "missing": "Give it a value.",
    "extra_forbidden": "Remove it, or correct its name.",
}


@dataclass(frozen=True, slots=True)
class Field:
    """One field of the request that is wrong."""

    field: str
    place: str
    message: str
    hint: str


class Refused(Exception):  # says what happened
    """A request that the API itself refuses."""

    def __init__(
        self,
        status: int,
        code: str,
        title: str,
        *,
        detail: str | None = None,
        hint: str | None = None,
        errors: list[Field] | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(title)
        self.status, self.code, self.title = status, code, title
        self.detail, self.hint, self.errors, self.headers = detail, hint, errors or [], headers or {}


class FieldProblem(BaseModel):
    """A field that is wrong."""

    field: str = Described(description="Its name; members of members with dots.")
    place: str = Described(description="body, query, path or header")
    message: str = Described(description="What is wrong with it.")
    hint: str = Described(description="What to do.")


class Problem(BaseModel):
    """An error, as RFC 9457 has it."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "type": f"{URN}OW006",
                    "code": "OW006",
                    "title": "The job does not exist.",
                    "status": 404,
                    "detail": "job 01936f00-0000-7000-8000-000000000000 does not exist",
                    "hint": None,
                    "errors": [],
                    "request_id": "b7c1c2f0a9d84a52",
                }
            ]
        }
    )
    type: str = Described(description="Which problem, as a URN that does not change.")
    code: str = Described(
        description="The end of the type: the SQLSTATE of the engine's error, or a word of the API."
    )
    title: str
    status: int
    detail: str | None
    hint: str | None = Described(description="What to do.")
    errors: list[FieldProblem]
    request_id: str = Described(description="Names the request in the log of the server.")


def _described(words: str, *, retry: bool = False) -> dict[str, Any]:
    made: dict[str, Any] = {"model": Problem, "description": words}
    if retry:
        made["headers"] = {
            "Retry-After": {"description": "Seconds to wait.", "schema": {"type": "integer", "minimum": 1}}
        }
    return made


RESPONSES: dict[int | str, dict[str, Any]] = {
    400: _described("The request cannot be read."),
    401: _described("The token is missing, over or revoked."),
    403: _described("The token may not do this."),
    404: _described("It does not exist, or the token may not see it."),
    405: _described("The address does not take this method."),
    408: _described("The request did not arrive in time."),
    409: _described(
        "It is not possible now, or the first request with this Idempotency-Key is still running."
    ),
    413: _described("The request is too large."),
    422: _described("A field is wrong, or the Idempotency-Key was used for another request."),
    429: _described("Too many requests, or too much work waits.", retry=True),
    503: _described("The database cannot be reached.", retry=True),
}


def describe(openapi: dict[str, Any]) -> None:
    """Say once what all operations may answer, and that problems are problem+json; FastAPI takes them for JSON."""
    components = openapi["components"]
    shared = components.setdefault("responses", {})
    for operations in openapi["paths"].values():
        for operation in operations.values():
            for status, response in operation["responses"].items():
                if status[0] in "45":
                    response["content"] = {MEDIA: {"schema": {"$ref": "#/components/schemas/Problem"}}}
                    shared.setdefault(f"problem{status}", response)
                    operation["responses"][status] = {"$ref": f"#/components/responses/problem{status}"}
    for unused in ("HTTPValidationError", "ValidationError"):
        components["schemas"].pop(unused, None)


def answer(request: Request, refused: Refused) -> Response:
    problem = {
        "type": URN + refused.code,
        "code": refused.code,
        "title": refused.title,
        "status": refused.status,
        "detail": refused.detail,
        "hint": refused.hint,
        "errors": [asdict(field) for field in refused.errors],
        "request_id": request.state.request_id,
    }
    # As ASCII: what was sent may hold halves of characters, and is quoted.
    return Response(json.dumps(problem), refused.status, refused.headers, MEDIA)


async def known(request: Request, error: Exception) -> Response:
    """An error of the engine."""
    assert isinstance(error, errors.OncewardError)
    status = next((status for kind, status in _STATUS if isinstance(error, kind)), 500)
    detail: str | None = sentences(error.message, error.detail)
    if status >= 500:
        log.error("api_failed", request_id=request.state.request_id, error=error.message, detail=error.detail)
        # Where the database is, and as whom it is asked, is not for callers.
        detail = None if status == 503 else error.message
    if isinstance(error, errors.WrongTenant):
        detail = None
    refused = Refused(
        status,
        error.sqlstate or _hyphened(type(error).__name__),
        (type(error).__doc__ or "").strip(),
        detail=detail,
        hint=None if status in {404, 503} else error.hint,
        errors=_field_of(request, error) if status == 422 else None,
        headers={"retry-after": str(RETRY_SECONDS)} if status in {429, 503} else None,
    )
    return answer(request, refused)


def _field_of(request: Request, error: errors.OncewardError) -> list[Field]:
    """The engine's messages begin with the argument that they are about."""
    sent = getattr(request.state, "sent", None)
    places = dict.fromkeys(request.query_params, "query")
    if isinstance(sent, dict):
        places |= dict.fromkeys(sent, "body")
    words = ["spec"] if error.message.startswith("cron field") else re.findall(r"[a-z_]+", error.message)[:4]
    named = next((word for word in words if word in places), None)
    return [Field(named, places[named], error.message, error.hint or "Correct it.")] if named else []


def sentences(message: str, detail: str | None) -> str:
    """A message has no full stop: it gets one when facts follow."""
    if not detail:
        return message
    return f"{message}{'' if message.endswith(('.', '!', '?', ':')) else '.'} {detail}"


def _hyphened(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", name).lower()


async def refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return answer(request, error)


async def invalid(request: Request, error: Exception) -> Response:
    """A request that does not fit its schema.  What was sent is not repeated: it may be a secret."""
    assert isinstance(error, RequestValidationError)
    broken = next((found for found in error.errors() if found["type"] == "json_invalid"), None)
    if broken is not None:
        return answer(
            request, _not_json(str(error.body), int(broken["loc"][-1]), str(broken["ctx"]["error"]))
        )
    fields = [
        Field(
            jsonsafe.printable(".".join(str(part) for part in found["loc"][1:]), 200) or str(found["loc"][0]),
            str(found["loc"][0]),
            jsonsafe.printable(str(found["msg"]), 300),
            _HINTS.get(found["type"], "See the schema of this operation in /api/v1/openapi.json."),
        )
        for found in error.errors()[:50]
    ]
    return answer(request, unfit(fields))


def unfit(fields: list[Field]) -> Refused:
    names = ", ".join(field.field for field in fields[:5])
    return Refused(
        422,
        "invalid-request",
        "The request does not fit its schema.",
        detail=f"Wrong: {names}." if names else None,
        hint="Nothing was written. Correct the fields and send it again.",
        errors=fields,
    )


def _not_json(text: str, at: int, why: str) -> Refused:
    """Where it cannot be read on, as an editor counts: from one."""
    line, column = text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
    return Refused(
        422,
        "not-json",
        "The body is not JSON.",
        detail=f"Line {line}, column {column}: {why}.",
        hint="Nothing was written. Send JSON in UTF-8.",
    )


async def http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code, title, hint = _WORDS.get(error.status_code, ("refused", "The request was refused.", None))
    headers = {name.lower(): value for name, value in (error.headers or {}).items()}
    if error.status_code == 405:
        headers["allow"] = ", ".join(request.app.state.methods_of(request))
    return answer(request, Refused(error.status_code, code, title, hint=hint, headers=headers))


async def unstorable(request: Request, error: Exception) -> Response:
    """A value that PostgreSQL has no room for, and that no check of ours has named."""
    log.warning(
        "api_unstorable", request_id=request.state.request_id, sqlstate=getattr(error, "sqlstate", None)
    )
    return answer(
        request,
        Refused(
            422, "unstorable", "A value is out of the range that can be stored.", hint="Nothing was written."
        ),
    )


async def defect(request: Request, error: Exception) -> Response:
    """What nobody has foreseen.  What it was stays in the log."""
    log.error("api_crashed", request_id=request.state.request_id, exc_info=error)
    return answer(
        request,
        Refused(
            500,
            "defect",
            "The request met a defect of the server.",
            hint="The log of the server has the reason under the id of the request.",
        ),
    )
