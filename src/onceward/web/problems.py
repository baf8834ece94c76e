"""What goes wrong, as a page or as JSON: what happened, what it means, what to do."""

from __future__ import annotations

import secrets
from urllib.parse import urlsplit

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from onceward import errors, logs
from onceward.web.auth import safe_next
from onceward.web.filling import told
from onceward.web.forms import TooLarge
from onceward.web.layout import Flash, back, render

log = logs.get("onceward.web")
# Another tenant's job looks like one that does not exist.
_STATUS: tuple[tuple[type[errors.OncewardError], int], ...] = (
    (errors.UnknownJob, 404),
    (errors.WrongTenant, 404),
    (errors.UnknownLane, 404),
    (errors.UnknownSchedule, 404),
    (errors.UnknownLimit, 404),
    (errors.UnknownMonitor, 404),
    (errors.UnknownAlert, 404),
    (errors.UnknownChannel, 404),
    (errors.UnknownEntry, 404),
    (TooLarge, 413),
    (errors.InvalidArgument, 400),
    (errors.WrongState, 409),
    (errors.KeyConflict, 409),
    (errors.CheckFailed, 409),
    (errors.CheckOver, 409),
    (errors.LimitTooSmall, 409),
    (errors.AuditNotExported, 409),
    (errors.PayloadTooLarge, 413),
    (errors.NotAllowed, 403),
    (errors.CannotConnect, 503),
    (errors.ConnectionLost, 503),
    (errors.NotInstalled, 503),
)
_TITLES = {
    400: "This could not be understood",
    401: "Sign in first",
    403: "This is not allowed",
    404: "There is nothing here",
    405: "This is not possible here",
    409: "This is not possible now",
    413: "This is too large",
    500: "Something went wrong",
    503: "The database cannot be reached",
}


def status_of(error: errors.OncewardError) -> int:
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)


async def known(request: Request, error: Exception) -> Response:
    """An error of the engine."""
    assert isinstance(error, errors.OncewardError)
    status = status_of(error)
    if isinstance(error, errors.WrongTenant):
        return answer(request, 404, "no such page, or nothing that you may see")
    if status >= 500:
        log.error("page_failed", path=request.url.path, error=error.message, detail=error.detail)
    return answer(request, status, error.message, detail=error.detail, hint=error.hint)


async def http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    words = {
        404: "no such page, or nothing that you may see",
        405: "the address does not take this kind of request",
    }
    response = answer(request, error.status_code, words.get(error.status_code) or error.detail)
    response.headers.update(error.headers or {})
    return response


async def unexpected(request: Request, error: Exception) -> Response:
    """A defect.  The page names it by a number that the log has, too; what it was stays there."""
    number = secrets.token_hex(4)
    log.error("page_crashed", path=request.url.path, number=number, exc_info=error)
    return answer(
        request, 500, "this page could not be made",
        detail=f"The log has the reason under the number {number}.", hint="Reload it; nothing was changed.",
    )  # fmt: skip


def answer(
    request: Request, status: int, message: str, *, detail: str | None = None, hint: str | None = None
) -> Response:
    if request.url.path.startswith("/api/") or request.url.path.endswith(".csv"):
        problem = {"title": message, "status": status, "detail": detail, "hint": hint}
        return JSONResponse(problem, status, media_type="application/problem+json")
    came_from = _came_from(request)
    if request.method == "POST" and status in {400, 409} and came_from is not None:
        place = came_from
        if urlsplit(place).path == request.url.path and status == 409:
            # The page that asked is about what cannot be done any more; above it is the page of the thing.
            place = request.url.path.rpartition("/")[0] or "/"
        if urlsplit(place).path != request.url.path:
            return back(request, place, Flash(told(message, detail, hint), tone="trouble"))
    return render(
        request, "problem.html", None, status,
        title=_TITLES.get(status, "This did not work"), status_code=status, message=message, detail=detail, hint=hint,
        came_from=came_from,
    )  # fmt: skip


def _came_from(request: Request) -> str | None:
    """The page of ours that led here, which a browser names; only pages behind the gate show what another one says."""
    if getattr(request.state, "identity", None) is None:
        return None
    found = urlsplit(request.headers.get("referer", ""))
    if found.netloc != request.headers.get("host") or found.scheme not in {"http", "https"}:
        return None
    return safe_next(found.path + (f"?{found.query}" if found.query else ""))
