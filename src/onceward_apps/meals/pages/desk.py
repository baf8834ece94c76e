"""What the pages of staff share: who may look, one transaction for reading, one for changing, and an entry in the audit log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar
from uuid import UUID

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from onceward import Onceward
from onceward.web import layout, web_of
from onceward.web.context import identity_of
from onceward.web.identity import Identity
from onceward.web.layout import Frame
from onceward_apps.meals import staff
from onceward_apps.meals.pages.serving import own
from onceward_apps.meals.store import Connection
from onceward_apps.meals.system import TENANT, Meals

T = TypeVar("T")


class Desk:
    """The way of a page to the system, in the name of who looks."""

    def __init__(self, app: Onceward, meals: Meals) -> None:
        self.app = app
        self.meals = meals
        self.client = app.async_client(tenant=TENANT)

    async def read(self, request: Request, work: Callable[[Connection], T]) -> tuple[Frame, T]:
        """The frame, and what `work` finds with the rights of staff."""
        who = self._check(request)
        async with web_of(request).database.acting(who) as db:
            shown = await layout.frame(db)

        def look() -> T:
            with staff.reading(self.meals) as connection:
                return work(connection)

        return shown, await run_in_threadpool(look)

    async def act(self, request: Request, work: Callable[[Connection], T]) -> T:
        """One transaction; whatever is recorded in it names who pressed the button."""
        who = self._check(request)

        def change() -> T:
            with self.meals.transaction() as connection:
                connection.execute("select set_config('onceward.actor', %s, true)", [who.name])
                return work(connection)

        return await run_in_threadpool(change)

    def _check(self, request: Request) -> Identity:
        self.meals.bind(web_of(request).database.dsn)
        return check(request)

    def record(self, connection: Connection, kind: str, about: tuple[str, object], **changes: Any) -> None:
        """An entry of the audit log, in the transaction of what it tells.  References, and no names or addresses."""
        self.meals.record(connection, kind, about, **changes)


def check(request: Request) -> Identity:
    """Customers of meals are nobody's business who is bound to another tenant.  Returns the identity."""
    who = identity_of(request)
    if who.tenant not in {None, TENANT}:
        raise HTTPException(404)
    return who


def render(request: Request, template: str, shown: Frame, **context: Any) -> Response:
    return layout.render(request, f"meals/{template}", shown, own=own, masked=masked(request), **context)


def masked(request: Request) -> Callable[[str | None], str]:
    """Addresses are for those who act, as everywhere in these pages."""
    acts = identity_of(request).acts

    def mask(address: str | None) -> str:
        if address is None:
            return "–"
        name, _, domain = address.rpartition("@")
        return address if acts else f"{name[:1]}…@{domain}"

    return mask


def id_of(request: Request) -> UUID:
    try:
        return UUID(request.path_params["id"])
    except ValueError:
        raise HTTPException(404) from None
