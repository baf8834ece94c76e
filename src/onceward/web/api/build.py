"""The API put together, and its description."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from psycopg import DataError
from starlette.exceptions import HTTPException
from starlette.requests import Request

from onceward.errors import OncewardError
from onceward.web.api import (
    alerts,
    audit,
    dead_letters,
    deliveries,
    events,
    job_actions,
    jobs,
    lanes,
    limits,
    problems,
    schedules,
)
from onceward.web.api.guard import Guard

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from onceward.web.context import Web

PREFIX = "/api/v1"
VERSION = "1"
_ROUTERS: dict[str, tuple[str, *tuple[APIRouter, ...]]] = {
    "jobs": ("Enqueue work, look at it, wait for it, and act on it.", jobs.router, job_actions.router),
    "dead letters": ("Jobs that nobody tries any more, grouped by what went wrong.", dead_letters.router),
    "lanes": ("The lines that jobs wait in, and their pause switches.", lanes.router),
    "schedules": ("Work that is enqueued again and again.", schedules.router),
    "limits": ("Shared capacity: requests, tokens and slots.", limits.router),
    "events": ("Events that jobs wait for.", events.router),
    "deliveries": ("The ledger of outside effects, and decisions about unclear ones.", deliveries.router),
    "alerts": ("What monitors have raised.", alerts.router),
    "audit": ("Who did what, when, and the proof of it.", audit.router),
}
_ABOUT = """\
The engine over HTTP.

- A request carries a token: `Authorization: Bearer owt_…`.
  A token has scopes: `read`, `enqueue`, `operate`; `operate` includes `read`.
  A token that is bound to a tenant sees and touches that tenant's rows only.
- An error is `application/problem+json`: `type` and `code` say which, `title` and `detail` what happened, `hint` what to
  do, and `errors` names the fields.
- A POST that takes an `Idempotency-Key` has its effect once for each key: sent again, it gets the same answer.
  The key belongs to the tenant and the route, and is remembered for 30 days.
- Durations are numbers of seconds, times are RFC 3339 with a zone.
- Lists are read page by page: pass `next` of an answer as `before` of the next request.
"""


def create_api(web: Web | None = None) -> ASGIApp:
    """The application; without `web` it can only be described."""
    app = described()
    app.state.web = web
    return Guard(app, web.settings.api) if web is not None else app


def described() -> FastAPI:
    app = FastAPI(
        title="Onceward",
        version=VERSION,
        description=_ABOUT,
        openapi_tags=[{"name": name, "description": words} for name, (words, *_) in _ROUTERS.items()],
        # Pages of others are not loaded into ours; the description itself is at /openapi.json.
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        generate_unique_id_function=lambda route: route.name,
        exception_handlers={
            OncewardError: problems.known,
            RequestValidationError: problems.invalid,
            HTTPException: problems.http,
            DataError: problems.unstorable,
            problems.Refused: problems.refused,
            Exception: problems.defect,
        },
    )
    for name, (_, *routers) in _ROUTERS.items():
        for router in routers:
            app.include_router(router, tags=[name], responses=problems.RESPONSES)
    app.state.addresses = _addresses()
    app.state.methods_of = _methods_of
    app.add_route("/openapi.json", _openapi, include_in_schema=False)
    return app


async def _openapi(request: Request) -> JSONResponse:
    """For everybody: it says what could be asked, and nothing about what there is."""
    return JSONResponse(await asyncio.to_thread(description, request.app))


@dataclass(frozen=True, slots=True)
class _Address:
    """A path with names and ids in it, and what it takes."""

    pattern: re.Pattern[str]
    # How much of it is not for the caller to choose.
    said: int
    methods: frozenset[str]


def _addresses() -> list[_Address]:
    # Names may have slashes, ids may not.
    return [
        _Address(
            re.compile(
                re.sub(
                    r"\{\w+\}",
                    lambda found: ".+" if found[0] == "{name}" else "[^/]+",
                    route.path_format,
                ),
                re.DOTALL,
            ),
            len(re.sub(r"\{\w+\}", "", route.path_format)),
            frozenset(route.methods or ()),
        )
        for _, *routers in _ROUTERS.values()
        for router in routers
        for route in router.routes
        if isinstance(route, APIRoute)
    ]


def _methods_of(request: Request) -> list[str]:
    """What the address takes; the routes of one address are several.

    /limits/x/pause could be a limit with a slash in its name, and /jobs/many a job: the address that says more is meant.
    """
    path = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
    found = [each for each in request.app.state.addresses if each.pattern.fullmatch(path)]
    most = max((each.said for each in found), default=0)
    return sorted({method for each in found if each.said == most for method in each.methods})


def description(app: FastAPI) -> dict[str, Any]:
    """OpenAPI 3.1."""
    if app.openapi_schema is None:
        made = get_openapi(
            title=app.title,
            version=app.version,
            openapi_version="3.1.0",
            description=app.description,
            routes=app.routes,
            tags=app.openapi_tags,
            servers=[{"url": PREFIX}],
        )
        problems.describe(made)
        _leave_out_nulls(made)
        app.openapi_schema = made
    return app.openapi_schema


def _leave_out_nulls(openapi: dict[str, Any]) -> None:
    """A parameter is given or left out: in an address and in a header there is no null."""
    for operations in openapi["paths"].values():
        for operation in operations.values():
            for parameter in operation.get("parameters", ()):
                kinds = [kind for kind in parameter["schema"].pop("anyOf", ()) if kind != {"type": "null"}]
                if len(kinds) == 1:
                    parameter["schema"] |= kinds[0]
                elif kinds:
                    parameter["schema"]["anyOf"] = kinds
