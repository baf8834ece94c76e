"""Decisions: the board, one card, and what came of them."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from onceward.web import layout, web_of
from onceward.web.context import identity_of
from onceward.web.forms import read_form
from onceward.web.layout import Flash
from onceward_apps.alerts import store
from onceward_apps.alerts.drawing import Bar, Mark
from onceward_apps.alerts.pages import change, id_of, render
from onceward_apps.alerts.pages.alerts import values_around

STATUSES = ("OPEN", "IN_PROGRESS", "DECIDED", "MEASURED")
# What is to be done is shown further than what was done.
PER_COLUMN, MEASURED = 20, 6
OUTCOMES = 60


async def board(request: Request) -> Response:
    async with web_of(request).database.acting(identity_of(request)) as db:
        shown = await layout.frame(db)
        cards = await store.rows(
            db.connection,
            "select * from (select k.id, k.title, k.status, k.owner, k.due_on, k.decision, k.options, k.decided_by, k.updated_at, a.severity, a.message,"
            "       t.name as tenant, o.verdict, o.change_percent,"
            "       k.due_on < (onceward.now() at time zone t.time_zone)::date as is_late,"
            "       row_number() over (partition by k.status order by"
            "         case when k.status in ('OPEN', 'IN_PROGRESS') then k.due_on end,"
            "         array_position(array['critical', 'warning', 'info'], a.severity), k.updated_at desc, k.id) as place,"
            "       count(*) over (partition by k.status) as total"
            "  from alerts.decision_cards as k join alerts.alert_instances as a on a.id = k.alert_instance_id"
            "  join alerts.tenants as t on t.id = k.tenant_id left join alerts.outcomes as o on o.decision_card_id = k.id) as s"
            " where s.place <= case s.status when 'MEASURED' then %(few)s else %(most)s end order by s.place",
            most=PER_COLUMN,
            few=MEASURED,
        )
    columns = {status: [card for card in cards if card["status"] == status] for status in STATUSES}
    return render(
        request, "board.html", shown, columns=columns, several=len({card["tenant"] for card in cards}) > 1,
        totals={status: found[0]["total"] if found else 0 for status, found in columns.items()},
    )  # fmt: skip


async def show(request: Request) -> Response:
    async with web_of(request).database.acting(identity_of(request)) as db:
        shown = await layout.frame(db)
        card = await store.row(
            db.connection,
            "select k.*, a.message, a.severity, a.external_object_id, a.triggered_at, a.metric_value, t.name as tenant, d.title as metric, d.unit,"
            "       d.better, o.verdict, o.baseline, o.observed, o.change_percent, o.measured_on"
            "  from alerts.decision_cards as k join alerts.alert_instances as a on a.id = k.alert_instance_id"
            "  join alerts.tenants as t on t.id = k.tenant_id"
            "  join alerts.metric_definitions as d on d.tenant_id = k.tenant_id and d.metric_code = k.metric_code"
            "  left join alerts.outcomes as o on o.decision_card_id = k.id where k.id = %(id)s",
            id=id_of(request),
        )
        if card is None:
            raise HTTPException(404)
        points = await values_around(db.connection, card)
    marks = [Mark(card["triggered_at"], "the alert", card["metric_value"])]
    if card["decided_at"] is not None:
        marks.append(Mark(card["decided_at"], "the decision", kind="decided"))
    return render(request, "card.html", shown, card=card, points=points, marks=marks)


async def move(request: Request) -> Response:
    form, card = await read_form(request), id_of(request)
    status = form.text("status")
    async with web_of(request).database.acting(identity_of(request), writes=True) as db:
        await change(
            db, "select alerts.move_card(%(id)s::uuid, %(status)s::text, %(decision)s::text, %(note)s::text)",
            id=card, status=status, decision=form.text("decision") or None, note=form.text("note") or None,
        )  # fmt: skip
    said = {
        "IN_PROGRESS": "The card is yours",
        "OPEN": "Given back",
        "DECIDED": "Decided; in a week the outcome is measured",
    }
    undo = f"/alerting/decisions/{card}/give-back" if status == "IN_PROGRESS" else None
    return layout.back(request, f"/alerting/decisions/{card}", Flash(said.get(status, "Moved"), undo))


async def give_back(request: Request) -> Response:
    card = id_of(request)
    async with web_of(request).database.acting(identity_of(request), writes=True) as db:
        await change(db, "select alerts.move_card(%(id)s::uuid, 'OPEN')", id=card)
    return layout.back(request, "/alerting/decisions", Flash("Given back"))


async def outcomes(request: Request) -> Response:
    async with web_of(request).database.acting(identity_of(request)) as db:
        shown = await layout.frame(db)
        found = await store.rows(
            db.connection,
            "select o.*, k.title, k.decision, k.decided_by, k.decided_at, t.name as tenant, d.unit, d.title as metric, d.better,"
            "       (select e ->> 'title' from jsonb_array_elements(k.options) as e where e ->> 'code' = k.decision) as option"
            "  from alerts.outcomes as o join alerts.decision_cards as k on k.id = o.decision_card_id"
            "  join alerts.tenants as t on t.id = o.tenant_id"
            "  join alerts.metric_definitions as d on d.tenant_id = o.tenant_id and d.metric_code = o.metric_code"
            " order by k.decided_at desc, o.id limit %(most)s",
            most=OUTCOMES,
        )
    drawn = [
        Bar(f"{row['title']}, {row['decided_at']:%-d %b}", row["change_percent"] or 0.0, row["verdict"], row["verdict"].replace("_", " "))
        for row in reversed(found)
    ]  # fmt: skip
    verdicts = {
        word: sum(row["verdict"] == word for row in found)
        for word in ("improved", "unchanged", "worsened", "no_data")
    }
    return render(request, "outcomes.html", shown, outcomes=found, bars=drawn, verdicts=verdicts)


ROUTES = [
    Route("/decisions", board),
    Route("/decisions/{id}", show),
    Route("/decisions/{id}/move", move, methods=["POST"]),
    Route("/decisions/{id}/give-back", give_back, methods=["POST"]),
    Route("/outcomes", outcomes),
]
