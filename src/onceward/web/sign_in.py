"""Signing in by a one-time link, and signing out."""

from __future__ import annotations

from urllib.parse import urlsplit

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from onceward.calls import access
from onceward.errors import SignInRefused
from onceward.web import auth, secrets
from onceward.web.context import web_of
from onceward.web.forms import read_form
from onceward.web.layout import Flash, back, render

_NO_HTTPS = "Signing in needs https, except on the machine itself: the cookie could be read on the way."


def _may_sign_in(request: Request) -> bool:
    return auth.is_https(request) or auth.is_local(request)


async def sign_in(request: Request) -> Response:
    """The page that asks for a link.  Opening a link changes nothing: programs that preview mails open links, too."""
    token = request.query_params.get("link", "")
    name = None
    if token:
        name = await web_of(request).database.serve(access.link_operator(secrets.digest(token)))
    return render(
        request, "sign_in.html", None,
        link=token if name else "", name=name, was_link=bool(token), after=auth.safe_next(request.query_params.get("next", "/")),
        trouble=None if _may_sign_in(request) else _NO_HTTPS,
    )  # fmt: skip


async def use(request: Request) -> Response:
    """The button of that page.  A link holds for one session."""
    auth.check_origin(request)
    if not _may_sign_in(request):
        raise HTTPException(403, _NO_HTTPS)
    form = await read_form(request)
    session = secrets.new()
    try:
        name = await web_of(request).database.serve(
            access.use_link(secrets.digest(_secret(form.text("link"))), secrets.digest(session))
        )
    except SignInRefused as error:
        return render(
            request, "sign_in.html", None, 403,
            link="", name=None, was_link=True, after="/", trouble=f"{error.detail} {error.hint}",
        )  # fmt: skip
    response = back(request, auth.safe_next(form.text("next", "/")), Flash(f"Signed in as {name}"))
    auth.set_session(request, response, session)
    return response


def _secret(text: str) -> str:
    """What is behind `link=` when a whole address was pasted."""
    return urlsplit(text).query.partition("link=")[2].partition("&")[0] or text


async def sign_out(request: Request) -> Response:
    session = request.cookies.get(auth.cookie_name(request))
    if session:
        await web_of(request).database.serve(access.end_session(secrets.digest(session)))
    response = RedirectResponse("/sign-in", 303)
    response.delete_cookie(
        auth.cookie_name(request), path="/", secure=auth.is_https(request), httponly=True, samesite="lax"
    )
    return response


PUBLIC = [Route("/sign-in", sign_in), Route("/sign-in", use, methods=["POST"])]
# Behind the gate: only a form of ours signs somebody out.
PAGES = [Route("/sign-out", sign_out, methods=["POST"])]
