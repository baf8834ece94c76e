"""A page of what comes from other systems: each source, how far it was read, and the customers made from it."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from onceward.errors import InvalidArgument
from onceward.web import layout, web_of
from onceward.web.context import identity_of
from onceward.web.forms import read_form
from onceward.web.layout import Flash
from onceward_apps.alerts import store
from onceward_apps.alerts.pages import change, id_of, render

ADDRESS = "/alerting/sources"
SEGMENTS = ("vip", "loyal", "active", "new", "at_risk", "lapsed")
MOST = 500
ACTIONS = {
    "pause": "is not read for now",
    "resume": "is read again",
    "accept": "takes the columns that it has now",
}


async def sources(request: Request) -> Response:
    async with web_of(request).database.acting(identity_of(request)) as db:
        shown = await layout.frame(db)
        found = await store.rows(
            db.connection,
            "select s.id, s.function_name, s.name, s.kind, s.target, s.enabled, t.name as tenant, c.synced_at, c.rows_synced, c.columns,"
            "       (select r.result -> 'sources' -> s.name from alerts.job_runs as r where r.id = c.job_id) as last"
            "  from alerts.sync_sources as s join alerts.tenants as t on t.id = s.tenant_id"
            "  left join alerts.sync_cursors as c on c.source_id = s.id"
            " order by t.name, s.function_name, s.name limit %(most)s",
            most=MOST,
        )
        customers = await store.rows(
            db.connection,
            "select t.name as tenant, p.segment, count(*) as customers, max(p.built_on) as built_on"
            "  from alerts.customer_profiles as p join alerts.tenants as t on t.id = p.tenant_id group by t.name, p.segment order by t.name",
        )
    by_tenant: dict[str, dict[str, Any]] = {}
    for row in customers:
        line = by_tenant.setdefault(row["tenant"], {"total": 0, "built_on": row["built_on"]})
        line[row["segment"]] = row["customers"]
        line["total"] += row["customers"]
        line["built_on"] = max(line["built_on"], row["built_on"])
    return render(
        request, "sources.html", shown, sources=found, customers=by_tenant, segments=SEGMENTS, address=ADDRESS
    )


async def act(request: Request) -> Response:
    """Pause a source, resume it, or accept that its columns have changed."""
    source, action = id_of(request), (await read_form(request)).text("action")
    if action not in ACTIONS:
        raise InvalidArgument("action must be pause, resume or accept")
    async with web_of(request).database.acting(identity_of(request), writes=True) as db:
        if action == "accept":
            await change(db, "select alerts.accept_columns(%(id)s::uuid)", id=source)
        else:
            await change(
                db,
                "select alerts.enable_source(%(id)s::uuid, %(on)s::boolean)",
                id=source,
                on=action == "resume",
            )
    return layout.back(request, ADDRESS, Flash(f"The source {ACTIONS[action]}"))


ROUTES = [Route("/sources", sources), Route("/sources/{id}", act, methods=["POST"])]
