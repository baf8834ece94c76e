"""Emails that did not get through at the first try: the queue, its health, and what a person can do about it."""

from __future__ import annotations

from dataclasses import replace

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from onceward import calls
from onceward.web import layout, tables, web_of
from onceward.web.layout import Flash
from onceward.web.query import PAGE, query_of
from onceward_apps.meals import staff
from onceward_apps.meals.pages.desk import Desk, check, id_of, masked, render

STATUSES = ("pending", "abandoned", "sent")


class Emails:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def routes(self) -> list[BaseRoute]:
        return [
            Route("/emails", self.listed),
            Route("/emails.csv", self.as_csv),
            Route("/emails/{id}/send", self.send, methods=["POST"]),
        ]

    async def listed(self, request: Request) -> Response:
        query = query_of(request)
        chosen = query.many("status", STATUSES)
        shown, found = await self._desk.read(
            request,
            lambda connection: {
                "rows": staff.retried(connection, chosen or STATUSES, PAGE + 1),
                "metrics": staff.metrics(connection),
                "depths": staff.depths(connection),
                "successes": staff.successes(connection),
                "stuck": {line.id for line in staff.retried(connection, ["pending"], PAGE, only_stuck=True)},
            },
        )
        return render(
            request, "emails.html", shown, query=query, chosen=chosen, statuses=STATUSES, page=PAGE, **found
        )

    async def as_csv(self, request: Request) -> Response:
        mask = masked(request)
        _, rows = await self._desk.read(
            request, lambda connection: staff.retried(connection, STATUSES, tables.MOST_ROWS)
        )
        return tables.csv_of(
            "emails", staff.Retried, [replace(row, email_to=mask(row.email_to)) for row in rows]
        )

    async def send(self, request: Request) -> Response:
        """Try an abandoned email again, from its first wait on.  The engine keeps who did it."""
        delivery_id, who = id_of(request), check(request)
        await web_of(request).database.run(who, calls.requeue(delivery_id), writes=True)
        return layout.back(request, "/meals/emails", Flash("The email is tried again"))
