"""/functions/v1/…, and the files: what programs call."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from onceward import Onceward
from onceward.calls import access
from onceward.web import secrets
from onceward.web.api.rates import Rates
from onceward.web.context import web_of
from onceward.web.identity import Identity, from_scopes
from onceward_apps.proof.pages.serving import (
    KeyReused,
    Program,
    address_of,
    connection_as,
    once,
    problem,
    read_json,
    shown,
)
from onceward_apps.proof.routes import Answer, Routes
from onceward_apps.proof.settings import BUCKET, Settings

MOST_BYTES = 16 * 1024


class Functions:
    def __init__(self, app: Onceward, settings: Settings) -> None:
        self._app = app
        self._settings = settings
        # Wrong tokens and secrets from one address.
        self._wrong = Rates(1.0, 20.0)

    @property
    def routes(self) -> list[BaseRoute]:
        return [
            Route("/functions/v1/create-batch", self._guarded(self.create_batch), methods=["POST"]),
            Route("/functions/v1/process-proof-jobs", self._guarded(self.process), methods=["POST"]),
            Route("/functions/v1/run-monitor", self._guarded(self.run_monitor), methods=["POST"]),
            Route(f"/{BUCKET}/{{path:path}}", self.asset),
        ]

    def _guarded(
        self, act: Callable[[Request], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        """Answers of programs are JSON, refusals too; whoever guesses has to wait."""

        async def answer(request: Request) -> Response:
            address = address_of(request)
            wait = self._wrong.wait(address)
            if wait > 0:
                return problem(429, "Too many wrong attempts", **{"retry-after": str(int(wait) + 1)})
            try:
                response = await act(request)
            except HTTPException as error:
                response = problem(error.status_code, error.detail, **(error.headers or {}))
            if response.status_code == 401:
                self._wrong.take(address)
            return response

        return answer

    async def create_batch(self, request: Request) -> Response:
        """By an operator: a token with the right to operate, or single sign-on.  Not by a cookie, which other sites could use."""
        who = await _operator(request)
        body = await read_json(request, most=MOST_BYTES)
        key = request.headers.get("idempotency-key", "")
        if key and (len(key) > 200 or not key.isascii() or not key.isprintable()):
            return problem(400, "Idempotency-Key must be 1 to 200 printable characters")
        async with connection_as(request, who) as connection:
            routes = Routes(self._app, self._settings, lambda: contextlib.nullcontext(connection))
            if not key:
                return shown(await routes.create_batch(body))

            async def act() -> dict[str, Any]:
                return dataclasses.asdict(await routes.create_batch(body))

            try:
                made, is_old = await once(connection, f"http:create-batch:{key}", body, act)
            except KeyReused:
                return problem(422, "The Idempotency-Key was used for another request")
        response = shown(Answer(**made))
        if is_old:
            response.headers["idempotent-replayed"] = "true"
        return response

    async def process(self, request: Request) -> Response:
        answer = await Routes(self._app, self._settings).process_proof_jobs(
            request.headers.get("x-worker-secret")
        )
        return shown(answer)

    async def run_monitor(self, request: Request) -> Response:
        routes = Routes(self._app, self._settings, lambda: connection_as(request, Program()))
        secret = request.headers.get("x-worker-secret")
        if not routes.is_worker(secret):
            return shown(Answer(401, {"error": "Unauthorized"}))
        return shown(await routes.run_monitor(secret, await read_json(request, most=MOST_BYTES)))

    async def asset(self, request: Request) -> Response:
        """Files of the storage: QR codes for everybody, labels and lab reports by a signed link."""
        given = request.query_params
        file = await Routes(self._app, self._settings).asset(
            request.path_params["path"],
            expires=given.get("expires", ""),
            signature=given.get("signature", ""),
        )
        return Response(file.content, file.status, headers=dict(file.headers), media_type=file.content_type)


async def _operator(request: Request) -> Identity:
    web = web_of(request)
    kind, _, secret = request.headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer" and secret.strip().startswith(secrets.TOKEN):
        found = await web.database.serve(access.token_scopes(secrets.digest(secret.strip())))
        who = from_scopes(f"token {found[0]}", found[1], found[2]) if found else None
    else:
        who = await web.sso.operator(request) if web.sso is not None else None
    if who is None:
        raise HTTPException(401, "Unauthorized", headers={"www-authenticate": "Bearer"})
    if not who.acts or who.tenant not in {None, "default"}:
        raise HTTPException(403, "Forbidden: create-batch needs the right to operate")
    return who
