"""A job that sleeps or waits for an event gives its slot back; a worker with one slot runs others meanwhile."""

import asyncio
from datetime import timedelta

from onceward import Job, Onceward
from onceward.errors import EventTimeout
from onceward.worker import Worker

app = Onceward()


@app.task
async def ship(order: int, job: Job) -> str:
    paid = await job.wait_event(f"order {order} paid")
    await job.sleep(timedelta(milliseconds=50), "cooling off")
    return f"order {order}: shipped, paid by {paid['by']}"


@app.task
async def remind(order: int, job: Job) -> str:
    try:
        await job.wait_event(f"order {order} paid", timeout=timedelta(milliseconds=50))
    except EventTimeout:
        return f"order {order}: reminded"
    return f"order {order}: paid"


async def main() -> None:
    async with app.async_client() as client:
        shipped = await client.enqueue(ship, {"order": 7})
        reminded = await client.enqueue(remind, {"order": 8})
        worker = Worker(app, concurrency=1)
        working = asyncio.create_task(worker.run())
        print(await client.wait(reminded))
        job = await client.job(shipped)
        print(f"order 7: {job.state}, awaits {job.awaits}")
        print(await client.emit_event("order 7 paid", {"by": "Ada"}))
        # The first one stays.
        print(await client.emit_event("order 7 paid", {"by": "Bob"}))
        print(await client.wait(shipped))
        worker.stop()
        await working
        print(f"{(await client.job(shipped)).attempt} attempt")


if __name__ == "__main__":
    asyncio.run(main())

# Output:
# order 8: reminded
# order 7: scheduled, awaits event:order 7 paid
# True
# False
# order 7: shipped, paid by Ada
# 1 attempt
