"""A limit that all workers share: jobs wait for room, settle what they used, and pause when the provider says so."""

import asyncio
from datetime import timedelta

from onceward import Job, Onceward
from onceward.limits import Limits, RateLimited, use
from onceward.worker import Worker

app = Onceward()
app.limit("llm", tokens=60_000, tokens_burst=1_000, per=timedelta(minutes=1))
refusals = ["429 Too Many Requests"]


@app.task(limits=[use("llm", tokens=lambda p: p.estimate)])
async def summarise(text: str, estimate: int, job: Job) -> str:
    if refusals:
        raise RateLimited(refusals.pop(), limit="llm", retry_after=timedelta(seconds=0.2))
    await job.settle("llm", tokens=len(text))
    return text[:5]


async def main() -> None:
    worker = Worker(app)
    running = asyncio.create_task(worker.run())
    async with app.async_client() as client:
        jobs = [await client.enqueue(summarise, {"text": "a long story", "estimate": 900}) for _ in range(3)]
        print([await client.wait(job) for job in jobs])
        print("attempts:", [(await client.job(job)).attempt for job in jobs])
    worker.stop()
    await running


if __name__ == "__main__":
    asyncio.run(main())
    with app.client() as client:
        (limit,) = (limit for limit in Limits(client).all() if limit.name == "llm")
        print("paused:", limit.paused_until is not None)

# Output:
# ['a lon', 'a lon', 'a lon']
# attempts: [1, 1, 1]
# paused: False
