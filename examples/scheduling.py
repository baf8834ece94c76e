"""When a job runs: later, before others, or not at all when it is too late."""

import asyncio
import time
from datetime import UTC, datetime, timedelta

from onceward import Onceward
from onceward.worker import Worker

app = Onceward()


@app.task
async def announce(text: str) -> None:
    print(text)


if __name__ == "__main__":
    with app.client() as client:
        client.enqueue(announce, {"text": "second"})
        client.enqueue(announce, {"text": "first"}, priority=10)
        later = client.enqueue(announce, {"text": "third"}, delay=timedelta(hours=1))
        stale = client.enqueue(announce, {"text": "never"}, expires_in=timedelta(seconds=0.2))
        new_year = client.enqueue(
            announce, {"text": "happy new year"}, run_at=datetime(2031, 1, 1, tzinfo=UTC)
        )
        time.sleep(0.3)
        asyncio.run(Worker(app, concurrency=1).drain())
        print(client.job(later).state, client.job(new_year).state, client.job(stale).state)
        client.run_now(later)
        asyncio.run(Worker(app, concurrency=1).drain())

# Output:
# first
# second
# scheduled scheduled cancelled
# third
