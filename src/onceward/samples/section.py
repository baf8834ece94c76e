"""The page "Try it": a button for each thing that a first visitor wants to see."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from onceward.async_client import AsyncClient
from onceward.model import JobRef
from onceward.samples import tasks
from onceward.web import layout
from onceward.web.context import Web, identity_of, web_of
from onceward.web.layout import Flash
from onceward.web.sections import Link, Section
from onceward.workflow import Workflow


def _order() -> int:
    return 1000 + secrets.randbelow(9000)


@dataclass(frozen=True, slots=True)
class Sample:
    """One button.  `start` enqueues on the connection it is given, and returns the job to look at."""

    name: str
    title: str
    text: str
    button: str
    start: Callable[[AsyncClient, Any], Awaitable[JobRef]]


async def _receipt(client: AsyncClient, connection: Any) -> JobRef:
    return await client.enqueue(tasks.send_receipt, {"order": _order()}, connection=connection)


async def _retry(client: AsyncClient, connection: Any) -> JobRef:
    return await client.enqueue(tasks.sync_stock, {"sku": "mug"}, connection=connection)


async def _steps(client: AsyncClient, connection: Any) -> JobRef:
    return await client.enqueue(tasks.pack_order, {"order": _order()}, connection=connection)


async def _fail(client: AsyncClient, connection: Any) -> JobRef:
    payload = {"order": _order(), "card": "expired 11/24", "amount": 129.5}
    return await client.enqueue(tasks.charge_card, payload, connection=connection)


async def _burst(client: AsyncClient, connection: Any) -> JobRef:
    first = _order()
    payloads = [{"order": first + number} for number in range(100)]
    return (await client.enqueue_many(tasks.send_receipt, payloads, connection=connection))[0]


async def _workflow(client: AsyncClient, connection: Any) -> JobRef:
    order = {"order": _order()}
    flow = Workflow()
    reserved = flow.add("reserve", tasks.reserve, order)
    paid = flow.add(
        "charge", tasks.charge_card, {**order, "card": "valid 12/31", "amount": 42.0}, after=[reserved]
    )
    packed = flow.add("pack", tasks.pack_order, order, after=[reserved])
    flow.add("receipt", tasks.send_receipt, order, after=[paid])
    flow.add("thank", tasks.thank, order, after=[paid, packed])
    return JobRef((await client.enqueue_workflow(flow, connection=connection))["thank"])


async def _email(client: AsyncClient, connection: Any) -> JobRef:
    order = _order()
    sent = await client.deliveries.email(
        key=f"sample:{order}", to="Jane Doe <jane@example.com>", subject=f"Your order {order}",
        text=f"Thank you for order {order}.",
        html=f"<h1>Thank you</h1><p>Your order <b>{order}</b> is on its way.</p>", connection=connection,
    )  # fmt: skip
    return JobRef(sent.id)


SAMPLES = [
    Sample("fail", "Make it fail", "Charges a card that has expired. The job gives up and becomes a dead letter: open it, "
           "edit the payload so that the card is valid, and requeue it.", "Make it fail", _fail),
    Sample("retry", "Fail, then succeed", "The warehouse does not answer twice. The job waits three seconds, then six, and "
           "tries again.", "Sync the stock", _retry),
    Sample("steps", "Work in steps", "Three steps, each stored when it is done. Kill the worker in between, and the next one "
           "goes on where it stopped.", "Pack an order", _steps),
    Sample("workflow", "Run a workflow", "Five jobs that wait for each other, drawn as a graph.", "Place an order", _workflow),
    Sample("receipt", "Do something small", "One job, done within a second.", "Send a receipt", _receipt),
    Sample("burst", "Enqueue a hundred", "In one statement; watch the lane on the overview.", "Send 100 receipts", _burst),
    Sample("email", "Send an email", "Into the local outbox, through the ledger of deliveries.", "Send an email", _email),
]  # fmt: skip


async def show(request: Request) -> Response:
    return await layout.page(request, "samples/samples.html", samples=SAMPLES)


async def start(request: Request) -> Response:
    sample = next((sample for sample in SAMPLES if sample.name == request.path_params["name"]), None)
    if sample is None:
        raise HTTPException(404)
    client = tasks.app.async_client()
    async with web_of(request).database.acting(identity_of(request), writes=True) as db:
        job = await sample.start(client, db.connection)
    return layout.back(request, f"/jobs/{job.id}", Flash(f"{sample.title}: enqueued"))


async def fill(web: Web) -> None:
    """Something to look at from the first moment; the keys make a second start change nothing."""
    client = tasks.app.async_client()
    async with web.database.serving() as db:
        for order in range(1001, 1025):
            await client.enqueue(
                tasks.send_receipt,
                {"order": order},
                key=f"sample-{order}",
                key_window="forever",
                connection=db.connection,
            )
        await client.enqueue(
            tasks.sync_stock,
            {"sku": "lamp"},
            key="sample-stock",
            key_window="forever",
            connection=db.connection,
        )
        for order in (1003, 1007, 1011):
            payload = {"order": order, "card": "expired 11/24", "amount": 40.0 + order % 10}
            await client.enqueue(
                tasks.charge_card,
                payload,
                key=f"sample-card-{order}",
                key_window="forever",
                connection=db.connection,
            )
        await client.deliveries.email(
            key="sample:welcome", to="Jane Doe <jane@example.com>", subject="Welcome to the shop",
            text="Your first order is on its way.",
            html="<h1>Welcome</h1><p>Your first order is on its way.</p>", connection=db.connection,
        )  # fmt: skip


SECTION = Section(
    name="samples",
    title="Sample shop",
    pages=[Route("/", show), Route("/{name}", start, methods=["POST"])],
    links=[Link("/samples/", "Try it")],
    templates=Path(__file__).parent / "templates",
    samples=fill,
)
