"""Customers: who they are, how their subscription and their meals stand, and what staff do for them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import date, timedelta
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from onceward.errors import WrongState
from onceward.web import layout, tables
from onceward.web.forms import read_form
from onceward.web.layout import Flash
from onceward.web.query import PAGE, query_of
from onceward_apps.kit import tokens
from onceward_apps.meals import staff, store
from onceward_apps.meals.messages import dated, spoken
from onceward_apps.meals.outside import STATUSES
from onceward_apps.meals.pages.desk import Desk, id_of, masked, render
from onceward_apps.meals.store import Connection

KNOWN = (*sorted(STATUSES), "none")
# A week back, and three ahead.
WEEKS = 4


@dataclass(frozen=True, slots=True)
class Story:
    customer: staff.CustomerLine
    today: date
    days: list[staff.CustomerDay]
    subscriptions: list[staff.Subscription]
    links: list[staff.SentLink]
    emails: list[staff.LedgerLine]


class Customers:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def routes(self) -> list[BaseRoute]:
        return [
            Route("/customers", self.listed),
            Route("/customers.csv", self.as_csv),
            Route("/customers/{id}", self.show),
            Route("/customers/{id}/skip", self.skip, methods=["POST"]),
            Route("/customers/{id}/unskip", self.unskip, methods=["POST"]),
            Route("/customers/{id}/resend", self.resend, methods=["POST"]),
            Route("/customers/{id}/code", self.open_code, methods=["POST"]),
            Route("/customers/{id}/correct", self.send_correction, methods=["POST"]),
        ]

    async def listed(self, request: Request) -> Response:
        query = query_of(request)
        part, statuses = query.text("q") or "", query.many("status", KNOWN)
        offset = _offset(query.text("from"))
        shown, (rows, counts, today) = await self._desk.read(
            request,
            lambda connection: (
                staff.customers(connection, part, statuses, PAGE + 1, offset),
                staff.customer_counts(connection, part),
                store.service_date(connection),
            ),
        )
        return render(
            request,
            "customers.html",
            shown,
            query=query,
            part=part,
            chosen=statuses,
            # Chosen ones stay, so that they can be put back.
            counts={**dict.fromkeys(statuses, 0), **counts},
            total=sum(number for status, number in counts.items() if not statuses or status in statuses),
            rows=rows[:PAGE],
            offset=offset,
            following=offset + PAGE if len(rows) > PAGE else None,
            day=spoken(today),
        )

    async def as_csv(self, request: Request) -> Response:
        mask = masked(request)
        _, rows = await self._desk.read(
            request, lambda connection: staff.customers(connection, "", [], tables.MOST_ROWS)
        )
        return tables.csv_of(
            "customers", staff.CustomerLine, [replace(row, email=mask(row.email)) for row in rows]
        )

    async def show(self, request: Request) -> Response:
        customer_id = id_of(request)

        def story(connection: Connection) -> Story | None:
            customer = staff.customer(connection, customer_id)
            if customer is None:
                return None
            today = store.service_date(connection)
            first = staff.monday_of(today) - timedelta(days=7)
            return Story(
                customer,
                today,
                staff.calendar(connection, customer_id, first, 7 * WEEKS),
                staff.subscriptions(connection, customer_id),
                staff.links(connection, customer_id),
                staff.emails(connection, customer_id),
            )

        shown, found = await self._desk.read(request, story)
        if found is None:
            raise HTTPException(404)
        return render(request, "customer.html", shown, found=found, spoken=spoken, state_of=state_of)

    # ------------------------------------------------------------ acting

    async def skip(self, request: Request) -> Response:
        customer_id, day = id_of(request), await _day(request)

        def change(connection: Connection) -> None:
            self._exists(connection, customer_id)
            if not store.skip_day(connection, customer_id, day):
                raise WrongState(
                    f"{dated(day)} cannot be skipped",
                    hint="The day is over, its code is out already, or it is more than two years ahead.",
                )
            self._record(connection, "meals.day_skipped", customer_id, after={"service_date": str(day)})

        await self._desk.act(request, change)
        return self._back(
            request,
            Flash(f"{dated(day)} is skipped", undo=f"/meals/customers/{customer_id}/unskip?day={day}"),
        )

    async def unskip(self, request: Request) -> Response:
        customer_id, day = id_of(request), await _day(request)

        def change(connection: Connection) -> None:
            if store.unskip_day(connection, customer_id, day):
                self._record(connection, "meals.day_unskipped", customer_id, after={"service_date": str(day)})

        await self._desk.act(request, change)
        return self._back(request, Flash(f"There is a meal on {dated(day)} again"))

    async def resend(self, request: Request) -> Response:
        """Today's code by email once more, because the customer says that it did not come."""
        customer_id = id_of(request)

        def change(connection: Connection) -> None:
            found = self._code(connection, customer_id)
            assert found.token is not None
            assert found.customer is not None
            # Two clicks at once count the same, and have the same key.
            again = store.email_count(connection, customer_id, "qr", found.token.issued_at)
            self._desk.meals.messages.qr(connection, found.customer, found.token, again=again)
            self._record(
                connection,
                "meals.code_resent",
                customer_id,
                after={"service_date": str(found.token.service_date)},
            )

        await self._desk.act(request, change)
        return self._back(request, Flash("The code is sent again"))

    async def open_code(self, request: Request) -> Response:
        """The customer's own page, for a customer at the counter whose phone is empty."""
        customer_id = id_of(request)

        def change(connection: Connection) -> str:
            found = self._code(connection, customer_id)
            assert found.token is not None
            self._record(
                connection,
                "meals.code_shown",
                customer_id,
                after={"service_date": str(found.token.service_date)},
            )
            return self._desk.meals.keys.sign(found.token)

        return layout.back(request, f"/today/{await self._desk.act(request, change)}")

    async def send_correction(self, request: Request) -> Response:
        customer_id = id_of(request)

        def change(connection: Connection) -> None:
            customer = self._exists(connection, customer_id)
            link = tokens.new()
            store.add_handle_update_token(connection, customer_id, link.digest)
            self._desk.meals.messages.correction(
                connection, customer, cause=link.digest.hex()[:16], correction=link.text
            )
            self._record(connection, "meals.correction_sent", customer_id)

        await self._desk.act(request, change)
        return self._back(request, Flash("A new correction link is on its way"))

    def _exists(self, connection: Connection, customer_id: Any) -> store.Customer:
        customer = store.customer(connection, customer_id)
        if customer is None:
            raise HTTPException(404)
        return customer

    def _code(self, connection: Connection, customer_id: Any) -> store.Issued:
        found = store.qr_of_customer(connection, customer_id)
        if found is None:
            raise HTTPException(404)
        if found.token is None:
            raise WrongState("there is no code today", hint="Issue the codes of today first.")
        if found.used_at is not None:
            raise WrongState("the code of today was used already")
        return found

    def _record(self, connection: Connection, kind: str, customer_id: object, **changes: Any) -> None:
        self._desk.record(connection, kind, ("customer", customer_id), **changes)

    def _back(self, request: Request, flash: Flash) -> Response:
        return layout.back(request, f"/meals/customers/{id_of(request)}", flash)


def state_of(day: staff.CustomerDay, customer: staff.CustomerLine, today: date) -> str:
    """How one day of one customer stands, in a word that the page shows."""
    if day.used_at is not None:
        return "redeemed"
    if day.issued_at is not None:
        return "issued" if day.service_date >= today else "not redeemed"
    if day.skipped:
        return "skipped"
    if not day.is_open:
        return "closed"
    if day.service_date < today or customer.status not in {"active", "trialing"}:
        return "no meal"
    return "meal"


async def _day(request: Request) -> date:
    """From the form, or from the address of an undo."""
    text = (await read_form(request)).text("day") or request.query_params.get("day", "")
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise HTTPException(400, "the day is missing") from None


def _offset(text: str | None) -> int:
    return min(int(text), 1_000_000) if text and text.isdecimal() and len(text) < 9 else 0
