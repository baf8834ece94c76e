"""Retention: how long each kind of data is kept; and tenants of whom nothing is removed, because the law says so."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from onceward import calls
from onceward.errors import InvalidArgument, shown
from onceward.model_monitors import LegalHoldInfo, Removed, RetentionInfo
from onceward.web import layout, reading, tables, words
from onceward.web.context import identity_of, web_of
from onceward.web.forms import Form, read_form
from onceward.web.identity import Identity
from onceward.web.layout import Flash
from onceward.web.pages.audit import PLACES


def _check_sees_all(request: Request) -> Identity:
    who = identity_of(request)
    if who.tenant is not None:
        raise HTTPException(403, "what is kept is the same for all tenants, and you are bound to one")
    return who


async def retention(request: Request) -> Response:
    who, everything = _check_sees_all(request), bool(request.query_params.get("all"))
    async with web_of(request).database.acting(who) as db:
        shown_ = await layout.frame(db)
        kinds = await db.run(calls.retention())
        holds = await db.run(calls.legal_holds(all_of_them=everything))
    return layout.render(
        request, "pages/retention.html", shown_,
        kinds=kinds, holds=holds, everything=everything, places=PLACES, preview=None,
    )  # fmt: skip


async def preview(request: Request) -> Response:
    """What the next run would remove; nothing is."""
    who = _check_sees_all(request)
    removed: dict[str, Removed] = {}
    async with web_of(request).database.acting(who, writes=True) as db:
        shown_ = await layout.frame(db)
        kinds = await db.run(calls.retention())
        for kind in kinds:
            (removed[kind.kind],) = await db.run(calls.retain(kind.kind, dry_run=True))
        holds = await db.run(calls.legal_holds())
    return layout.render(
        request, "pages/retention.html", shown_,
        kinds=kinds, holds=holds, everything=False, places=PLACES, preview=removed,
    )  # fmt: skip


async def as_csv(request: Request) -> Response:
    found = await web_of(request).database.run(_check_sees_all(request), calls.retention())
    return tables.csv_of("retention", RetentionInfo, found)


async def holds_csv(request: Request) -> Response:
    found = await web_of(request).database.run(_check_sees_all(request), calls.legal_holds(all_of_them=True))
    return tables.csv_of("legal-holds", LegalHoldInfo, found)


async def keep(request: Request) -> Response:
    who, form, kind = _check_sees_all(request), await read_form(request), request.path_params["kind"]
    text = form.text("keep").lower()
    span = None if text in {"for ever", "forever"} else reading.duration("keep", text)
    async with web_of(request).database.acting(who, writes=True) as db:
        known = [info.kind for info in await db.run(calls.retention())]
        if kind not in known:
            raise InvalidArgument(f"kind must be one of {', '.join(known)}, got {shown(kind)!r}")
        await db.run(calls.set_retention(kind, span))
    said = "for ever" if span is None else f"for {words.span(span)}"
    return layout.back(request, "/retention", Flash(f"{kind}: kept {said}"))


def _reason(form: Form) -> str:
    reason = form.text("reason")
    if not reason:
        raise InvalidArgument("the reason is missing", hint="It is kept with the hold: name the case.")
    return reason


async def hold(request: Request) -> Response:
    who, form = _check_sees_all(request), await read_form(request)
    tenant = form.text("tenant")
    new = await web_of(request).database.run(who, calls.hold_tenant(tenant, _reason(form)), writes=True)
    said = (
        f"Nothing of {tenant} is removed any more"
        if new
        else f"{tenant} was held already: its reason is the first one, and this one was not recorded"
    )
    return layout.back(request, "/retention", Flash(said))


async def release(request: Request) -> Response:
    who, form = _check_sees_all(request), await read_form(request)
    tenant = form.text("tenant")
    changed = await web_of(request).database.run(
        who, calls.release_tenant(tenant, _reason(form)), writes=True
    )
    said = f"The hold of {tenant} is released" if changed else f"{tenant} was not held"
    return layout.back(request, "/retention", Flash(said))


ROUTES = [
    Route("/retention", retention),
    Route("/retention", preview, methods=["POST"]),
    Route("/retention.csv", as_csv),
    Route("/retention/holds.csv", holds_csv),
    Route("/retention/hold", hold, methods=["POST"]),
    Route("/retention/release", release, methods=["POST"]),
    Route("/retention/keep/{kind:path}", keep, methods=["POST"]),
]
