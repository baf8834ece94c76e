"""A handler that finds the time not right puts its job off. That uses up no attempt; snoozes are counted and bounded."""

import asyncio
from datetime import timedelta

from onceward import Onceward, Retry, Snooze
from onceward.worker import Worker

app = Onceward()
looks = 0


@app.task(retry=Retry(max_snoozes=10))
async def collect_result(batch: str) -> Snooze | str:
    global looks  # noqa: PLW0603 - stands for a service that needs a while
    looks += 1
    if looks < 3:
        return Snooze(timedelta(seconds=0.1), "the lab is not ready")
    return f"batch {batch} is fine"


async def main() -> None:
    async with app.async_client() as client:
        ref = await client.enqueue(collect_result, {"batch": "B7"})
        worker = Worker(app)
        working = asyncio.create_task(worker.run())
        print(await client.wait(ref))
        worker.stop()
        await working
        job = await client.job(ref)
        print(f"{job.snoozes} snoozes, {job.attempt} attempt")
        for attempt in await client.attempts(ref):
            print(attempt.outcome, attempt.message or "")


if __name__ == "__main__":
    asyncio.run(main())

# Output:
# batch B7 is fine
# 2 snoozes, 1 attempt
# snoozed the lab is not ready
# snoozed the lab is not ready
# done
