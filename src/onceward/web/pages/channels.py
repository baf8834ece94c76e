"""Channels: whom alerts are told.  Addresses are written and never shown."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from onceward import calls
from onceward.deliveries.handler import LANE, TASK
from onceward.errors import OncewardError
from onceward.model import DELIVERY_KINDS, Json, WorkerInfo
from onceward.model_monitors import CHANNEL_ADDRESS, SEVERITIES, ChannelInfo, UnsentKind, address_rule
from onceward.web import layout, tables
from onceward.web.context import identity_of, web_of
from onceward.web.database import Acting
from onceward.web.forms import Form, read_form
from onceward.web.layout import Flash
from onceward.web.pages.monitors import PLACES


@dataclass(frozen=True, slots=True)
class Draft:
    """The form as it was filled in."""

    name: str = ""
    kind: str = "email"
    address: str = ""
    severity: str = "warning"

    @staticmethod
    def of(form: Form) -> Draft:
        return Draft(**{name: form.text(name) for name in Draft.__slots__})


async def channels(request: Request) -> Response:
    return await _page(request, Draft(), None)


async def _page(request: Request, draft: Draft, problem: tuple[str, str] | None) -> Response:
    async with web_of(request).database.acting(identity_of(request)) as db:
        shown = await layout.frame(db)
        found = await db.run(calls.channels())
        unsent = await db.run(calls.unsent_kinds())
        workers = await db.run(calls.workers())
    return layout.render(
        request, "pages/channels.html", shown, 400 if problem else 200,
        channels=found, draft=draft, problems=dict([problem]) if problem else {}, kinds=DELIVERY_KINDS, severities=SEVERITIES,
        places=PLACES, unsent=unsent, nobody_sends=bool(found) and not any(_sends(worker) for worker in workers),
    )  # fmt: skip


def _sends(worker: WorkerInfo) -> bool:
    """One that has announced no task may know any."""
    knows = TASK in worker.tasks or not worker.tasks
    return worker.state == "live" and LANE in worker.lanes and knows


async def _unsent(db: Acting, kind: str) -> UnsentKind | None:
    return next((each for each in await db.run(calls.unsent_kinds()) if each.kind == kind), None)


async def as_csv(request: Request) -> Response:
    found = await web_of(request).database.run(identity_of(request), calls.channels())
    return tables.csv_of("channels", ChannelInfo, found)


async def add(request: Request) -> Response:
    draft, who = Draft.of(await read_form(request)), identity_of(request)
    target: dict[str, Json] = (
        {CHANNEL_ADDRESS[draft.kind]: draft.address}
        if draft.address and draft.kind in CHANNEL_ADDRESS
        else {}
    )
    call = calls.add_channel(draft.name, draft.kind, target, severity=draft.severity, tenant=who.tenant)
    try:
        async with web_of(request).database.acting(who, writes=True) as db:
            new = await db.run(call)
            unsent = await _unsent(db, draft.kind)
    except OncewardError as error:
        field = error.message.split(" ", 1)[0]
        if field not in {"name", "kind", "severity"}:
            rule = address_rule(draft.kind, error.message)
            return await _page(request, draft, ("address", f"The address {rule}" if rule else error.message))
        return await _page(request, draft, (field, error.message))
    said = f"Channel {draft.name} is {'added' if new else 'changed'}"
    if unsent is not None:
        return layout.back(
            request, "/channels", Flash(f"{said}, and nobody can send: {unsent.why}", tone="trouble")
        )
    return layout.back(request, "/channels", Flash(f"{said}; try it with Test"))


async def test(request: Request) -> Response:
    """Sends a message, and shows what becomes of it."""
    name = request.path_params["name"]
    async with web_of(request).database.acting(identity_of(request), writes=True) as db:
        delivery = await db.run(calls.test_channel(name))
        kinds = {channel.name: channel.kind for channel in await db.run(calls.channels())}
        unsent = await _unsent(db, kinds.get(name, ""))
    said = (
        Flash(f"The message waits: {unsent.why}", tone="trouble")
        if unsent
        else Flash(f"A message goes through channel {name}")
    )
    return layout.back(request, f"/deliveries/{delivery}", said)


async def drop(request: Request) -> Response:
    name = request.path_params["name"]
    await web_of(request).database.run(identity_of(request), calls.drop_channel(name), writes=True)
    return layout.back(request, "/channels", Flash(f"Channel {name} is gone"))


ROUTES = [
    Route("/channels", channels),
    Route("/channels.csv", as_csv),
    Route("/channels", add, methods=["POST"]),
    Route("/channels/{name}/test", test, methods=["POST"]),
    Route("/channels/{name}/drop", drop, methods=["POST"]),
]
