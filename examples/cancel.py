"""A waiting job is cancelled at once; a running one is asked to stop, and hears of it within two seconds."""

import asyncio
from contextlib import suppress

from onceward import Cancel, Job, Onceward
from onceward.errors import JobFailed
from onceward.worker import Worker

app = Onceward()
started = asyncio.Event()


@app.task
async def crawl(site: str, job: Job) -> None:
    started.set()
    try:
        await asyncio.sleep(60)
    finally:
        print(f"{site}: stopped, cancelled = {job.cancelled}")


@app.task
async def remind(invoice: int) -> Cancel:
    return Cancel(f"invoice {invoice} is paid")


async def main() -> None:
    async with app.async_client() as client:
        waiting = await client.enqueue(crawl, {"site": "b.example"})
        print(await client.cancel(waiting, "not needed"))
        running = await client.enqueue(crawl, {"site": "a.example"})
        reminder = await client.enqueue(remind, {"invoice": 7})
        worker = Worker(app)
        working = asyncio.create_task(worker.run())
        await started.wait()
        print(await client.cancel(running, "the site is gone"))
        with suppress(JobFailed):
            await client.wait(running)
        worker.stop()
        await working
        for ref in (waiting, running, reminder):
            job = await client.job(ref)
            print(f"{job.task}: {job.state}: {job.note}")


if __name__ == "__main__":
    asyncio.run(main())

# Output:
# cancelled
# cancelling
# a.example: stopped, cancelled = True
# crawl: cancelled: not needed
# crawl: cancelled: the site is gone
# remind: cancelled: invoice 7 is paid
