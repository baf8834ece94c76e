"""What the sample shop does."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from onceward.app import Onceward
from onceward.deliveries import Deliveries
from onceward.errors import PermanentFailure
from onceward.model import Retry
from onceward.worker.job import Job

app = Onceward(name="onceward samples")
Deliveries(app)
SOON = Retry(waits=[timedelta(seconds=3), timedelta(seconds=6)])


@app.task(lane="mail")
async def send_receipt(order: int) -> str:
    await asyncio.sleep(0.2 + order % 7 / 10)
    return f"receipt for order {order}"


@app.task(lane="orders", retry=SOON)
async def sync_stock(sku: str, job: Job) -> dict[str, object]:
    """Fails at first: the warehouse answers the third time."""
    await asyncio.sleep(0.4)
    if job.attempt < 3:
        raise ConnectionError("the warehouse does not answer")
    return {"sku": sku, "left": 12}


@app.task(lane="orders", max_attempts=2, retry=SOON)
async def charge_card(order: int, card: str, amount: float) -> str:
    """Gives up on a card that has expired: edit the payload and requeue it."""
    await asyncio.sleep(0.5)
    if "expired" in card:
        raise PermanentFailure("the card has expired")
    return f"order {order} paid, {amount:.2f}"


async def _draw(order: int) -> dict[str, int]:
    await asyncio.sleep(1.5)
    return {"order": order, "pages": 2}


async def _print(label: dict[str, int]) -> str:
    await asyncio.sleep(2.5)
    return f"label of {label['pages']} pages"


async def _hand_over(order: int) -> str:
    await asyncio.sleep(1)
    return f"parcel {order}"


@app.task(lane="orders")
async def pack_order(order: int, job: Job) -> str:
    """Steps that are done are not run again, whatever happens to the worker."""
    label = await job.step("draw the label", _draw, order)
    await job.progress({"step": 2, "of": 3})
    printed = await job.step("print it", _print, label)
    parcel = await job.step("hand over", _hand_over, order)
    return f"{parcel} with {printed}"


@app.task(lane="orders")
async def reserve(order: int) -> str:
    await asyncio.sleep(1)
    return f"order {order} reserved"


@app.task(lane="reports")
async def thank(order: int) -> str:
    await asyncio.sleep(0.3)
    return f"thanks for order {order}"


@app.schedule(timedelta(seconds=15), name="pulse", missed="none", overlap="skip")
@app.task(lane="reports")
async def count_orders() -> dict[str, int]:
    """So that something happens by itself."""
    await asyncio.sleep(0.6)
    return {"orders": 42}


@app.schedule("0 7 * * mon-fri", zone="Europe/Lisbon", name="daily-report")
@app.task(lane="reports")
async def daily_report(kind: str = "short") -> str:
    await asyncio.sleep(1)
    return f"{kind} report"
