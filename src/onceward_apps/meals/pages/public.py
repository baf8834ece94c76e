"""The documented routes, and the pages of customers: correcting a handle, and the code of the day."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from onceward_apps.meals import routes
from onceward_apps.meals.domain import HANDLE_FORM, HANDLE_RULE, parse_handle
from onceward_apps.meals.messages import spoken
from onceward_apps.meals.pages import serving
from onceward_apps.meals.pages.kiosk import Kiosk
from onceward_apps.meals.routes import Answer, Routes

# All of them, so that the routes themselves say which one an address takes.
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
API = (
    "/api/health",
    "/api/stripe/webhook",
    "/api/telegram/webhook",
    "/api/handle/consume",
    "/api/qr/redeem",
    "/api/qr/read",
    "/api/cron/issue-qr",
    "/api/cron/process-email-retry",
)
CALIFORNIA = ZoneInfo("America/Los_Angeles")


class Public:
    """Routes that stand at the root and are open to everybody: each checks for itself."""

    def __init__(self, system: Routes) -> None:
        self._system = system
        self._kiosk = Kiosk(system)

    def routes(self) -> list[BaseRoute]:
        return [
            *(Route(path, self.api, methods=METHODS) for path in API),
            Route("/handle/update/{token}", self.handle, methods=METHODS),
            Route("/today/{code}", self.today, methods=METHODS),
            *self._kiosk.routes(),
        ]

    async def api(self, request: Request) -> Response:
        asked = await serving.asked_by(request)
        return serving.as_json(
            serving.too_slow() if asked is None else await serving.ask(self._system, asked)
        )

    # ------------------------------------------------------------ correcting a handle

    async def handle(self, request: Request) -> Response:
        asked = await serving.asked_by(request)
        if asked is None:
            return serving.as_json(serving.too_slow())
        token = request.path_params["token"]
        if request.method == "POST":
            return await self._correct(request, token, serving.fields_of(asked.body).get("newHandle", ""))
        answer = await serving.ask(self._system, asked)
        if not serving.wants_page(request) or answer.status == 405:
            return serving.as_json(answer)
        if answer.status == 200:
            return _form(request, 200, handle=answer.body["telegram_handle"])
        return _refusal(request, "handle_refused.html", answer)

    async def _correct(self, request: Request, token: str, given: str) -> Response:
        """The form of the page, which works without scripts, through the route that everybody else calls."""
        handle = parse_handle(given)
        if handle is None:
            return _form(request, 400, handle=None, given=given[:64], error=HANDLE_RULE)
        body = json.dumps({"token": token, "newHandle": handle}).encode()
        answer = await serving.ask(self._system, routes.Request("POST", "/api/handle/consume", {}, body))
        if answer.status == 200:
            return serving.page(
                request, "handle_updated.html", handle=handle, link=answer.body["telegram_link"]
            )
        return _refusal(request, "handle_refused.html", answer)

    # ------------------------------------------------------------ the code of the day

    async def today(self, request: Request) -> Response:
        asked = await serving.asked_by(request)
        answer = serving.too_slow() if asked is None else await serving.ask(self._system, asked)
        if not serving.wants_page(request) or answer.status in {405, 408}:
            return serving.as_json(answer)
        if answer.status != 200:
            return _refusal(request, "today_refused.html", answer)
        found = answer.body
        return serving.page(
            request,
            "today.html",
            name=found["name"],
            day=spoken(datetime.fromisoformat(found["service_date"]).date()),
            used_at=wall_clock(found["used_at"]),
            kiosk=found["kiosk"],
            # Made by us, of black squares.
            svg=Markup(found["svg"]),  # noqa: S704
        )


def _form(
    request: Request, status: int, *, handle: str | None, given: str = "", error: str | None = None
) -> Response:
    return serving.page(
        request, "handle.html", status, handle=handle, given=given, error=error, form=HANDLE_FORM
    )


def _refusal(request: Request, template: str, answer: Answer) -> Response:
    return serving.page(
        request, template, answer.status, code=answer.body["code"], error=answer.body["error"]
    )


def wall_clock(moment: Any) -> str | None:
    """Like 12:04 PM, as the clock at the counter shows it."""
    if moment is None:
        return None
    local = datetime.fromisoformat(moment).astimezone(CALIFORNIA)
    return f"{local.hour % 12 or 12}:{local:%M %p}"
