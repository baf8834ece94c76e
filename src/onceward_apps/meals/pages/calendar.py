"""The service calendar: which days of the week are open, the exceptions, and how each day went or will go."""

from __future__ import annotations

from datetime import date, timedelta

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from onceward.errors import InvalidArgument, WrongState
from onceward.web import layout
from onceward.web.forms import Form, read_form
from onceward.web.layout import Flash
from onceward_apps.meals import staff, store
from onceward_apps.meals.messages import spoken
from onceward_apps.meals.pages.desk import Desk, render
from onceward_apps.meals.store import Connection

# Two weeks back, four ahead.
BACK, DAYS = 14, 42
NAMES = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


class Calendar:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def routes(self) -> list[BaseRoute]:
        return [
            Route("/calendar", self.show),
            Route("/calendar/week", self.set_week, methods=["POST"]),
            Route("/calendar/day", self.set_day, methods=["POST"]),
            Route("/calendar/clear", self.clear_day, methods=["POST"]),
        ]

    async def show(self, request: Request) -> Response:
        def look(connection: Connection) -> tuple[date, list[staff.ServiceDay], dict[int, bool]]:
            today = store.service_date(connection)
            first = staff.monday_of(today) - timedelta(days=BACK)
            return today, staff.service_days(connection, first, DAYS), staff.weekdays(connection)

        shown, (today, days, week) = await self._desk.read(request, look)
        return render(
            request, "calendar.html", shown, today=today, days=days, week=week, names=NAMES, spoken=spoken
        )

    async def set_week(self, request: Request) -> Response:
        form = await read_form(request)
        wanted = {number: form.checked(f"d{number}") for number in range(1, 8)}

        def change(connection: Connection) -> int:
            changed = [
                number
                for number, is_open in wanted.items()
                if store.set_service_weekday(connection, number, is_open)
            ]
            for number in changed:
                self._desk.record(
                    connection,
                    "meals.weekday_set",
                    ("weekday", NAMES[number - 1]),
                    after={"is_open": wanted[number]},
                )
            return len(changed)

        changed = await self._desk.act(request, change)
        return layout.back(
            request, "/meals/calendar", Flash("The week is set" if changed else "The week was so already")
        )

    async def set_day(self, request: Request) -> Response:
        form = await read_form(request)
        day, is_open, reason = _day(form), form.text("open") == "open", form.text("reason")[:200]

        def change(connection: Connection) -> None:
            if not store.set_service_day(connection, day, is_open, reason):
                raise WrongState(f"{spoken(day)} is over", hint="Choose today or a later day.")
            self._desk.record(
                connection,
                "meals.day_set",
                ("service_day", day),
                after={"is_open": is_open, "reason": reason},
            )

        await self._desk.act(request, change)
        said = f"{spoken(day)} is {'open' if is_open else 'closed'}"
        return layout.back(request, "/meals/calendar", Flash(said, undo=f"/meals/calendar/clear?day={day}"))

    async def clear_day(self, request: Request) -> Response:
        day = _day(await read_form(request), request.query_params.get("day", ""))

        def change(connection: Connection) -> None:
            if store.clear_service_day(connection, day):
                self._desk.record(connection, "meals.day_cleared", ("service_day", day))

        await self._desk.act(request, change)
        return layout.back(request, "/meals/calendar", Flash(f"{spoken(day)} follows the week again"))


def _day(form: Form, otherwise: str = "") -> date:
    text = form.text("day") or otherwise
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise InvalidArgument(
            f"day must be a date, got {text[:40]!r}", hint="Write it as 2026-11-26."
        ) from None
