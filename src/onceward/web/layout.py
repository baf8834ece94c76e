"""The frame around every page: navigation, counts beside it, messages, and how a template becomes an answer."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse

from onceward.calls import browsing
from onceward.web import auth
from onceward.web.context import identity_of, web_of
from onceward.web.database import Acting
from onceward.web.navigation import navigation

FLASH = "onceward-flash"
# A count beside an entry of the navigation is looked up to here.
MOST = 1000


@dataclass(frozen=True, slots=True)
class Frame:
    """What the frame shows besides the page: the time of the database, and what waits for a person."""

    now: datetime
    counts: dict[str, int]

    @property
    def waiting(self) -> int:
        """For a person, whatever it is."""
        return sum(self.counts.values())


async def frame(db: Acting) -> Frame:
    now, dead_letters, uncertain, alerts = await db.run(browsing.waiting_for_people(MOST))
    return Frame(now, {"dead_letters": dead_letters, "uncertain": uncertain, "alerts": alerts})


@dataclass(frozen=True, slots=True)
class Flash:
    """What the next page says: that something was done, and the way back where there is one."""

    text: str
    # A path of ours that undoes it by a post.
    undo: str | None = None
    tone: str = "done"


def render(
    request: Request, template: str, shown: Frame | None, status: int = 200, **context: Any
) -> Response:
    around = _around(request, shown)
    html = web_of(request).templates.get_template(template).render(**around, **context)
    response = HTMLResponse(html, status)
    if around["flash"] is not None:
        response.delete_cookie(FLASH, path="/")
    auth.keep_form_secret(request, response)
    return response


def stream(request: Request, template: str, shown: Frame, **context: Any) -> Response:
    """A page that is sent while it is made, for what takes long: an iterable in the context may wait."""
    parts = web_of(request).templates.get_template(template).generate(**_around(request, shown), **context)
    return StreamingResponse(parts, media_type="text/html", headers={"x-accel-buffering": "no"})


def _around(request: Request, shown: Frame | None) -> dict[str, Any]:
    """What every template finds."""
    web = web_of(request)
    is_live = "x-onceward-live" in request.headers
    return {
        "request_path": request.url.path,
        # Where to come back to; a list keeps its filter.
        "here": request.url.path + (f"?{request.url.query}" if request.url.query else ""),
        "nonce": request.state.nonce,
        "identity": getattr(request.state, "identity", None),
        "csrf": auth.csrf_of(request),
        "frame": shown,
        "nav": navigation(request.url.path, web.settings.sections),
        "theme": request.cookies.get("onceward-theme", "")
        if request.cookies.get("onceward-theme") in {"light", "dark"}
        else "",
        "flash": None if is_live else _read_flash(request),
    }


async def page(request: Request, template: str, status: int = 200, **context: Any) -> Response:
    """A page in the frame, for pages that need no more of the database."""
    async with web_of(request).database.acting(identity_of(request)) as db:
        shown = await frame(db)
    return render(request, template, shown, status, **context)


def back(request: Request, path: str, flash: Flash | None = None) -> Response:
    """After a post: the page that shows what has become of it."""
    response = RedirectResponse(auth.safe_next(path), 303)
    if flash is not None:
        said = json.dumps([flash.text[:300], flash.undo, flash.tone])
        value = base64.urlsafe_b64encode(said.encode()).decode()
        response.set_cookie(
            FLASH, value, max_age=60, path="/", secure=auth.is_https(request), httponly=True, samesite="lax"
        )
    return response


def _read_flash(request: Request) -> Flash | None:
    value = request.cookies.get(FLASH)
    if not value:
        return None
    try:
        text, undo, tone = json.loads(base64.urlsafe_b64decode(value))
        undo = auth.safe_next(undo) if isinstance(undo, str) else None
        return Flash(
            str(text), undo if undo != "/" else None, tone if tone in {"done", "trouble"} else "done"
        )
    except (ValueError, TypeError):
        return None
