"""The counter: scans with the camera where the browser can, with pictures read here where it cannot, and by typing."""

from __future__ import annotations

import json

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from onceward_apps.meals import routes
from onceward_apps.meals.pages import serving
from onceward_apps.meals.routes import Answer, Routes

# What the counter reads, by the code of the answer: a large word, and a line beneath it.
WORDS = {
    "OK": ("Enjoy your meal", "{name}"),
    "ALREADY_USED": ("Already used", "{error}"),
    "EXPIRED": ("Expired", "This code is for a day that is over."),
    "NOT_YET": ("Not today", "This code is for {service_date}."),
    "INVALID": ("Not our code", "Ask for the code of today's email."),
    "NO_CODE": ("No code seen", "Try again, with the whole code in the picture."),
    "NO_PICTURE": ("Not a picture", "Choose a photo of the code."),
    "UNAUTHORIZED": ("Wrong key", "No counter has this key. Enter it again."),
    "UNCHECKED": ("Could not check", "Try this key again in a moment."),
    "DATABASE_ERROR": ("Could not check", "Nothing was used up. Scan again in a moment."),
}


class Kiosk:
    def __init__(self, system: Routes) -> None:
        self._system = system

    def routes(self) -> list[BaseRoute]:
        return [Route("/kiosk", self.show), Route("/kiosk", self.redeem, methods=["POST"])]

    async def show(self, request: Request) -> Response:
        return serving.page(request, "kiosk.html", words=json.dumps(WORDS))

    async def redeem(self, request: Request) -> Response:
        """A browser without scripts: the key and the code in one form."""
        given = serving.fields_of(await serving.read_body(request) or b"")
        asked = routes.Request(
            "POST",
            "/api/qr/redeem",
            {"authorization": f"Bearer {given.get('key', '')}"},
            json.dumps({"token": given.get("code", "")}).encode(),
        )
        answer = await serving.ask(self._system, asked)
        word, line = said(answer)
        return serving.page(
            request, "kiosk_answer.html", answer.status, good=answer.status == 200, word=word, line=line
        )


def said(answer: Answer) -> tuple[str, str]:
    """The words for one answer.  kiosk.js does the same."""
    code = answer.body.get("code", "OK")
    word, line = WORDS.get(code, WORDS["DATABASE_ERROR"])
    return word, line.format(**{"name": "", "error": "", "service_date": "another day", **answer.body})
