"""The five saved questions as charts."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from onceward_apps.proof import store
from onceward_apps.proof.pages import charts
from onceward_apps.proof.pages.charts import Part
from onceward_apps.proof.pages.portal import STATUS_WORDS, looking

STATUS_TONES = {"RELEASED": "proof-done", "QA_HOLD": "proof-wait", "REJECTED": "proof-dead"}


async def questions(request: Request) -> Response:
    async with looking(request) as look:
        found = await store.questions(look.connection)
        days = [f"{row.day:%a} {row.day.day} {row.day:%b}" for row in found["duration"]]
        duration = [
            Part("average ms", "proof-done", [int(row.avg_ms or 0) for row in found["duration"]]),
        ]
        failures = [
            Part("tried again", "proof-wait", [row.retried for row in found["failures"]]),
            Part("dead letters", "proof-dead", [row.dead_letters for row in found["failures"]]),
            Part("resolved", "proof-off", [row.resolved for row in found["failures"]]),
        ]
        weeks = sorted({row.week for row in found["volume"]})
        by_week = {(row.week, row.status): row for row in found["volume"]}
        volume = [
            Part(STATUS_WORDS[status], tone, [by_week[week, status].batches for week in weeks])
            for status, tone in STATUS_TONES.items()
        ]
        return look.show(
            "questions.html",
            states=found["status"],
            most=max((row.jobs for row in found["status"]), default=0) or 1,
            duration_rows=found["duration"],
            partial=found["partial"],
            duration=charts.stacked(days, duration, "Average duration per day, 7 days", " ms"),
            failures=charts.stacked(
                [f"{row.day.day} {row.day:%b}" for row in found["failures"]],
                failures,
                "Dead letters and failures per day, 30 days",
            ),
            failures_legend=charts.legend(failures),
            volume=charts.stacked(
                [f"{week.day} {week:%b}" for week in weeks], volume, "Batches per week, 12 weeks"
            ),
            volume_legend=charts.legend(volume),
            kilograms=sum(row.kg for row in found["volume"]),
            created=sum(row.batches for row in found["volume"]),
        )


ROUTES: list[BaseRoute] = [Route("/questions", questions)]
