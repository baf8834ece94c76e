"""A check of your own, an alert that is told once, and one that closes itself; how long data is kept."""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path

from onceward import Client, Onceward, calls
from onceward.deliveries import Deliveries, Outbox
from onceward.monitors import Finding
from onceward.worker import Worker

app = Onceward()
Deliveries(app, email=Outbox(Path(tempfile.mkdtemp()), sender="Shop <shop@example.com>"))
stock = {"tea": 2, "coffee": 40}


@app.monitor("low_stock", every="1 second")
async def low_stock(least: int = 5) -> list[Finding]:
    """Articles that are about to be sold out."""
    return [
        Finding(name, f"only {count} of {name} left", value=count)
        for name, count in stock.items()
        if count < least
    ]


def wait_for(client: Client, count: int) -> None:
    """Until our monitor has this many open alerts."""
    while len(client.run(calls.alerts(monitor="low_stock"))) != count:
        time.sleep(0.05)


async def main() -> None:
    with Client(app=app) as client:
        client.run(calls.add_channel("ops", "email", {"to": "ops@example.com"}))
        worker = Worker(app)
        working = asyncio.create_task(worker.run())
        await asyncio.to_thread(wait_for, client, 1)
        (alert,) = client.run(calls.alerts(monitor="low_stock"))
        print(f"{alert.severity}: {alert.summary}")
        client.run(calls.ack_alert(alert.id, "ordered more"))

        stock["tea"] = 100
        await asyncio.to_thread(wait_for, client, 0)
        closed = client.run(calls.alert(alert.id))
        assert closed is not None
        print(f"{closed.state} by {closed.closed_by}: {closed.close_note}")

        # An operator wants to hear of it earlier.
        client.run(calls.set_monitor("low_stock", thresholds={"least": 50}))
        await asyncio.to_thread(wait_for, client, 1)
        (alert,) = client.run(calls.alerts(monitor="low_stock"))
        print(f"{alert.severity}: {alert.summary}")
        worker.stop()
        await working

        for kind in ("archive", "contents"):
            (would_go,) = client.run(calls.retain(kind, dry_run=True))
            print(f"{kind}: {would_go.row_count} rows are past their time")


if __name__ == "__main__":
    asyncio.run(main())

# Output:
# warning: only 2 of tea left
# closed by onceward: the check passes
# warning: only 40 of coffee left
# archive: 0 rows are past their time
# contents: 0 rows are past their time
