"""A failed attempt is repeated by the job's policy; when the attempts are used up, a person decides.

An attempt that failed half-way runs again from its beginning: what it did before it failed, it does again.
"""

import asyncio
from datetime import timedelta

from onceward import Job, Onceward, PermanentFailure, Retry
from onceward.model import JobFilter
from onceward.worker import Worker

app = Onceward()


@app.task(retry=Retry(waits=[timedelta(seconds=0.1), timedelta(seconds=0.2)]))
async def import_file(path: str, job: Job) -> None:
    if job.attempt < 3:
        raise ConnectionError("the store does not answer")
    print(f"{path} imported at attempt {job.attempt}")


@app.task
async def charge(card: str) -> str:
    if card == "expired":
        raise PermanentFailure("the card has expired")
    print(f"charged the {card} card")
    return "paid"


async def main() -> None:
    async with app.async_client() as client:
        imported = await client.enqueue(import_file, {"path": "a.csv"})
        charged = await client.enqueue(charge, {"card": "expired"})
        worker = Worker(app)
        working = asyncio.create_task(worker.run())
        await client.wait(imported)
        worker.stop()
        await working
        for attempt in await client.attempts(imported):
            print(f"attempt {attempt.attempt}: {attempt.outcome}")

        (dead,) = await client.jobs(JobFilter(states=["dead_letter"], task="charge"))
        print(f"{dead.task}: {dead.last_error['type']}: {dead.last_error['message']}")
        await client.requeue(charged, payload={"card": "new"})
        await Worker(app).drain()
        print((await client.job(charged)).result)


if __name__ == "__main__":
    asyncio.run(main())

# Output:
# a.csv imported at attempt 3
# attempt 1: failed
# attempt 2: failed
# attempt 3: done
# charge: PermanentFailure: the card has expired
# charged the new card
# paid
