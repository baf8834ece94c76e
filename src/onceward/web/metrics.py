"""`/metrics`: the gauges of the database, as `onceward metrics` prints them.

They name no tenant and nothing of a payload, but they count everybody's jobs: for this machine, for people who see all
tenants, and for tokens with the scope `read` that are bound to none.
"""

from __future__ import annotations

import asyncio
import time

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from onceward import calls
from onceward.calls import access
from onceward.metrics import CONTENT_TYPE, exposition
from onceward.web import auth, secrets
from onceward.web.context import Web, web_of

# However many ask, the database is asked this often at most.
EVERY = 5.0


class Gauges:
    """The text, kept for a few seconds."""

    def __init__(self) -> None:
        self._text = b""
        self._read_at = float("-inf")
        self._reading = asyncio.Lock()

    async def text(self, web: Web) -> bytes:
        async with self._reading:
            if time.monotonic() - self._read_at >= EVERY:
                samples = await web.database.serve(calls.metrics(100_000))
                self._text = exposition(samples)
                self._read_at = time.monotonic()
            return self._text


async def _check_may_read(request: Request, web: Web) -> None:
    kind, _, secret = request.headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer" and secret.startswith(secrets.TOKEN):
        token = await web.database.serve(access.token_scopes(secrets.digest(secret)))
        if token is not None:
            _, scopes, tenant = token
            if tenant is not None or not {"read", "operate"} & set(scopes):
                raise HTTPException(
                    403, "metrics are for tokens with the scope read that are bound to no tenant"
                )
            return
    elif auth.is_local(request):
        return
    elif session := request.cookies.get(auth.cookie_name(request)):
        known = await web.database.serve(access.session_operator(secrets.digest(session)))
        if known is not None and known[2] is None:
            return
    raise HTTPException(
        401, "metrics need a token with the scope read", headers={"www-authenticate": "Bearer"}
    )


async def metrics(request: Request) -> Response:
    web = web_of(request)
    await _check_may_read(request, web)
    return Response(
        await web.gauges.text(web), headers={"content-type": CONTENT_TYPE, "cache-control": "no-store"}
    )


ROUTES = [Route("/metrics", metrics)]
