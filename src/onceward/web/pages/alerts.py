"""Alerts: what is wrong now, the worst first; what was; and who looks after it."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from onceward import calls
from onceward.calls import browsing
from onceward.errors import InvalidArgument, UnknownAlert
from onceward.model_monitors import ALERT_STATES, SEVERITIES, AlertFilter, AlertInfo, SilenceInfo, told_words
from onceward.web import layout, reading, tables, words
from onceward.web.context import identity_of, web_of
from onceward.web.database import Acting
from onceward.web.forms import read_form
from onceward.web.layout import Flash
from onceward.web.query import PAGE, Query, query_of

# Those that are not closed, on one page.
MOST_OPEN = 200
PLACES = (("/alerts", "Alerts"), ("/alerts/silences", "Silences"))


def _wanted(query: Query, *, limit: int = PAGE) -> AlertFilter:
    severities = query.many("severity", SEVERITIES)
    return AlertFilter(
        states=query.many("state", ALERT_STATES) or ALERT_STATES,
        monitor=query.text("monitor"),
        severity=severities[0] if severities else None,
        tenant=query.text("tenant"),
        before=query.uuid("before"),
        limit=limit,
    )


async def alerts(request: Request) -> Response:
    query, who = query_of(request), identity_of(request)
    wanted = _wanted(query)
    now_states = [state for state in wanted.states if state != "closed"]
    async with web_of(request).database.acting(who) as db:
        shown = await layout.frame(db)
        open_ = await db.run(
            browsing.find_alerts(replace(wanted, states=now_states, before=None, limit=MOST_OPEN + 1))
        )
        past: list[AlertInfo] = []
        if "closed" in wanted.states:
            past = await db.run(browsing.find_alerts(replace(wanted, states=["closed"], limit=PAGE + 1)))
        count = await db.run(browsing.count_alerts(wanted))
        silenced = await db.run(calls.silences())
        monitors = [monitor.name for monitor in await db.run(calls.monitors())]
    # The worst first; of those that nobody looks after yet, before the others.
    open_.sort(key=lambda a: (SEVERITIES.index(a.severity), a.acked_at is None, a.id), reverse=True)
    return layout.render(
        request, "pages/alerts.html", shown,
        query=query, open=open_[:MOST_OPEN], more_open=len(open_) > MOST_OPEN, past=past[:PAGE], count=count,
        following=past[PAGE - 1].id if len(past) > PAGE else None, states=ALERT_STATES, severities=SEVERITIES,
        chosen=query.many("state", ALERT_STATES), severity=wanted.severity, monitor=wanted.monitor or "", monitors=monitors,
        tenant=wanted.tenant or "", silenced=silenced, places=PLACES, shows_past="closed" in wanted.states,
        shows_open=bool(now_states) and wanted.before is None,
        untold=sum(alert.has_channel is False and not alert.notified for alert in open_[:MOST_OPEN]),
    )  # fmt: skip


async def as_csv(request: Request) -> Response:
    wanted = replace(_wanted(query_of(request)), limit=tables.MOST_ROWS)
    found = await web_of(request).database.run(identity_of(request), browsing.find_alerts(wanted))
    return tables.csv_of("alerts", AlertInfo, found, without=("detail",))


def _id_of(request: Request) -> UUID:
    try:
        return UUID(request.path_params["id"])
    except ValueError:
        raise UnknownAlert("no such alert", hint="Look for it in the list of alerts.") from None


async def _found(db: Acting, alert_id: UUID) -> AlertInfo:
    found = await db.run(calls.alert(alert_id))
    if found is None:
        raise UnknownAlert(
            f"alert {alert_id} does not exist", detail="It is no longer kept, or belongs to another tenant."
        )
    return found


async def show(request: Request) -> Response:
    alert_id = _id_of(request)
    async with web_of(request).database.acting(identity_of(request)) as db:
        shown = await layout.frame(db)
        alert = await _found(db, alert_id)
        monitors = await db.run(calls.monitors([alert.monitor]))
        before = await db.run(
            browsing.find_alerts(
                AlertFilter(states=["closed"], monitor=alert.monitor, tenant=alert.tenant, before=alert_id)
            )
        )
    earlier = [other for other in before if other.key == alert.key][:10]
    return layout.render(
        request, "pages/alert.html", shown,
        alert=alert, told=told_words(alert), monitor=monitors[0] if monitors else None, earlier=earlier,
    )  # fmt: skip


# ---------------------------------------------------------------- acting


async def acknowledge(request: Request) -> Response:
    form, alert_id = await read_form(request), _id_of(request)
    call = calls.ack_alert(alert_id, form.text("note") or None)
    changed = await web_of(request).database.run(identity_of(request), call, writes=True)
    said = (
        "You look after it; it is not told again until it gets worse" if changed else "Somebody does already"
    )
    return layout.back(request, f"/alerts/{alert_id}", Flash(said))


async def close(request: Request) -> Response:
    form, alert_id = await read_form(request), _id_of(request)
    note = form.text("note")
    if not note:
        raise InvalidArgument("the note is missing", hint="Say why it is closed; it is kept with the alert.")
    call = calls.close_alert(alert_id, note)
    changed = await web_of(request).database.run(identity_of(request), call, writes=True)
    said = "Closed; it opens again when the check finds it again" if changed else "It was closed already"
    return layout.back(request, f"/alerts/{alert_id}", Flash(said))


async def silence(request: Request) -> Response:
    """One alert, or whatever its monitor finds."""
    form, alert_id = await read_form(request), _id_of(request)
    span = reading.duration("duration", form.text("duration"), zero=False)
    reason = form.text("reason")
    if not reason:
        raise InvalidArgument(
            "the reason is missing", hint="Say why nobody is to be told; others will wonder."
        )
    async with web_of(request).database.acting(identity_of(request), writes=True) as db:
        alert = await _found(db, alert_id)
        until = await db.run(calls.now()) + span
        if form.text("what") == "monitor":
            call = calls.silence_alerts(until, reason, monitor=alert.monitor, tenant=alert.tenant)
        else:
            call = calls.silence_alerts(until, reason, alert_id=alert_id)
        silence_id = await db.run(call)
    undo = f"/alerts/silences/{silence_id}/end"
    return layout.back(
        request, f"/alerts/{alert_id}", Flash(f"Nobody is told for {words.span(span)}", undo=undo)
    )


async def silences(request: Request) -> Response:
    everything = bool(request.query_params.get("all"))
    async with web_of(request).database.acting(identity_of(request)) as db:
        shown = await layout.frame(db)
        found = await db.run(calls.silences(all_of_them=everything))
    return layout.render(
        request, "pages/silences.html", shown, silences=found, everything=everything, places=PLACES
    )


async def silences_csv(request: Request) -> Response:
    found = await web_of(request).database.run(identity_of(request), calls.silences(all_of_them=True))
    return tables.csv_of("silences", SilenceInfo, found)


async def end_silence(request: Request) -> Response:
    call = calls.end_silence(_id_of(request))
    changed = await web_of(request).database.run(identity_of(request), call, writes=True)
    said = "The silence has ended" if changed else "It had ended already"
    return layout.back(request, "/alerts/silences", Flash(said))


ROUTES = [
    Route("/alerts", alerts),
    Route("/alerts.csv", as_csv),
    Route("/alerts/silences", silences),
    Route("/alerts/silences.csv", silences_csv),
    Route("/alerts/silences/{id}/end", end_silence, methods=["POST"]),
    Route("/alerts/{id}", show),
    Route("/alerts/{id}/acknowledge", acknowledge, methods=["POST"]),
    Route("/alerts/{id}/close", close, methods=["POST"]),
    Route("/alerts/{id}/silence", silence, methods=["POST"]),
]
