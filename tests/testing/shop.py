"""A small application for the tests of the testing kit."""

from __future__ import annotations

import threading
from datetime import timedelta

from onceward import Onceward, Retry

app = Onceward()


@app.task(retry=Retry(waits=[timedelta(minutes=5)]), max_attempts=2)
async def remind(invoice: int, fails: bool = False) -> str:
    if fails:
        raise ConnectionError("the mail provider does not answer")
    return f"reminded of invoice {invoice}"


@app.task(lane="slow")
def hang() -> None:
    """Until killed: what a worker does when its test kills it."""
    threading.Event().wait()
