"""Why is this job not running?  The answer, what it would meet next, and what to do; and a whole lane in one line."""

import asyncio
from datetime import timedelta

from onceward import Job, Onceward
from onceward.worker import Worker

app = Onceward()


@app.task
async def ship(order: int, job: Job) -> str:
    await job.wait_event(f"payment of order {order}")
    return "shipped"


async def main() -> None:
    async with app.async_client() as client:
        order = await client.enqueue(ship, {"order": 7})
        label = await client.enqueue(ship, {"order": 7}, after=[order])
        await tell(client, order)

        await Worker(app).drain()
        await tell(client, order)
        await tell(client, label)

        await client.emit_event("payment of order 7")
        await Worker(app).drain()
        print((await client.explain(order))[0].reason)

        await client.pause_lane("default", "stocktaking")
        await client.enqueue(ship, {"order": 8}, delay=timedelta(days=1))
        (lane,) = await client.explain_lane("default")
        print(lane.reason, lane.detail["ready"])
        await client.resume_lane("default")


async def tell(client, job) -> None:
    answer = (await client.explain(job))[0]
    # The rest of the sentence names a job, or when a worker was last heard of.
    print(f"{answer.reason}: {answer.sentence.partition(', the ')[0].rstrip('.')}")


if __name__ == "__main__":
    asyncio.run(main())

# Output:
# no_worker: No live worker serves lane "default"
# waits_for_event: Waits for event "payment of order 7"
# waits_for_jobs: Waits for 1 job
# done
# lane_paused 0
