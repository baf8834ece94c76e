"""Deliveries: the ledger of outside effects, those that a person has to decide, and what was sent."""

from __future__ import annotations

import re
from dataclasses import replace
from uuid import UUID

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from onceward import calls
from onceward.errors import InvalidArgument, UnknownJob
from onceward.model import DELIVERY_KINDS, DELIVERY_STATES, DELIVERY_WAITS, DeliveryInfo, JobInfo, Json
from onceward.web import layout, mailview, tables
from onceward.web.context import identity_of, web_of
from onceward.web.forms import read_form
from onceward.web.layout import Flash
from onceward.web.pages.job import job_id_of
from onceward.web.query import PAGE, delivery_filter, query_of
from onceward.web.security import SANDBOX

# `alert:` and the id of a delivery that ended badly, or of an alert with event and channel.
_ALERT_KEY = re.compile(r"alert:(?P<id>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?P<event>:.+)?$")
DECISIONS = {
    "sent": ("It arrived", "Settled as sent."),
    "send_again": ("Send it again", "Is sent once more."),
    "abandon": ("Give it up", "Settled as abandoned."),
}
# Of one that was given up, and that nobody has decided about.
GIVEN_UP = {"send_again": DECISIONS["send_again"], "abandon": ("Leave it at that", "Its job is resolved.")}


async def deliveries(request: Request) -> Response:
    query, who = query_of(request), identity_of(request)
    async with web_of(request).database.acting(who) as db:
        shown = await layout.frame(db)
        wanted = delivery_filter(query, limit=PAGE + 1)
        rows = await db.run(calls.deliveries(wanted))
        trouble = await db.run(calls.delivery_trouble())
    return layout.render(
        request, "pages/deliveries.html", shown,
        query=query, rows=rows[:PAGE], states=DELIVERY_STATES, kinds=DELIVERY_KINDS, chosen=wanted.states,
        chosen_kind=wanted.kind, following=rows[PAGE - 1].id if len(rows) > PAGE else None, trouble=trouble,
        key=query.text("key") or "",
        tenants=who.tenant is None and any(row.tenant != "default" for row in rows),
    )  # fmt: skip


async def as_csv(request: Request) -> Response:
    wanted = replace(delivery_filter(query_of(request)), limit=tables.MOST_ROWS)
    found = await web_of(request).database.run(identity_of(request), calls.deliveries(wanted))
    return tables.csv_of("deliveries", DeliveryInfo, found)


async def show(request: Request) -> Response:
    delivery_id, who = job_id_of(request), identity_of(request)
    async with web_of(request).database.acting(who) as db:
        shown = await layout.frame(db)
        delivery = await db.run(calls.delivery(delivery_id))
        if delivery is None:
            raise UnknownJob("no such delivery, or none that you may see")
        job = await db.run(calls.job(delivery_id))
        attempts = await db.run(calls.attempts(delivery_id))
        why = (await db.run(calls.explain(delivery_id)))[0] if delivery.state == "pending" else None
        # Addresses and contents are for those who act.
        content = await db.run(calls.delivery_content(delivery_id)) if who.acts else None
    return layout.render(
        request, "pages/delivery.html", shown,
        delivery=delivery, attempts=attempts, content=content, decisions=decisions_about(delivery, job),
        facts=facts_of(delivery, content), about=about(delivery), why=why if why and why.reason in DELIVERY_WAITS else None,
    )  # fmt: skip


def decisions_about(delivery: DeliveryInfo, job: JobInfo | None) -> dict[str, tuple[str, str]]:
    """What a person can say about it now: the decision, its button, and what is said afterwards."""
    if delivery.state == "uncertain":
        return DECISIONS
    return GIVEN_UP if delivery.state == "abandoned" and job and job.state == "dead_letter" else {}


def about(delivery: DeliveryInfo) -> tuple[str, str] | None:
    """What a message of the engine's own tells of, and its page: its key names it."""
    found = _ALERT_KEY.match(delivery.key) if delivery.is_alert else None
    if found is None:
        return None
    return (
        ("an alert", f"/alerts/{found['id']}")
        if found["event"]
        else ("a delivery", f"/deliveries/{found['id']}")
    )


def facts_of(delivery: DeliveryInfo, content: Json) -> list[tuple[str, str]]:
    """The envelope: to whom, and what it is about."""
    if not isinstance(content, dict):
        return []
    names = {
        "email": ("to", "from", "reply_to", "subject"), "slack": ("to",), "telegram": ("chat_id",), "webhook": ("url",),
    }  # fmt: skip
    found = [
        (name.removesuffix("_id").replace("_", " ").capitalize(), content.get(name))
        for name in names.get(delivery.kind, ())
    ]
    found += [
        ("Attachments", ", ".join(str(item.get("filename")) for item in content.get("attachments") or ()))
    ]
    return [(name, str(value)) for name, value in found if value]


async def preview(request: Request) -> Response:
    """The body of an email in a document that can do nothing: no script, no request, no form, no opener."""
    who = identity_of(request)
    if not who.acts:
        raise HTTPException(403, "contents of deliveries are shown to operators")
    content = await web_of(request).database.run(who, calls.delivery_content(job_id_of(request)))
    html = content.get("html") if isinstance(content, dict) else None
    if not isinstance(content, dict) or not isinstance(html, str):
        raise HTTPException(404)
    return HTMLResponse(
        mailview.with_pictures(html, content.get("attachments")), headers={"content-security-policy": SANDBOX}
    )


async def decide(request: Request) -> Response:
    form, delivery_id = await read_form(request), job_id_of(request)
    decision, note = form.text("decision"), form.text("note")
    if decision not in DECISIONS:
        raise InvalidArgument("choose what became of it", hint="It arrived, send it again, or give it up.")
    if not note:
        raise InvalidArgument("the note is missing", hint="Say how you know; it is kept in the ledger.")
    await _decide(request, delivery_id, decision, note)
    return layout.back(request, f"/deliveries/{delivery_id}", Flash(DECISIONS[decision][1]))


async def _decide(request: Request, delivery_id: UUID, decision: str, note: str) -> None:
    call = calls.decide_delivery(delivery_id, decision, note)
    await web_of(request).database.run(identity_of(request), call, writes=True)


ROUTES = [
    Route("/deliveries", deliveries),
    Route("/deliveries.csv", as_csv),
    Route("/deliveries/{id}", show),
    Route("/deliveries/{id}/preview", preview),
    Route("/deliveries/{id}/decide", decide, methods=["POST"]),
]
