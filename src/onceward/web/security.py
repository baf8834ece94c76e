"""What every answer says to the browser: which scripts are ours, and that nothing else may run, frame or sniff it."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_POLICY = (
    "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    "connect-src 'self'; form-action 'self'; frame-src 'self'; base-uri 'none'; frame-ancestors 'none'"
)
# Of a message somebody else has written: shown, and able to do nothing.
SANDBOX = "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'self'"


class Headers:
    """Middleware: a nonce per request, and the headers on every answer.  A page may bring a stricter policy of its own.

    What nobody has foreseen is answered here as well, so that this answer has the headers, too.
    """

    def __init__(self, app: ASGIApp, unexpected: Callable[[Request, Exception], Awaitable[Response]]) -> None:
        self._app = app
        self._unexpected = unexpected

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        nonce = secrets.token_urlsafe(16)
        scope.setdefault("state", {})["nonce"] = nonce

        started = False

        async def send_with_headers(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = MutableHeaders(scope=message)
                headers.setdefault("content-security-policy", _POLICY.format(nonce=nonce))
                headers.setdefault("cache-control", "no-store")
                headers["x-content-type-options"] = "nosniff"
                headers["referrer-policy"] = "same-origin"
                headers["cross-origin-opener-policy"] = "same-origin"
                headers["cross-origin-resource-policy"] = "same-origin"
                headers["permissions-policy"] = "camera=(self), geolocation=(), microphone=()"
                if scope.get("scheme") == "https":
                    headers.setdefault("strict-transport-security", "max-age=31536000")
            await send(message)

        try:
            await self._app(scope, receive, send_with_headers)
        except Exception as error:
            if started:
                raise
            answer = await self._unexpected(Request(scope), error)
            await answer(scope, receive, send_with_headers)
