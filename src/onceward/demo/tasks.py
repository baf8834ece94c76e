"""What the worker of the demo runs: the jobs of a shop."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from datetime import timedelta

from onceward.app import Onceward
from onceward.errors import PermanentFailure
from onceward.model import Retry
from onceward.worker.job import Job

LANE = "demo"
LEASE = timedelta(seconds=4)
# Names the process of the demo to the workers that it starts.
PARENT = "ONCEWARD_DEMO_PARENT"

app = Onceward()
one_second_then_two = Retry(waits=[timedelta(seconds=1), timedelta(seconds=2)])


@app.task(lane=LANE)
async def send_receipt(order: int) -> str:
    await asyncio.sleep(0.6 + order % 5 * 0.1)
    return f"receipt for order {order} sent"


@app.task(lane=LANE, retry=one_second_then_two)
async def sync_stock(sku: str, job: Job) -> str:
    await asyncio.sleep(0.3)
    if job.attempt < 3:
        raise ConnectionError("the warehouse does not answer")
    return f"stock of {sku} is right"


@app.task(lane=LANE)
async def print_label(order: int, printer: str) -> str:
    await asyncio.sleep(0.8)
    return f"label {order} on {printer}"


@app.task(lane=LANE)
async def pack_order(order: int) -> str:
    await asyncio.sleep(2)
    return f"order {order} packed"


@app.task(lane=LANE, max_attempts=3, retry=one_second_then_two)
async def charge_card(order: int, card: str, job: Job) -> str:
    await asyncio.sleep(0.3)
    if not card.startswith("valid"):
        if job.attempt < 2:
            raise TimeoutError("the bank does not answer")
        raise PermanentFailure("the card has expired")
    return f"order {order} paid"


def _end_with_parent(parent: int) -> None:
    """A worker of the demo ends when the demo does, however that ended."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGTERM)


if PARENT in os.environ:
    threading.Thread(target=_end_with_parent, args=(int(os.environ[PARENT]),), daemon=True).start()
