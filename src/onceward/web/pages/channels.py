"""Channels: whom alerts are told.  Addresses are written and never shown."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from onceward import calls
from onceward.errors import OncewardError
from onceward.model import DELIVERY_KINDS, Json
from onceward.model_monitors import SEVERITIES, ChannelInfo
from onceward.web import layout, tables
from onceward.web.context import identity_of, web_of
from onceward.web.forms import Form, read_form
from onceward.web.layout import Flash
from onceward.web.pages.monitors import PLACES

_ADDRESS = {"email": "to", "slack": "to", "telegram": "chat_id", "webhook": "url"}


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
    return layout.render(
        request, "pages/channels.html", shown, 400 if problem else 200,
        channels=found, draft=draft, problems=dict([problem]) if problem else {}, kinds=DELIVERY_KINDS, severities=SEVERITIES,
        places=PLACES,
    )  # fmt: skip


async def as_csv(request: Request) -> Response:
    found = await web_of(request).database.run(identity_of(request), calls.channels())
    return tables.csv_of("channels", ChannelInfo, found)


async def add(request: Request) -> Response:
    draft, who = Draft.of(await read_form(request)), identity_of(request)
    target: dict[str, Json] = (
        {_ADDRESS[draft.kind]: draft.address} if draft.address and draft.kind in _ADDRESS else {}
    )
    call = calls.add_channel(draft.name, draft.kind, target, severity=draft.severity, tenant=who.tenant)
    try:
        new = await web_of(request).database.run(who, call, writes=True)
    except OncewardError as error:
        field = error.message.split(" ", 1)[0]
        return await _page(
            request, draft, (field if field in {"name", "kind", "severity"} else "address", error.message)
        )
    said = f"Channel {draft.name} is {'added' if new else 'changed'}; try it with Test"
    return layout.back(request, "/channels", Flash(said))


async def test(request: Request) -> Response:
    """Sends a message, and shows what becomes of it."""
    name = request.path_params["name"]
    delivery = await web_of(request).database.run(identity_of(request), calls.test_channel(name), writes=True)
    return layout.back(request, f"/deliveries/{delivery}", Flash(f"A message goes through channel {name}"))


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
