"""The service calendar: which days of the week are open, the exceptions, and how each day went or will go."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from onceward.errors import InvalidArgument, WrongState
from onceward.web import layout
from onceward.web.forms import Form, read_form
from onceward.web.layout import Flash
from onceward_apps.meals import staff, store
from onceward_apps.meals.messages import dated
from onceward_apps.meals.pages.desk import Desk, render
from onceward_apps.meals.store import Connection

# Two weeks back, four ahead.
BACK, DAYS = 14, 42
# As in the table.
MOST_REASON = 200
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
        def look(connection: Connection) -> dict[str, Any]:
            today = store.service_date(connection)
            first = staff.monday_of(today) - timedelta(days=BACK)
            return {
                "today": today,
                "last": store.last_planned_day(connection),
                "days": staff.service_days(connection, first, DAYS),
                "week": staff.weekdays(connection),
            }

        shown, found = await self._desk.read(request, look)
        return render(request, "calendar.html", shown, **found, names=NAMES, most_reason=MOST_REASON)

    async def set_week(self, request: Request) -> Response:
        form = await read_form(request)
        wanted = {number: form.checked(f"d{number}") for number in range(1, 8)}
        if not any(wanted.values()):
            raise InvalidArgument(
                "a week needs a day on which we cook",
                hint="Nobody would get a code any more.  To close for some days, set each of them under One day differs.",
            )

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
        day, is_open, reason = _day(form), _is_open(form), _reason(form)

        def change(connection: Connection) -> None:
            if not store.set_service_day(connection, day, is_open, reason):
                first, last = store.service_date(connection), store.last_planned_day(connection)
                raise WrongState(
                    f"{dated(day)} is {'over' if day < first else 'too far ahead'}",
                    hint=f"Choose a day from today to {dated(last)}.",
                )
            self._desk.record(
                connection,
                "meals.day_set",
                ("service_day", day),
                after={"is_open": is_open, "reason": reason},
            )

        await self._desk.act(request, change)
        said = f"{dated(day)} is {'open' if is_open else 'closed'}"
        return layout.back(request, "/meals/calendar", Flash(said, undo=f"/meals/calendar/clear?day={day}"))

    async def clear_day(self, request: Request) -> Response:
        day = _day(await read_form(request), request.query_params.get("day", ""))

        def change(connection: Connection) -> None:
            if store.clear_service_day(connection, day):
                self._desk.record(connection, "meals.day_cleared", ("service_day", day))

        await self._desk.act(request, change)
        return layout.back(request, "/meals/calendar", Flash(f"{dated(day)} follows the week again"))


def _is_open(form: Form) -> bool:
    text = form.text("open")
    if text not in {"open", "closed"}:
        raise InvalidArgument(f"open must be open or closed, got {text[:40]!r}")
    return text == "open"


def _reason(form: Form) -> str:
    text = form.text("reason")
    if len(text) > MOST_REASON:
        raise InvalidArgument(f"reason must be at most {MOST_REASON} characters, got {len(text)}")
    return text


def _day(form: Form, otherwise: str = "") -> date:
    text = form.text("day") or otherwise
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise InvalidArgument(
            f"day must be a date, got {text[:40]!r}", hint="Write it as 2026-11-26."
        ) from None
