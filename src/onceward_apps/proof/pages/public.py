"""What customers see: the home page, the page of a batch, the search.  No cookie, no third party, and it works without a script."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Host, Mount, Route, Router

from onceward import Onceward
from onceward_apps.proof import drawing, evidence
from onceward_apps.proof.domain import day
from onceward_apps.proof.pages.serving import (
    Public,
    address_of,
    connection_as,
    kept,
    problem,
    read_json,
    render,
    shown,
)
from onceward_apps.proof.routes import Routes
from onceward_apps.proof.settings import Settings

# Where the contract has the function; a host name of its own stands before it.
PREFIX = "/functions/v1/proof-page"
MOST_EVENT = 2048
# A certificate does not change.
DAY = 86400
TITLES = {
    "QA_HOLD": "Being tested",
    "REJECTED": "Not released",
    "RECALLED": "Recalled",
    None: "Check the code",
}


class OnHost(Host):
    """Everything under one host name."""

    # Sections want to know where a route begins.
    path = "/"


class PublicPages:
    def __init__(self, app: Onceward, settings: Settings) -> None:
        self._app = app
        self._settings = settings
        self._router = Router(
            routes=[
                Route("/", self.home),
                Route("/sample", self.sample),
                Route("/batch/sample", self.sample),
                Route("/batch/PR-00LATEST", self.latest),
                Route("/batch/{public_batch_id}", self.batch),
                Route("/batch/{public_batch_id}/certificate", self.certificate),
                Route("/batch/{public_batch_id}/card.png", self.card),
                Route("/api/search", self.search),
                Route("/api/event", self.event, methods=["POST"]),
                Route("/{path:path}", self.nothing),
            ]
        )

    @property
    def routes(self) -> list[BaseRoute]:
        """Under the path of the contract, and under the host name where there is one."""
        mounted: list[BaseRoute] = [
            Route(PREFIX, self._to_home),
            Mount(PREFIX, app=self._router),
        ]
        if self._settings.public_host:
            # First: under this name there is nothing else.
            mounted.insert(0, OnHost(self._settings.public_host, app=self._router))
        return mounted

    def _routes(self, request: Request) -> Routes:
        return Routes(self._app, self._settings, lambda: connection_as(request, Public()))

    async def _to_home(self, request: Request) -> Response:
        return RedirectResponse(f"{PREFIX}/", 308)

    async def home(self, request: Request) -> Response:
        """Also the answer of the search form, for who runs no scripts."""
        code = request.query_params.get("code", "").strip()
        site = await self._routes(request).home()
        if not code:
            return render(request, "home.html", site=site, code="", missing=False, busy=False)
        found = await self._routes(request).search(code, address=address_of(request))
        # Also of a recalled one, which is not found and has a page that warns.
        if found.status == 200 and found.body["public_batch_id"]:
            target = f"{request.scope.get('root_path', '')}/batch/{quote(found.body['public_batch_id'])}"
            return RedirectResponse(target, 303, headers={"cache-control": "no-store"})
        busy = found.status == 429
        answer = render(
            request, "home.html", 429 if busy else 404, site=site, code=code[:40], missing=not busy, busy=busy
        )
        answer.headers["cache-control"] = "no-store"
        return answer

    async def sample(self, request: Request) -> Response:
        site = await self._routes(request).home()
        return self._evidence(request, evidence.sample(), site, f"{site['base_url']}/batch/sample")

    async def latest(self, request: Request) -> Response:
        answer = await self._routes(request).latest()
        target = request.scope.get("root_path", "") + answer.body["location"]
        return RedirectResponse(target, answer.status, headers={"cache-control": "public, max-age=60"})

    async def batch(self, request: Request) -> Response:
        routes = self._routes(request)
        wanted = _wanted(request)
        answer = await routes.page(wanted)
        page, site = answer.body, _as_on_label(await routes.home(), answer.body)
        if page["status"] == "RELEASED":
            return self._evidence(request, evidence.evidence_of(page), site, page["proof_url"])
        status = "RECALLED" if page.get("recalled") else page["status"]
        since = page.get("recalled_at")
        return render(
            request, "status.html", answer.status,
            site=site, status=status, title=TITLES[status], message=page["message"], public_batch_id=wanted[:40],
            since=day(datetime.fromisoformat(since).date()) if since else "",
        )  # fmt: skip

    def _evidence(
        self, request: Request, found: evidence.Evidence, site: dict[str, Any], address: str
    ) -> Response:
        text = (
            f"{found.product}, batch {found.public_batch_id}: tested by an independent lab, with the results."
        )
        subject, body = f"Lab results of {found.product}", f"{text}\n\n{address}"
        return render(
            request, "batch.html", site=site, batch=found, address=address,
            picture=f"{site['base_url']}/batch/{found.public_batch_id}/card.png",
            whatsapp="https://wa.me/?text=" + quote(f"{text} {address}"),
            mail=f"mailto:?subject={quote(subject)}&body={quote(body)}",
        )  # fmt: skip

    async def certificate(self, request: Request) -> Response:
        """The lab's own report, of a released batch.  Its place in the storage names the internal code, so it is not told."""
        page = (await self._routes(request).page(_wanted(request))).body
        path = page.get("certificate_path")
        if page["status"] != "RELEASED" or not path:
            return await self.nothing(request)
        storage = self._settings.storage
        try:
            content = await storage.get(storage.path_of(path) if "://" in path else path)
        except (FileNotFoundError, ValueError):
            return await self.nothing(request)
        name = f"certificate-{page['public_batch_id']}.pdf"
        response = Response(
            content,
            media_type="application/pdf",
            headers={"content-disposition": f'inline; filename="{name}"'},
        )
        return kept(request, response, seconds=60)

    async def card(self, request: Request) -> Response:
        """The picture that chats show beside a link."""
        routes = self._routes(request)
        wanted, site = _wanted(request), await routes.home()
        if wanted == "SAMPLE":
            found = evidence.sample()
        else:
            page = (await routes.page(wanted)).body
            if page["status"] != "RELEASED":
                return await self.nothing(request)
            found, site = evidence.evidence_of(page), _as_on_label(site, page)
        name = "Sample batch" if found.is_sample else found.public_batch_id
        drawn = await asyncio.to_thread(
            drawing.share_png, site["brand"]["brand_name"], "Tested and released", found.product, name,
            f"Best before {found.best_before}",
        )  # fmt: skip
        return kept(request, Response(drawn, media_type="image/png"), seconds=DAY)

    async def search(self, request: Request) -> Response:
        code = request.query_params.get("code") or request.query_params.get("q") or ""
        answer = shown(await self._routes(request).search(code, address=address_of(request)))
        answer.headers["cache-control"] = "no-store"
        return answer

    async def event(self, request: Request) -> Response:
        try:
            body = await read_json(request, most=MOST_EVENT)
        except HTTPException as error:
            return problem(error.status_code, error.detail)
        agent = request.headers.get("user-agent", "")[:300]
        return shown(await self._routes(request).event(body, address=address_of(request), agent=agent))

    async def nothing(self, request: Request) -> Response:
        if "/api/" in request.url.path:
            return JSONResponse({"error": "Not found"}, 404)
        site = await self._routes(request).home()
        return render(
            request, "status.html", 404,
            site=site, status=None, title="Page not found", message="There is no such page.", public_batch_id="",
        )  # fmt: skip


def _wanted(request: Request) -> str:
    """As it stands on the pouch; who types it may use small letters."""
    return str(request.path_params["public_batch_id"]).strip().upper()


def _as_on_label(site: dict[str, Any], page: dict[str, Any]) -> dict[str, Any]:
    """The page of a batch speaks of the brand as its pouch does; where to write to is always today's."""
    return {**site, "brand": page["brand"]} if page["found"] else site
