"""The pages put together: what is open to everybody, and behind the gate everything else."""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator, Sequence
from importlib import resources
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Scope

from onceward.errors import InvalidArgument, OncewardError
from onceward.web import metrics, problems, sign_in, templating
from onceward.web.api import create_api, health
from onceward.web.api.build import PREFIX
from onceward.web.auth import Gate
from onceward.web.context import Web, identity_of, web_of
from onceward.web.database import Database
from onceward.web.live import Live
from onceward.web.metrics import Gauges
from onceward.web.pages import PAGES
from onceward.web.sections import Section
from onceward.web.security import Headers
from onceward.web.settings import WebSettings
from onceward.web.sso import SsoDoor


class Assets(StaticFiles):
    """Files whose address changes with their content."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        if b"v=" in scope.get("query_string", b""):
            response.headers["cache-control"] = "public, max-age=31536000, immutable"
        else:
            response.headers["cache-control"] = "no-cache"
        return response


class ApiMount(Mount):
    """The API below its prefix, for every address there.

    Mount looks for `.*`, which ends at a line end: an address with one would be answered by the pages.
    """

    def __init__(self, path: str, app: ASGIApp) -> None:
        super().__init__(path, app)
        self.path_regex = re.compile(self.path_regex.pattern, re.DOTALL)


async def live(request: Request) -> Response:
    """The stream of an open page."""
    scope = identity_of(request).scope

    async def stream() -> AsyncIterator[str]:
        async for event in web_of(request).live.events(scope):
            yield f"event: {event}\ndata: \n\n"

    return StreamingResponse(
        stream(),
        media_type="text/event-stream",
        headers={"cache-control": "no-store", "x-accel-buffering": "no"},
    )


def create_app(settings: WebSettings | None = None) -> Starlette:
    """The pages as an ASGI application."""
    chosen = settings or WebSettings()
    names = [section.name for section in chosen.sections]
    if len(set(names)) < len(names):
        raise InvalidArgument(f"sections have the same name: {', '.join(sorted(names))}")
    database = Database(
        chosen.dsn or next((app.dsn for app in chosen.apps if app.dsn), None), size=chosen.pool_size
    )
    web = Web(
        settings=chosen,
        database=database,
        templates=templating.make(chosen.sections),
        live=Live(database.dsn),
        sso=SsoDoor(chosen.sso, database) if chosen.sso else None,
        gauges=Gauges(),
    )

    @contextlib.asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        await database.open()
        yield
        await web.live.close()
        await database.close()

    app = Starlette(
        routes=_routes(chosen.sections, create_api(web)),
        lifespan=lifespan,
        middleware=[Middleware(Headers, unexpected=problems.unexpected)],
        exception_handlers={
            OncewardError: problems.known,
            HTTPException: problems.http,
        },
    )
    app.state.web = web
    return app


def _routes(sections: Sequence[Section], api: ASGIApp) -> list[BaseRoute]:
    ours = Path(str(resources.files("onceward.web").joinpath("static")))
    static: list[BaseRoute] = [
        Mount(f"/static/{section.name}", Assets(directory=section.static))
        for section in sections
        if section.static
    ]
    behind_the_gate: list[BaseRoute] = [
        *PAGES,
        *sign_in.PAGES,
        Route("/live", live),
        *(Mount(f"/api/{section.name}", routes=list(section.api)) for section in sections if section.api),
        *(Mount(f"/{section.name}", routes=list(section.pages)) for section in sections if section.pages),
    ]
    return [
        *health.ROUTES,
        *metrics.ROUTES,
        *sign_in.PUBLIC,
        *static,
        Mount("/static", Assets(directory=ours)),
        # Outside the gate of the pages: cookies mean nothing there, and tokens everything.
        ApiMount(PREFIX, api),
        *(route for section in sections for route in section.public),
        Mount("", routes=behind_the_gate, middleware=[Middleware(Gate)]),
    ]
