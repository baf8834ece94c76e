"""An attempt that runs longer than its timeout has failed, and is repeated like any other failure."""

import asyncio
from datetime import timedelta

from onceward import Onceward
from onceward.worker import Worker

app = Onceward()


@app.task(timeout=timedelta(seconds=0.2), max_attempts=1)
async def ask_slow_service() -> None:
    await asyncio.sleep(60)


if __name__ == "__main__":
    with app.client() as client:
        job = client.enqueue(ask_slow_service)
        asyncio.run(Worker(app).drain())
        (attempt,) = client.attempts(job)
        print(attempt.outcome, attempt.category)
        print(attempt.message)

# Output:
# dead_letter timeout
# the handler ran longer than 0:00:00.200000
