"""What pages and routes share: connections in somebody's name, bounded bodies, answers that caches can keep."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any
from uuid import uuid4

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from onceward import contrib
from onceward.calls.running import begin_run, finish_run
from onceward.web.context import web_of
from onceward.web.identity import Actor
from onceward_apps.proof import store
from onceward_apps.proof.routes import Answer

STATIC = Path(__file__).parent.parent / "static"
# Of a run key; it is over with its transaction.
LEASE = timedelta(minutes=1)
# How long a body may take to arrive.
PATIENCE = 10.0
# Nothing from elsewhere, nothing inline, in no frame.
POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)


@dataclass(frozen=True, slots=True)
class Public:
    """The public pages: they act for nobody, and may do what a producer may."""

    name: str = "proof page"
    scope: str = "default"
    database_role: str = "onceward_producer"


@dataclass(frozen=True, slots=True)
class Program:
    """Who drives the pipeline from outside, with the secret of the workers."""

    name: str = "run-monitor"
    scope: str = "default"
    database_role: str = "onceward_worker"


@contextlib.asynccontextmanager
async def connection_as(
    request: Request, who: Actor, *, writes: bool = True
) -> AsyncIterator[store.Connection]:
    """One transaction, with the rights of `who`."""
    async with web_of(request).database.acting(who, writes=writes) as db:
        yield db.connection


def address_of(request: Request) -> str:
    return request.client.host if request.client else ""


async def read_json(request: Request, *, most: int) -> Any:
    """The body, of at most so many bytes and within a few seconds.  Raises HTTPException."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise HTTPException(415, "send application/json")
    body = b""
    try:
        async with asyncio.timeout(PATIENCE):
            async for chunk in request.stream():
                body += chunk
                if len(body) > most:
                    raise HTTPException(413, f"at most {most} bytes")
        return json.loads(body)
    except TimeoutError:
        raise HTTPException(408, "the request took too long") from None
    except ClientDisconnect:
        raise HTTPException(400, "the request was cut off") from None
    except (ValueError, RecursionError):
        raise HTTPException(400, "the body is not JSON") from None


class KeyReused(Exception):
    """The key stands for another request."""


async def once(
    connection: store.Connection, name: str, asked: object, act: Callable[[], Awaitable[dict[str, Any]]]
) -> tuple[dict[str, Any], bool]:
    """The answer of the first request with this name, and whether it was an earlier one: sent twice, it is done once.

    The name is a run key of the engine, kept in the transaction of the effect: there are both of them or neither.
    Raises KeyReused when something else was asked the first time, and HTTPException while that is under way.
    """
    digest = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()
    begun = await contrib.run_async(
        connection, begin_run(name, "proof", lease=LEASE, tenant="default", token=uuid4())
    )
    if begun.acquired:
        answer = await act()
        record = json.dumps({"asked": digest, "answer": answer})
        await contrib.run_async(connection, finish_run(name, begun.epoch, record, tenant="default"))
        return answer, False
    if not isinstance(begun.result, dict):
        raise HTTPException(409, "the first request is still running", headers={"retry-after": "1"})
    if begun.result["asked"] != digest:
        raise KeyReused(name)
    return begun.result["answer"], True


def problem(status: int, error: str, **headers: str) -> Response:
    return JSONResponse({"success": False, "error": error}, status, headers=headers)


def shown(answer: Answer) -> Response:
    headers = {"retry-after": "60"} if answer.status == 429 else {}
    return JSONResponse(answer.body, answer.status, headers=headers)


def render(
    request: Request, template: str, answer_status: int = 200, *, seconds: int = 60, **context: Any
) -> Response:
    """A public page.  The same content has the same tag, so that a second look costs nothing."""
    root = request.scope.get("root_path", "")
    html = (
        web_of(request)
        .templates.get_template(f"proof/public/{template}")
        .render(root=root, static=static, **context)
    )
    return kept(request, HTMLResponse(html, answer_status), seconds=seconds)


def kept(request: Request, response: Response, *, seconds: int) -> Response:
    """Let caches keep an answer, and ask whether it has changed."""
    tag = f'"{hashlib.sha256(response.body).hexdigest()[:24]}"'
    headers = {
        "etag": tag,
        "cache-control": f"public, max-age={seconds}",
        "content-security-policy": POLICY,
    }
    if response.status_code == 200 and tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    response.headers.update(headers)
    return response


@cache
def static(name: str) -> str:
    """The address of a file of ours, which changes when the file does."""
    digest = hashlib.sha256((STATIC / name).read_bytes()).hexdigest()[:12]
    return f"/static/proof/{name}?v={digest}"
