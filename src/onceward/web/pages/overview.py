"""Overview: is it well, what is happening, what needs me, who is working."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from onceward import calls
from onceward.calls import browsing
from onceward.model import JobFilter, LaneInfo
from onceward.model_web import Activity
from onceward.web import health_words, layout
from onceward.web.charts import Point
from onceward.web.context import identity_of, web_of
from onceward.web.health_words import Seen

MINUTES = 60
# Alerts by name; the others are on their page.
MOST_ALERTS = 6


@dataclass(frozen=True, slots=True)
class LaneLine:
    """One lane of the overview: its hour, and what waits in it now."""

    lane: LaneInfo
    points: list[Point]
    done: int
    failed: int


async def overview(request: Request) -> Response:
    async with web_of(request).database.acting(identity_of(request)) as db:
        shown = await layout.frame(db)
        lanes = await db.run(calls.lanes())
        workers = [worker for worker in await db.run(calls.workers()) if worker.state != "retired"]
        activity = await db.run(browsing.activity(MINUTES))
        groups = (
            await db.run(calls.dead_letter_groups(JobFilter(limit=4))) if shown.counts["dead_letters"] else []
        )
        alerts = await db.run(calls.alerts(states=("open",), limit=100)) if shown.counts["alerts"] else []
        alerts = [alert for alert in alerts if alert.silenced_until is None][:MOST_ALERTS]
        limits = await db.run(calls.limits())
    by_minute = per_minute(activity, shown.now)
    done, failed = sum(point.done for point in by_minute), sum(point.failed for point in by_minute)
    about = any(item.about for item in activity)
    lines = lane_lines(lanes, activity, shown.now)
    return layout.render(
        request, "pages/overview.html", shown,
        health=health_words.judge(
            Seen(lanes, workers, shown.counts["uncertain"], limits, alerts), shown.now, done=done, about=about
        ),
        points=by_minute, done=done, failed=failed, about=about, lines=lines,
        busiest=max((point.done for line in lines for point in line.points), default=0),
        ready=sum(lane.ready for lane in lanes), running=sum(lane.running for lane in lanes),
        scheduled=sum(lane.scheduled for lane in lanes), blocked=sum(lane.blocked for lane in lanes),
        dead=sum(lane.dead_letter for lane in lanes), workers=workers, groups=groups,
        slots=sum(worker.concurrency for worker in workers if worker.state == "live"),
        empty=not activity and not any(lane.ready or lane.running or lane.scheduled or lane.dead_letter for lane in lanes),
    )  # fmt: skip


def per_minute(activity: Sequence[Activity], now: datetime) -> list[Point]:
    """One point per minute of the hour, also for those in which nothing happened."""
    done: dict[datetime, int] = defaultdict(int)
    failed: dict[datetime, int] = defaultdict(int)
    for item in activity:
        done[item.minute] += item.done
        failed[item.minute] += item.failed
    last = now.replace(second=0, microsecond=0)
    minutes = [last - timedelta(minutes=back) for back in range(MINUTES - 1, -1, -1)]
    return [
        Point("now" if minute == last else f"{minute:%H:%M}", done[minute], failed[minute])
        for minute in minutes
    ]


def lane_lines(lanes: Sequence[LaneInfo], activity: Sequence[Activity], now: datetime) -> list[LaneLine]:
    of_lane: dict[str, list[Activity]] = defaultdict(list)
    for item in activity:
        of_lane[item.lane].append(item)
    lines = []
    for lane in lanes:
        points = per_minute(of_lane[lane.name], now)
        lines.append(LaneLine(lane, points, sum(p.done for p in points), sum(p.failed for p in points)))
    return lines


ROUTES = [Route("/", overview)]
