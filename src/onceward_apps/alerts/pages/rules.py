"""Rules: what is watched, written by somebody who writes no code, and tried on the last thirty days before it is saved."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from onceward.web import layout, tables, web_of
from onceward.web.context import identity_of
from onceward.web.database import Acting
from onceward.web.forms import Form, read_form
from onceward.web.layout import Flash
from onceward.web.query import query_of
from onceward_apps.alerts import store
from onceward_apps.alerts.drawing import Bar, Mark
from onceward_apps.alerts.functions import Connection
from onceward_apps.alerts.pages import change, id_of, render
from onceward_apps.alerts.pages.drafts import (
    AGGREGATES,
    COMPARISONS,
    KINDS,
    SEVERITIES,
    UNITS,
    Draft,
    condition,
)

ADDRESS = "/alerting/rules"
MOST, OBJECTS, FOUND, DAYS = 500, 200, 12, 30


@dataclass(frozen=True, slots=True)
class Asked:
    """A form as it is to be shown: a rule that is there, or one that is to be."""

    metric: dict[str, Any]
    draft: Draft
    rule: dict[str, Any] | None = None
    # By field; what concerns none stands under "".
    problems: dict[str, str] = field(default_factory=dict)
    # When the rule was changed last, as the form was told.
    seen: str = ""
    # The object whose course is to be drawn; the page chooses when nobody has.
    drawn: str = ""

    @property
    def status(self) -> int:
        return 409 if "" in self.problems else 422 if self.problems else 200


@dataclass(frozen=True, slots=True)
class RuleLine:
    """A row of the list as CSV."""

    tenant: str
    title: str
    metric: str
    external_object_id: str | None
    kind: str
    fires_when: str
    severity: str
    enabled: bool
    alerts_in_30_days: int
    last_alert_at: datetime | None
    updated_at: datetime
    updated_by: str | None


# ------------------------------------------------------------ reading


async def index(request: Request) -> Response:
    query = query_of(request)
    state = query.many("state", ("on", "off"))
    async with web_of(request).database.acting(identity_of(request)) as db:
        frame = await layout.frame(db)
        found = await _listed(db.connection, state, MOST)
    return render(
        request, "rules.html", frame, rules=found, condition=condition, query=query, chosen=state, most=MOST,
        several=len({rule["tenant"] for rule in found}) > 1,
    )  # fmt: skip


async def as_csv(request: Request) -> Response:
    state = query_of(request).many("state", ("on", "off"))
    async with web_of(request).database.acting(identity_of(request)) as db:
        found = await _listed(db.connection, state, tables.MOST_ROWS)
    return tables.csv_of(
        "rules", RuleLine,
        (
            RuleLine(
                tenant=rule["tenant"], title=rule["title"], metric=rule["metric"], external_object_id=rule["external_object_id"],
                kind=rule["kind"], fires_when=condition(rule), severity=rule["severity"], enabled=rule["enabled"],
                alerts_in_30_days=rule["raised"], last_alert_at=rule["latest"], updated_at=rule["updated_at"], updated_by=rule["updated_by"],
            )
            for rule in found
        ),
    )  # fmt: skip


async def _listed(connection: Connection, state: list[str], most: int) -> list[dict[str, Any]]:
    return await store.rows(
        connection,
        "select c.*, d.title as metric, d.unit, t.name as tenant, a.raised, a.latest"
        "  from alerts.alert_configs as c join alerts.tenants as t on t.id = c.tenant_id"
        "  join alerts.metric_definitions as d on d.tenant_id = c.tenant_id and d.metric_code = c.metric_code"
        "  left join lateral (select count(*) as raised, max(i.triggered_at) as latest from alerts.alert_instances as i"
        "                      where i.alert_config_id = c.id and i.triggered_at > onceward.now() - interval '30 days') as a on true"
        " where %(state)s::boolean[] is null or c.enabled = any (%(state)s)"
        " order by t.name, d.title, c.title, c.id limit %(most)s",
        state=[one == "on" for one in state] or None, most=most,
    )  # fmt: skip


async def new(request: Request) -> Response:
    """Which metric; then the form for it."""
    query = query_of(request)
    tenant, code = query.text("tenant"), query.text("metric")
    async with web_of(request).database.acting(identity_of(request)) as db:
        if tenant and code:
            metric = await _metric(db.connection, tenant, code)
            return await _form(request, db, Asked(metric, Draft(), drawn=query.text("drawn") or ""))
        frame = await layout.frame(db)
        metrics = await store.rows(
            db.connection,
            "select d.metric_code, d.title, d.unit, t.slug, t.name as tenant, o.objects, o.latest,"
            "       (select count(*) from alerts.alert_configs as c where c.tenant_id = d.tenant_id and c.metric_code = d.metric_code and c.enabled) as rules"
            "  from alerts.metric_definitions as d join alerts.tenants as t on t.id = d.tenant_id"
            "  left join lateral (select count(*) as objects, max(m.last_observed_at) as latest from alerts.metric_objects as m"
            "                      where m.tenant_id = d.tenant_id and m.metric_code = d.metric_code) as o on true"
            " order by t.name, d.title, d.metric_code limit %(most)s",
            most=MOST,
        )
    return render(
        request, "rule_metrics.html", frame, metrics=metrics, several=len({one["tenant"] for one in metrics}) > 1
    )  # fmt: skip


async def show(request: Request) -> Response:
    async with web_of(request).database.acting(identity_of(request)) as db:
        rule = await _rule(db.connection, id_of(request))
        asked = Asked(
            rule, Draft.of_rule(rule), rule,
            seen=rule["updated_at"].isoformat(), drawn=query_of(request).text("drawn") or "",
        )  # fmt: skip
        return await _form(request, db, asked)


# ------------------------------------------------------------ writing


async def create(request: Request) -> Response:
    form = await read_form(request)
    return await _take(request, form, tenant=form.text("tenant"), code=form.text("metric"))


async def edit(request: Request) -> Response:
    return await _take(request, await read_form(request), rule_id=id_of(request))


async def _take(
    request: Request, form: Form, *, rule_id: UUID | None = None, tenant: str = "", code: str = ""
) -> Response:
    """Save what was sent, or show what it would have found."""
    draft, who = Draft.of_form(form), identity_of(request)
    async with web_of(request).database.acting(who, writes=True) as db:
        rule = await _rule(db.connection, rule_id) if rule_id is not None else None
        metric = rule or await _metric(db.connection, tenant, code)
        if rule is not None:
            draft = replace(draft, kind=rule["kind"])
        problems = draft.problems()
        if problems or form.text("do") == "preview":
            return await _form(
                request, db, Asked(metric, draft, rule, problems, form.text("seen"), form.text("drawn"))
            )
        try:
            async with db.connection.transaction():
                await change(
                    db, "select alerts.save_rule(%(rule)s, %(id)s::uuid, %(seen)s::timestamptz)",
                    rule=Jsonb(draft.rule(metric)), id=rule_id, seen=_moment(form.text("seen")),
                )  # fmt: skip
        except HTTPException as refused:
            if refused.status_code != 409:
                raise
            return await _form(
                request,
                db,
                Asked(metric, draft, rule, {"": refused.detail}, form.text("seen"), form.text("drawn")),
            )
    said = (
        "The rule is changed" if rule else "The rule is made; within five minutes it is looked at for the first time"
    )  # fmt: skip
    return layout.back(request, ADDRESS, Flash(said))


async def switch(request: Request) -> Response:
    rule, on = id_of(request), (await read_form(request)).text("enabled") == "1"
    async with web_of(request).database.acting(identity_of(request), writes=True) as db:
        await change(db, "select alerts.enable_rule(%(id)s::uuid, %(on)s::boolean)", id=rule, on=on)
    return layout.back(
        request, ADDRESS, Flash("The rule is on" if on else "The rule is off; its alerts stay")
    )


# ------------------------------------------------------------ the form and what stands beside it


async def _form(request: Request, db: Acting, asked: Asked) -> Response:
    metric, draft = asked.metric, asked.draft
    frame = await layout.frame(db)
    objects = await _objects(db.connection, metric)
    # A fresh form has no name yet, or one that is too long, which is no reason not to show what the rest would find.
    found = None
    if not set(draft.problems()) - {"title"}:
        named = replace(draft, title=draft.title[:200] or "?")
        found = await _preview(db, named.rule(metric))
    # Whose course may be drawn: what the rule watches.
    names = [] if draft.external_object_id else [one["name"] for one in objects if one["name"]]
    chosen = asked.drawn if asked.drawn in names else ""
    drawn = chosen or _drawn_object(draft, objects, found or [])
    return render(
        request, "rule.html", frame, status=asked.status, metric=metric, draft=draft, problems=asked.problems,
        rule=asked.rule, seen=asked.seen, objects=objects, found=found,
        days=_by_day(found or [], metric["today"]), kinds=KINDS, aggregates=AGGREGATES, comparisons=COMPARISONS,
        severities=SEVERITIES, units=list(UNITS), watched=_watched(draft, objects), most=FOUND, condition=condition, drawn=drawn,
        drawable=names if len(names) > 1 else [], chosen=chosen, of_objects=len(objects) if 1 < len(objects) < OBJECTS and not draft.external_object_id else 0,
        points=await _course(db.connection, metric, drawn),
        marks=[Mark(row["found_at"], row["message"]) for row in found or [] if (row["external_object_id"] or "") == drawn],
        level=draft.limit if draft.kind == "threshold" else None,
    )  # fmt: skip


async def _preview(db: Acting, rule: dict[str, Any]) -> list[dict[str, Any]]:
    return await store.rows(
        db.connection,
        "select * from alerts.preview_rule(%(rule)s, %(days)s) order by found_at desc, external_object_id",
        rule=Jsonb(rule),
        days=DAYS,
    )


async def _metric(connection: Connection, slug: str, code: str) -> dict[str, Any]:
    metric = await store.row(
        connection,
        "select d.tenant_id, d.metric_code, d.title as metric, d.unit, t.slug, t.name as tenant, (onceward.now() at time zone t.time_zone)::date as today"
        "  from alerts.metric_definitions as d join alerts.tenants as t on t.id = d.tenant_id"
        " where t.slug = %(slug)s and d.metric_code = %(code)s",
        slug=slug,
        code=code,
    )
    if metric is None:
        raise HTTPException(404)
    return metric


async def _rule(connection: Connection, rule: UUID) -> dict[str, Any]:
    found = await store.row(
        connection,
        "select c.*, d.title as metric, d.unit, t.slug, t.name as tenant, (onceward.now() at time zone t.time_zone)::date as today"
        "  from alerts.alert_configs as c join alerts.tenants as t on t.id = c.tenant_id"
        "  join alerts.metric_definitions as d on d.tenant_id = c.tenant_id and d.metric_code = c.metric_code"
        " where c.id = %(id)s",
        id=rule,
    )
    if found is None:
        raise HTTPException(404)
    return found


async def _objects(connection: Connection, metric: dict[str, Any]) -> list[dict[str, Any]]:
    """The objects of a metric, and between what their values lay: what a limit is chosen by."""
    return await store.rows(
        connection,
        "select o.external_object_id as name, v.low, v.mean, v.high from"
        " (select m.external_object_id, m.tenant_id, m.metric_code from alerts.metric_objects as m"
        "   where m.tenant_id = %(tenant)s and m.metric_code = %(metric)s order by m.external_object_id limit %(most)s) as o"
        " left join (select v.external_object_id, min(v.value) as low, avg(v.value) as mean, max(v.value) as high"
        "              from alerts.metric_values as v where v.tenant_id = %(tenant)s and v.metric_code = %(metric)s"
        "               and v.observed_at > onceward.now() - interval '30 days' group by 1) as v using (external_object_id)"
        " order by o.external_object_id",
        tenant=metric["tenant_id"], metric=metric["metric_code"], most=OBJECTS,
    )  # fmt: skip


async def _course(connection: Connection, metric: dict[str, Any], of: str) -> list[tuple[datetime, float]]:
    found = await store.rows(
        connection,
        "select date_bin('3 hours', v.observed_at, onceward.now()) as at, avg(v.value) as value from alerts.metric_values as v"
        " where v.tenant_id = %(tenant)s and v.metric_code = %(metric)s and v.external_object_id = %(object)s"
        "   and v.observed_at > onceward.now() - interval '30 days' group by 1 order by 1",
        tenant=metric["tenant_id"], metric=metric["metric_code"], object=of,
    )  # fmt: skip
    return [(row["at"], row["value"]) for row in found]


def _watched(draft: Draft, objects: list[dict[str, Any]]) -> dict[str, str]:
    """What a rule may be about: all objects, or one."""
    names = [one["name"] for one in objects if one["name"]]
    if draft.external_object_id and draft.external_object_id not in names:
        names.append(draft.external_object_id)
    return {"": "each object by itself" if names else "the metric", **{name: name for name in names}}


def _drawn_object(draft: Draft, objects: list[dict[str, Any]], found: list[dict[str, Any]]) -> str:
    """The one that the rule is about, else the one with most to show."""
    if draft.external_object_id:
        return draft.external_object_id
    if found:
        return Counter(row["external_object_id"] or "" for row in found).most_common(1)[0][0]
    return objects[0]["name"] if objects else ""


def _by_day(found: list[dict[str, Any]], today: date) -> list[Bar]:
    """How many alerts each of the tenant's last days would have had.  Thirty days touch 31 dates, and one more when clocks went forward."""
    counts = Counter(row["alert_date"] for row in found)
    back = max([DAYS, *((today - day).days for day in counts)])
    days = [today - timedelta(days=ago) for ago in range(back, -1, -1)]
    return [
        Bar(f"{day:%-d %b}", counts[day], "failed" if counts[day] else "none", "alerts" if counts[day] != 1 else "alert")
        for day in days
    ]  # fmt: skip


def _moment(text: str) -> datetime | None:
    """When the rule was changed last, as its form was told; anything else was not told by us."""
    try:
        return datetime.fromisoformat(text) if text else None
    except ValueError:
        raise HTTPException(400, "the form cannot be read") from None


ROUTES = [
    Route("/rules", index),
    Route("/rules.csv", as_csv),
    Route("/rules/new", new),
    Route("/rules/new", create, methods=["POST"]),
    Route("/rules/{id}", show),
    Route("/rules/{id}", edit, methods=["POST"]),
    Route("/rules/{id}/switch", switch, methods=["POST"]),
]
