"""`/healthz`: the process answers.  `/readyz`: pages can be shown, because the database answers, too."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from onceward.web.context import web_of


async def healthz(request: Request) -> JSONResponse:
    return JSONResponse({"status": "alive"})


async def readyz(request: Request) -> JSONResponse:
    # Why it is not stays in the log: this is answered to anybody.
    if await web_of(request).database.ready() is None:
        return JSONResponse({"status": "ready"})
    return JSONResponse({"status": "not ready", "reason": "the database cannot be used"}, 503)


ROUTES = [Route("/healthz", healthz), Route("/readyz", readyz)]
