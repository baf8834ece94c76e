"""How a route of the system becomes an answer over HTTP: as JSON, or as a page without cookies and without anything from elsewhere."""

from __future__ import annotations

import asyncio
import hashlib
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from onceward.web import web_of
from onceward_apps.meals import routes
from onceward_apps.meals.routes import MOST_BODY, Answer, Routes, refused

STATIC = Path(__file__).parent.parent / "static"
# How long a request may take to arrive.
PATIENCE_SECONDS = 15.0
_POLICY = (
    "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)


async def read_body(request: Request) -> bytes | None:
    """The body, or a little more than it may have: the rest of a larger one is not read.  None when it does not come."""
    body = b""
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > MOST_BODY:
                    break
    except TimeoutError:
        return None
    return body[: MOST_BODY + 1]


async def ask(system: Routes, asked: routes.Request) -> Answer:
    """Routes wait for the database: not in the loop that serves everybody."""
    return await run_in_threadpool(system.answer, asked)


async def asked_by(request: Request) -> routes.Request | None:
    """The request as the routes take it; None when it did not arrive in time."""
    body = await read_body(request)
    if body is None:
        return None
    return routes.Request(request.method, request.url.path, dict(request.headers), body)


def too_slow() -> Answer:
    return refused(408, "TOO_SLOW", "The request took too long to arrive")


def as_json(answer: Answer) -> Response:
    return JSONResponse(answer.body, answer.status, headers=dict(answer.headers))


def wants_page(request: Request) -> bool:
    """Browsers say that they want a page; programs do not."""
    return "text/html" in request.headers.get("accept", "")


def page(request: Request, template: str, status: int = 200, **context: Any) -> Response:
    nonce = request.state.nonce
    html = web_of(request).templates.get_template(f"meals/{template}").render(nonce=nonce, own=own, **context)
    headers = {"content-security-policy": _POLICY.format(nonce=nonce), "cache-control": "no-store"}
    return HTMLResponse(html, status, headers)


def fields_of(body: bytes) -> dict[str, str]:
    """What a form sends; empty when it cannot be read."""
    try:
        found = parse_qs(body.decode(), keep_blank_values=True, max_num_fields=20, errors="strict")
    except ValueError:
        return {}
    return {name: values[-1] for name, values in found.items()}


@cache
def own(name: str) -> str:
    """The address of a file of ours, which changes when the file does."""
    digest = hashlib.sha256((STATIC / name).read_bytes()).hexdigest()[:12]
    return f"/static/meals/{name}?v={digest}"
