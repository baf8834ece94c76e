"""Alerts: what the rules have found, and one of them with the course of its metric."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from onceward.web import layout, web_of
from onceward.web.context import identity_of
from onceward.web.forms import read_form
from onceward.web.layout import Flash
from onceward.web.query import query_of
from onceward_apps.alerts import store
from onceward_apps.alerts.drawing import Mark
from onceward_apps.alerts.functions import Connection
from onceward_apps.alerts.pages import change, id_of, render

MOST = 200
SEVERITIES = ("critical", "warning", "info")
STATUSES = {
    "active": ("active", "open", "triggered"),
    "acknowledged": ("acknowledged",),
    "resolved": ("resolved",),
}


async def index(request: Request) -> Response:
    query = query_of(request)
    status, severity = query.many("status", tuple(STATUSES)), query.many("severity", SEVERITIES)
    wanted = [word for name in status for word in STATUSES[name]] or None
    async with web_of(request).database.acting(identity_of(request)) as db:
        shown = await layout.frame(db)
        found = await store.rows(
            db.connection,
            "select a.id, a.title, a.message, a.external_object_id, a.alert_date, a.severity, a.status, a.triggered_at,"
            "       a.metric_value, t.name as tenant, k.id as card_id, k.status as card_status"
            "  from alerts.alert_instances as a join alerts.tenants as t on t.id = a.tenant_id"
            "  left join alerts.decision_cards as k on k.alert_instance_id = a.id"
            " where (%(status)s::text[] is null or a.status = any (%(status)s))"
            "   and (%(severity)s::text[] is null or a.severity = any (%(severity)s))"
            " order by a.triggered_at desc, a.id limit %(limit)s",
            status=wanted, severity=severity or None, limit=MOST,
        )  # fmt: skip
        figures = await store.row(
            db.connection,
            "select (select count(*) from alerts.alert_instances where status in ('active', 'open', 'triggered')) as active,"
            "       (select count(*) from alerts.alert_instances as a join alerts.tenants as t on t.id = a.tenant_id"
            "         where a.alert_date = (onceward.now() at time zone t.time_zone)::date) as today,"
            "       (select count(*) from alerts.decision_cards where status in ('OPEN', 'IN_PROGRESS')) as cards,"
            "       (select count(*) from alerts.decision_cards as k join alerts.tenants as t on t.id = k.tenant_id"
            "         where k.status in ('OPEN', 'IN_PROGRESS') and k.due_on < (onceward.now() at time zone t.time_zone)::date) as late,"
            "       (select count(*) from alerts.sync_errors where not is_resolved) as errors,"
            "       (select count(*) from alerts.alert_configs where enabled) as rules,"
            "       (select max(completed_at) from alerts.job_runs where function_name = 'detect-alerts' and status = 'completed'"
            "           and created_at > onceward.now() - interval '1 day') as looked,"
            "       (select count(*) from alerts.tenants) as tenants",
        )
    return render(
        request, "alerts.html", shown, alerts=found, figures=figures, query=query, statuses=list(STATUSES),
        severities=SEVERITIES, chosen=[*status, *severity], most=MOST,
    )  # fmt: skip


async def show(request: Request) -> Response:
    async with web_of(request).database.acting(identity_of(request)) as db:
        shown = await layout.frame(db)
        alert = await store.row(
            db.connection,
            "select a.*, t.name as tenant, t.time_zone, d.title as metric, d.unit, c.kind, c.comparison, c.threshold, c.period,"
            "       c.aggregate, c.periods, c.updated_at as rule_updated_at, k.id as card_id, k.title as card_title, k.status as card_status, k.owner, k.due_on, k.decided_at, k.decision"
            "  from alerts.alert_instances as a join alerts.tenants as t on t.id = a.tenant_id"
            "  join alerts.alert_configs as c on c.id = a.alert_config_id"
            "  join alerts.metric_definitions as d on d.tenant_id = a.tenant_id and d.metric_code = a.metric_code"
            "  left join alerts.decision_cards as k on k.alert_instance_id = a.id where a.id = %(id)s",
            id=id_of(request),
        )
        if alert is None:
            raise HTTPException(404)
        points = await values_around(db.connection, alert)
        told = await store.rows(
            db.connection,
            "select recipient, state, tries, ended_at, delivery_id from alerts.notification_status"
            " where alert_instance_id = %(id)s order by recipient",
            id=alert["id"],
        )
        others = await store.rows(
            db.connection,
            "select id, alert_date, status, metric_value, triggered_at from alerts.alert_instances"
            " where alert_config_id = %(rule)s and external_object_id is not distinct from %(object)s and id <> %(id)s"
            " order by alert_date desc limit 10",
            rule=alert["alert_config_id"], object=alert["external_object_id"], id=alert["id"],
        )  # fmt: skip
    marks = [Mark(alert["triggered_at"], "the rule fired", alert["metric_value"])]
    if alert["decided_at"] is not None:
        marks.append(Mark(alert["decided_at"], f"decided: {alert['decision']}", kind="decided"))
    return render(
        request, "alert.html", shown, alert=alert, points=points, marks=marks, told=told, others=others,
        # As it was when the rule fired; it may have been changed since.
        level=alert["reference_value"] if alert["kind"] == "threshold" else None,
    )  # fmt: skip


async def values_around(connection: Connection, alert: dict[str, object]) -> list[tuple[object, float]]:
    """The metric three weeks before and two weeks after, in steps of two hours."""
    found = await store.rows(
        connection,
        "select date_bin('2 hours', v.observed_at, %(at)s) as at, avg(v.value) as value from alerts.metric_values as v"
        " where v.tenant_id = %(tenant)s and v.metric_code = %(metric)s and v.external_object_id = coalesce(%(object)s, '')"
        "   and v.observed_at > %(at)s - interval '504 hours' and v.observed_at < %(at)s + interval '336 hours'"
        " group by 1 order by 1",
        at=alert["triggered_at"], tenant=alert["tenant_id"], metric=alert["metric_code"], object=alert["external_object_id"],
    )  # fmt: skip
    return [(row["at"], row["value"]) for row in found]


async def settle(request: Request) -> Response:
    form, alert = await read_form(request), id_of(request)
    status = form.text("status")
    async with web_of(request).database.acting(identity_of(request), writes=True) as db:
        await change(
            db, "select alerts.settle_alert(%(id)s::uuid, %(status)s::text)", id=alert, status=status
        )
    return layout.back(request, f"/alerting/alerts/{alert}", Flash(f"The alert is {status}"))


ROUTES = [
    Route("/", index),
    Route("/alerts/{id}", show),
    Route("/alerts/{id}/settle", settle, methods=["POST"]),
]
