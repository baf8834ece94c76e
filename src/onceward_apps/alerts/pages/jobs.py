"""Runs by function, the health of all of them, dead letters, and when each is called."""

from __future__ import annotations

from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from onceward import calls
from onceward.errors import InvalidArgument
from onceward.web import layout, web_of
from onceward.web.context import identity_of
from onceward.web.forms import read_form
from onceward.web.layout import Flash
from onceward.web.query import query_of
from onceward_apps.alerts import store
from onceward_apps.alerts.drawing import Bar
from onceward_apps.alerts.functions import Functions
from onceward_apps.alerts.pages import change, id_of, render

STATUSES = ("running", "completed", "failed", "cancelled")
MOST, DRAWN = 100, 60
MONITORS = ("alerts_failed_jobs", "alerts_long_running", "alerts_retry_rate")


class Pages:
    """The pages that know the registry."""

    def __init__(self, functions: Functions) -> None:
        self._functions = functions

    async def runs(self, request: Request) -> Response:
        query = query_of(request)
        name = query.text("function")
        status = query.many("status", STATUSES)
        async with web_of(request).database.acting(identity_of(request)) as db:
            shown = await layout.frame(db)
            found = await store.rows(
                db.connection,
                "select j.id, j.function_name, j.lock_key, j.status, j.result, j.error_message, j.retry_count, j.started_at,"
                "       j.completed_at, j.created_at, j.duration_ms, j.called_by, t.name as tenant"
                "  from alerts.job_runs as j join alerts.tenants as t on t.id = j.tenant_id"
                " where (%(name)s::text is null or j.function_name = %(name)s) and (%(status)s::text[] is null or j.status = any (%(status)s))"
                " order by j.created_at desc, j.id desc limit %(most)s",
                name=name, status=status or None, most=MOST,
            )  # fmt: skip
        drawn = {
            function: [
                Bar(
                    f"{run['created_at']:%-d %b %H:%M} UTC",
                    float(run["duration_ms"] or 0),
                    run["status"],
                    run["status"],
                )
                for run in reversed([run for run in found if run["function_name"] == function][:DRAWN])
            ]
            for function in sorted({run["function_name"] for run in found})
        }
        return render(
            request, "runs.html", shown, runs=found, drawn=drawn, query=query, name=name, chosen=status,
            statuses=STATUSES, functions=sorted(self._functions), most=MOST,
            several=len({run["tenant"] for run in found}) > 1,
        )  # fmt: skip

    async def health(self, request: Request) -> Response:
        async with web_of(request).database.acting(identity_of(request)) as db:
            shown = await layout.frame(db)
            summary = await store.rows(db.connection, "select * from alerts.job_health_summary")
            figures = await store.row(
                db.connection,
                "select count(*) as total, count(*) filter (where status = 'failed') as failed,"
                "       count(*) filter (where retry_count > 0) as retried from alerts.job_runs"
                " where created_at > onceward.now() - interval '24 hours'",
            )
            long = await store.rows(
                db.connection,
                "select j.id, j.function_name, j.started_at, t.name as tenant from alerts.job_runs as j"
                "  join alerts.tenants as t on t.id = j.tenant_id"
                " where j.status = 'running' and j.started_at < onceward.now() - interval '30 minutes' order by j.started_at limit 20",
            )
            bounds = {row["monitor"]: row["value"] for row in await store.rows(
                db.connection, "select monitor, value from onceward.thresholds where monitor = any (%(names)s)",
                names=list(MONITORS),
            )}  # fmt: skip
            last = await store.rows(
                db.connection,
                "select distinct on (function_name) function_name, status, created_at, duration_ms, id from alerts.job_runs"
                " where created_at > onceward.now() - interval '3 days' order by function_name, created_at desc, id desc",
            )
        assert figures is not None
        return render(
            request, "health.html", shown, table=self._by_function(summary), figures=figures, long=long, bounds=bounds,
            rate=100 * figures["retried"] / figures["total"] if figures["total"] else 0.0,
            last={row["function_name"]: row for row in last}, functions=self._functions, statuses=STATUSES,
        )  # fmt: skip

    def _by_function(self, summary: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """One line per function, with those that have not run."""
        lines = []
        for name in sorted(self._functions):
            of = {row["status"]: row for row in summary if row["function_name"] == name}
            done = of.get("completed", {})
            lines.append({
                "name": name, "counts": {status: of.get(status, {}).get("count", 0) for status in STATUSES},
                "avg": done.get("avg_duration_ms"), "max": done.get("max_duration_ms"),
                "retried": sum(int(row["retried_count"]) for row in of.values()),
            })  # fmt: skip
        return lines

    async def errors(self, request: Request) -> Response:
        query = query_of(request)
        settled = query.text("settled") is not None
        async with web_of(request).database.acting(identity_of(request)) as db:
            shown = await layout.frame(db)
            found = await store.rows(
                db.connection,
                "select e.*, t.name as tenant from alerts.sync_errors as e join alerts.tenants as t on t.id = e.tenant_id"
                " where e.is_resolved = %(settled)s order by e.created_at desc limit %(most)s",
                settled=settled, most=MOST,
            )  # fmt: skip
        return render(request, "errors.html", shown, errors=found, settled=settled, most=MOST)

    async def retry(self, request: Request) -> Response:
        run = id_of(request)
        async with web_of(request).database.acting(identity_of(request), writes=True) as db:
            await change(db, "select alerts.retry_run(%(id)s::uuid)", id=run)
        return layout.back(
            request, _back(await read_form(request)), Flash("It runs again, with three retries")
        )

    async def resolve(self, request: Request) -> Response:
        run, form = id_of(request), await read_form(request)
        if not form.text("note"):
            raise InvalidArgument(
                "the note is missing", hint="Say how it was settled; it is kept with the run."
            )
        async with web_of(request).database.acting(identity_of(request), writes=True) as db:
            await change(
                db, "select alerts.resolve_run(%(id)s::uuid, %(note)s::text)", id=run, note=form.text("note")
            )
        return layout.back(request, "/alerting/errors", Flash("Settled"))

    async def scheduling(self, request: Request) -> Response:
        async with web_of(request).database.acting(identity_of(request)) as db:
            shown = await layout.frame(db)
            tenants = await store.rows(
                db.connection, "select id, slug, name, time_zone from alerts.tenants order by name"
            )
            planned = await store.rows(
                db.connection,
                "select id, tenant, name, spec, zone, state, next_at, last_outcome, source from onceward.schedules where task = 'alerts.call'",
            )
            last = await store.rows(
                db.connection,
                "select distinct on (tenant_id, function_name) tenant_id, function_name, id, status, created_at from alerts.job_runs"
                " where created_at > onceward.now() - interval '3 days' order by tenant_id, function_name, created_at desc, id desc",
            )
        return render(
            request, "scheduling.html", shown, tenants=tenants, functions=self._functions,
            planned={(row["tenant"], row["name"]): row for row in planned},
            last={(row["tenant_id"], row["function_name"]): row for row in last},
        )  # fmt: skip

    async def schedule(self, request: Request) -> Response:
        """Pause a function of a tenant, resume it, or call it now."""
        form = await read_form(request)
        name, tenant, action = form.text("function"), form.text("tenant"), form.text("action")
        function = self._functions.get(name)
        who = identity_of(request)
        if function is None or (who.tenant is not None and who.tenant != tenant):
            raise HTTPException(404)
        async with web_of(request).database.acting(who, writes=True) as db:
            match action:
                case "pause":
                    await db.run(calls.pause_schedule(name, f"by {who.name}", tenant=tenant))
                    flash = Flash(f"{name} is paused")
                case "resume":
                    await db.run(calls.resume_schedule(name, tenant=tenant))
                    flash = Flash(f"{name} goes on")
                case "call":
                    await db.run(calls.set_tenant(tenant))
                    begun = await store.begin(db.connection, function, self._functions, caller=who.name)
                    if begun.is_ours:
                        flash = Flash(f"{name} runs")
                    else:
                        flash = Flash(
                            f"{name} has this window already: {begun.outcome}, {begun.holder}", tone="trouble"
                        )
                case _:
                    raise InvalidArgument("action must be pause, resume or call")
        return layout.back(request, "/alerting/scheduling", flash)

    @property
    def routes(self) -> list[Route]:
        return [
            Route("/runs", self.runs),
            Route("/runs/{id}/retry", self.retry, methods=["POST"]),
            Route("/runs/{id}/resolve", self.resolve, methods=["POST"]),
            Route("/health", self.health),
            Route("/errors", self.errors),
            Route("/scheduling", self.scheduling),
            Route("/scheduling", self.schedule, methods=["POST"]),
        ]


def _back(form: Any) -> str:
    return "/alerting/runs" if form.text("from") == "runs" else "/alerting/errors"
