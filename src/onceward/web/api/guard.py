"""In front of the API: who is it, how often, how much, how slowly; and a number for every request.

Everything here happens before a request is understood, so that a stranger costs little.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
import secrets as random
import time
from collections import Counter

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from onceward import jsonsafe, logs
from onceward.calls import access
from onceward.errors import OncewardError
from onceward.web import secrets
from onceward.web.api import problems
from onceward.web.api.callers import Caller
from onceward.web.api.problems import Field, Refused
from onceward.web.api.rates import Rates
from onceward.web.context import web_of
from onceward.web.settings import ApiSettings

log = logs.get("onceward.api")
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,100}")
# Parameters that are lists, and may stand more than once in the address.
LISTS = frozenset(
    {("/jobs", "state"), ("/deliveries", "state"), ("/alerts", "state"), ("/schedules", "name")}
)
ONCE = "Idempotency-Key"
_METHODS = "GET, POST, PUT, DELETE"
_TAKEN = "authorization, content-type, idempotency-key, x-request-id"
_SHOWN = "idempotent-replayed, location, retry-after, x-request-id"


class Guard:
    """Middleware around the API."""

    def __init__(self, app: ASGIApp, settings: ApiSettings) -> None:
        self._app = app
        self._settings = settings
        self._rates = Rates(settings.rate, settings.burst)
        self._wrong = Rates(settings.guesses, max(1.0, 20 * settings.guesses))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        scope = {**scope, "app": self._app}
        request = Request(scope, receive)
        given = request.headers.get("x-request-id", "")
        request.state.request_id = given if _REQUEST_ID.fullmatch(given) else random.token_hex(8)
        began, status = time.monotonic(), 0

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers["x-request-id"] = request.state.request_id
                self._add_cors(request.headers, headers)
            await send(message)

        try:
            answer = await self._refusal(request)
            if answer is None:
                body = await self._body(request)
                await self._app(scope, _replayed(body, receive), send_with_headers)
            else:
                await answer(scope, receive, send_with_headers)
        except ClientDisconnect:
            status = 499
        except Refused as error:
            await problems.answer(request, error)(scope, receive, send_with_headers)
        except OncewardError as error:
            await (await problems.known(request, error))(scope, receive, send_with_headers)
        except Exception as error:
            # The API has answered what it raised; the rest is the guard's own.
            if not status:
                await (await problems.defect(request, error))(scope, receive, send_with_headers)
        finally:
            caller: Caller | None = getattr(request.state, "caller", None)
            # The path and no more: what follows it, headers and bodies may hold what is nobody else's business.
            log.info(
                "api_request",
                request_id=request.state.request_id,
                method=request.method,
                path=request.url.path,
                status=status,
                token=caller.name if caller else None,
                took_ms=round((time.monotonic() - began) * 1000, 1),
            )

    async def _refusal(self, request: Request) -> Response | None:
        """An answer that needs nothing of the API, or None.  Raises Refused."""
        if request.method == "OPTIONS" and "access-control-request-method" in request.headers:
            return Response(status_code=204)
        if request.scope["path"] == request.scope.get("root_path", "") + "/openapi.json":
            return None
        address = request.client.host if request.client else ""
        kind, _, secret = request.headers.get("authorization", "").partition(" ")
        digest = secrets.digest(secret.strip())
        # Who was known a moment ago does not wait for somebody who guesses behind the same proxy.
        if not self._rates.knows(digest):
            _wait(self._wrong.wait(address), "Too many wrong tokens came from this address.")
        found = None
        if kind.lower() == "bearer" and secret.strip().startswith(secrets.TOKEN):
            found = await web_of(request).database.serve(access.token_scopes(digest))
        if found is None:
            self._wrong.take(address)
            raise Refused(
                401,
                "no-valid-token",
                "The request has no token that can be used.",
                detail="It is missing, over, revoked, or not a token of this installation.",
                hint='Create one with "onceward token create", and send it as "Authorization: Bearer owt_…".',
                headers={"www-authenticate": 'Bearer realm="onceward"'},
            )
        _wait(self._rates.take(digest), "The token asks too often.")
        name, scopes, tenant = found
        request.state.caller = Caller(name, frozenset(scopes), tenant)
        methods = request.app.state.methods_of(request)
        if methods and request.method not in methods:
            # Before the routes look at it: one of another address may take what looks like a name or an id.
            return await problems.http(request, HTTPException(405))
        return None

    async def _body(self, request: Request) -> bytes:
        """All of it, within bounds of size and time.  Raises Refused."""
        most = self._settings.body_bytes
        too_large = Refused(
            413,
            "too-large",
            f"A request may have {most:,} bytes.",
            hint="Send less at once, or store the data elsewhere and send a reference.",
            headers={"connection": "close"},
        )
        declared = request.headers.get("content-length", "0")
        if not declared.isdecimal() or int(declared) > most:
            raise too_large
        body = bytearray()
        try:
            async with asyncio.timeout(self._settings.body_seconds):
                async for chunk in request.stream():
                    body += chunk
                    if len(body) > most:
                        raise too_large
        except TimeoutError:
            raise Refused(
                408,
                "too-slow",
                f"The request did not arrive within {self._settings.body_seconds:g} seconds.",
                hint="Nothing was written. Send it again.",
                headers={"connection": "close"},
            ) from None
        _check_repeats(request)
        if body:
            _check_media(request)
        request.state.sent = _parsed(bytes(body))
        return bytes(body)

    def _add_cors(self, asked: Headers, headers: MutableHeaders) -> None:
        """Scripts of pages elsewhere may ask when their origin is on the list; tokens are theirs to send, cookies are never used."""
        if not self._settings.origins:
            return
        headers.add_vary_header("Origin")
        origin = asked.get("origin")
        if origin is None or origin not in self._settings.origins:
            return
        headers["access-control-allow-origin"] = origin
        headers["access-control-expose-headers"] = _SHOWN
        if "access-control-request-method" in asked:
            headers["access-control-allow-methods"] = _METHODS
            headers["access-control-allow-headers"] = _TAKEN
            headers["access-control-max-age"] = "600"


def _wait(seconds: float, title: str) -> None:
    if seconds > 0:
        raise Refused(
            429,
            "too-many-requests",
            title,
            hint="Wait as long as Retry-After says.",
            headers={"retry-after": str(math.ceil(seconds))},
        )


def _check_repeats(request: Request) -> None:
    path = request.scope["path"].removeprefix(request.scope.get("root_path", ""))
    given = [(name, "query") for name, _ in request.query_params.multi_items() if (path, name) not in LISTS]
    given += [(ONCE, "header") for _ in request.headers.getlist(ONCE)]
    repeated = [place for place, times in Counter(given).items() if times > 1]
    if repeated:
        raise problems.unfit(
            [
                Field(
                    jsonsafe.printable(name, 200),
                    place,
                    "It is given twice.",
                    "Leave one out: a program in between may have gone by the other.",
                )
                for name, place in repeated[:50]
            ]
        )


def _check_media(request: Request) -> None:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
        raise Refused(
            422,
            "not-json",
            "The body is not JSON.",
            hint='Send JSON, with "Content-Type: application/json".',
        )


def _parsed(body: bytes) -> object:
    """The body, or None when it is none that can be read; whoever needs it says what is wrong with it."""
    try:
        return json.loads(body, object_pairs_hook=_once_each) if body else None
    except RecursionError:
        title, hint = "The body is nested too deeply.", f"A payload may have {jsonsafe.MAX_DEPTH} levels."
    except (json.JSONDecodeError, UnicodeDecodeError):
        return None
    except ValueError:
        # Python reads no number of more than 4,300 digits.
        title, hint = "The body has a number that is too long.", "Send it as a text."
    raise Refused(422, "not-json", title, hint=f"Nothing was written. {hint}")


def _once_each(members: list[tuple[str, object]]) -> dict[str, object]:
    read = dict(members)
    if len(read) < len(members):
        ((twice, _),) = Counter(name for name, _ in members).most_common(1)
        # Readers of JSON keep the last one without a word, and a proxy in front may have judged by the first.
        raise Refused(
            422,
            "not-json",
            "The body has a member twice.",
            detail=f'Twice: "{jsonsafe.printable(twice, 200)}".',
            hint="Nothing was written. Leave one out and send it again.",
        )
    return read


def _replayed(body: bytes, receive: Receive) -> Receive:
    """The body that has been read, for whoever reads it next; then what comes after it."""
    sent = False

    async def again() -> Message:
        nonlocal sent
        if sent:
            return await receive()
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again
