"""The gate: who is it, may they, and did the request come from one of our own pages?

A session is a cookie.  Over https it is `__Host-onceward`: bound to this host, sent over https only.  Over plain http,
which is allowed for this machine alone, browsers refuse such a name or not, each in its own way; there it is
`onceward-PORT`, without Secure, because cookies do not tell ports apart.  Over plain http from anywhere else nobody
signs in.
"""

from __future__ import annotations

import ipaddress
import time
from urllib.parse import quote, urlsplit

from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection, Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from onceward.calls import access
from onceward.web import secrets
from onceward.web.context import Web, web_of
from onceward.web.forms import read_form
from onceward.web.identity import Identity, from_scopes, reader

SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
# How long the answer to "is there any operator?" is good for.
REMEMBER = 2.0
# Headers that say: somebody stands between.
_PASSED_ON = (
    "forwarded",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-real-ip",
    "via",
    "cf-connecting-ip",
    "cf-ray",
)
_NOT_PAGES = ("/live", "/api/")


def is_https(request: HTTPConnection) -> bool:
    return request.url.scheme == "https"


def is_local(request: HTTPConnection) -> bool:
    """Whether the request comes from this machine, straight, and was meant for it.

    The name counts as well: a page of another site can make a browser here call us under a name that it controls.
    """
    if any(name in request.headers for name in _PASSED_ON):
        return False
    client = request.client.host if request.client else ""
    return _is_loopback(client) and (
        request.url.hostname == "localhost" or _is_loopback(request.url.hostname or "")
    )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def cookie_name(request: HTTPConnection) -> str:
    return "__Host-onceward" if is_https(request) else f"onceward-{request.url.port or 80}"


def set_session(request: Request, response: Response, secret: str) -> None:
    response.set_cookie(
        cookie_name(request), secret, path="/", secure=is_https(request), httponly=True, samesite="lax"
    )


def form_cookie(request: HTTPConnection) -> str:
    return f"{cookie_name(request)}-form"


def csrf_of(request: Request) -> str:
    """What forms of this visitor carry; empty for who can post nothing.

    It is bound to the session, and for who comes by single sign-on, and has none, to a cookie made for this.
    """
    identity: Identity | None = getattr(request.state, "identity", None)
    if identity is None or identity.method not in {"session", "sso"}:
        return ""
    if identity.method == "session":
        return secrets.csrf_of(request.cookies[cookie_name(request)])
    secret = request.cookies.get(form_cookie(request))
    if not secret:
        secret = request.state.form_secret = secrets.new()
    return secrets.csrf_of(secret)


def keep_form_secret(request: Request, response: Response) -> None:
    """Send the cookie that csrf_of has made, if it has."""
    secret = getattr(request.state, "form_secret", None)
    if secret:
        response.set_cookie(
            form_cookie(request), secret, path="/", secure=is_https(request), httponly=True, samesite="lax"
        )


class Gate:
    """Middleware in front of every page that is not public."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._asked_at = 0.0
        self._has_operators = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        request = Request(scope, receive)
        web = web_of(request)
        identity = await self._identify(request, web)
        if identity is None:
            await _to_sign_in(request)(scope, receive, send)
            return
        request.state.identity = identity
        if request.method not in SAFE:
            await _check_may_post(request, identity)
            # The body has been read; whoever comes next finds the form in the state.
        await self._app(scope, receive, send)

    async def _identify(self, request: Request, web: Web) -> Identity | None:
        kind, _, secret = request.headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and secret.startswith(secrets.TOKEN):
            found = await web.database.serve(access.token_scopes(secrets.digest(secret)))
            if found is None or not set(found[1]) & {"read", "operate"}:
                raise HTTPException(
                    401, "the token is not valid here", headers={"www-authenticate": "Bearer"}
                )
            return from_scopes(f"token {found[0]}", found[1], found[2])
        if session := request.cookies.get(cookie_name(request)):
            known = await web.database.serve(access.session_operator(secrets.digest(session)))
            if known is not None:
                return Identity(*known, method="session")
        if web.sso is not None:
            claimed = await web.sso.operator(request)
            if claimed is not None:
                return claimed
        if is_local(request) and (web.settings.local_reading or not await self._anybody_signs_in(web)):
            return reader()
        return None

    async def _anybody_signs_in(self, web: Web) -> bool:
        if web.sso is not None:
            return True
        if time.monotonic() - self._asked_at > REMEMBER:
            self._has_operators = await web.database.serve(access.has_operators())
            self._asked_at = time.monotonic()
        return self._has_operators


def _to_sign_in(request: Request) -> Response:
    if (
        request.method not in SAFE
        or request.url.path.startswith(_NOT_PAGES)
        or request.url.path.endswith(".csv")
    ):
        raise HTTPException(401, "sign in first", headers={"www-authenticate": "Bearer"})
    here = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return RedirectResponse(f"/sign-in?next={quote(here, safe='')}", 303)


async def _check_may_post(request: Request, identity: Identity) -> None:
    """Every change needs the role; and, from a browser, a form of our own."""
    if not identity.acts:
        reason = "sign in to change anything" if identity.method == "local" else "your role only reads"
        raise HTTPException(403, reason)
    if identity.method == "token":
        return
    check_origin(request)
    sent = request.headers.get("x-csrf-token") or (await read_form(request, files=True)).text("csrf")
    if not sent or not secrets.same(sent, csrf_of(request)):
        raise HTTPException(
            403, "the form is not ours, or older than your session: reload the page and try again"
        )


def check_origin(request: Request) -> None:
    """Refuse what another site has made a browser send.  Browsers state the origin of every post."""
    site = request.headers.get("sec-fetch-site")
    origin = request.headers.get("origin")
    if site not in {None, "same-origin", "none"}:
        raise HTTPException(403, "the request came from another site")
    if origin is not None and urlsplit(origin).netloc != request.url.netloc:
        raise HTTPException(403, "the request came from another site")


def safe_next(path: str) -> str:
    """Where to go after signing in: a path of ours, and nothing that a browser takes for another host."""
    if (
        path.startswith("/")
        and not path.startswith(("//", "/\\", "/sign-in"))
        and "\\" not in path
        and path.isprintable()
    ):
        return path
    return "/"
