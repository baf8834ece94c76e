"""Every component once, on a page that no navigation shows: for looking at, and for the browser tests."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from uuid import UUID

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from onceward.attempts import runs as runs_of
from onceward.model import DELIVERY_STATES, STATES, AttemptInfo, JobInfo, StepInfo, WorkflowJob
from onceward.web import graph, layout, timeline
from onceward.web.charts import Point
from onceward.web.context import identity_of, web_of

ID = UUID("01890a5d-ac96-774b-bcce-b302099a8057")
SAMPLE = {
    "order": 1042, "paid": True, "note": None, "total": 129.5, "lines": [{"sku": "mug", "count": 2}, {"sku": "lamp", "count": 1}],
    "address": {"name": "Ana <b>Lima</b>", "city": "Porto", "coordinates": {"lat": 41.15, "lon": -8.61}},
}  # fmt: skip


async def components(request: Request) -> Response:
    async with web_of(request).database.acting(identity_of(request)) as db:
        shown = await layout.frame(db)
    now = shown.now
    points = [
        Point(f"{i:02d}:00", int(40 + 30 * math.sin(i / 4)), 6 if i % 13 == 0 else 0) for i in range(60)
    ]
    return layout.render(
        request, "pages/components.html", shown,
        states=STATES, delivery_states=DELIVERY_STATES, points=points, id=ID, sample=SAMPLE,
        changed={**SAMPLE, "order": 1043, "paid": False}, bars=_story(now),
        drawn=graph.layout(_workflow(now), ID), moment=now - timedelta(minutes=42), coming=now + timedelta(hours=3),
    )  # fmt: skip


def _story(now: datetime) -> list[timeline.Bar]:
    t = now - timedelta(seconds=60)

    def at(seconds: float) -> datetime:
        return t + timedelta(seconds=seconds)

    job = JobInfo(
        ID, "default", "mail", "send_receipt", "done", 0, 2, 8, 0, 2, t, t, at(30), at(48), None, None, None, SAMPLE, "sent",
        None, None, None, None, None, None, None, None, None, ID, None, None, None, None, None,
    )  # fmt: skip
    attempts = [
        AttemptInfo(ID, 1, "default", "send_receipt", 1, None, at(4), at(16), "failed", "TimeoutError", "transient",
                    "the bank does not answer", "a1b2", None, at(30)),
        AttemptInfo(ID, 2, "default", "send_receipt", 2, None, at(30), at(48), "done", None, None, None, None, None, None),
    ]  # fmt: skip
    steps = [
        StepInfo(ID, "load the order", "default", "send_receipt", "step", "done", 1, 1, 1, at(4), at(7), timedelta(seconds=3),
                 None, None, None, None),
        StepInfo(ID, "charge the card", "default", "send_receipt", "step", "done", 2, 2, 3, at(31), at(45),
                 timedelta(seconds=14), None, None, None, None),
    ]  # fmt: skip
    return timeline.bars(job, runs_of(attempts, []), steps, now)


def _workflow(now: datetime) -> list[WorkflowJob]:
    def job(number: int, node: str, state: str, after: list[int]) -> WorkflowJob:
        return WorkflowJob(
            _id(number), node, node.replace(" ", "_"), state, 1, 8, None, [_id(other) for other in after], "fail", now, None,
            None, None,
        )  # fmt: skip

    def _id(number: int) -> UUID:
        return ID if number == 3 else UUID(int=ID.int - 10 + number)

    return [
        job(1, "fetch", "done", []), job(2, "scan", "done", [1]), job(3, "read", "running", [1]),
        job(4, "understand", "blocked", [2, 3]), job(5, "notify", "blocked", [4]),
    ]  # fmt: skip


ROUTES = [Route("/_components", components)]
