"""`wait` returns the job's result, or says why there is none. Giving up waiting does not stop the job."""

import asyncio
from datetime import timedelta

from onceward import Onceward, PermanentFailure
from onceward.errors import JobFailed, WaitTimeout
from onceward.worker import Worker

app = Onceward()


@app.task
async def divide(a: int, b: int) -> float:
    if b == 0:
        raise PermanentFailure("cannot divide by zero")
    return a / b


async def main() -> None:
    async with app.async_client() as client:
        job = await client.enqueue(divide, {"a": 7, "b": 2})
        try:
            await client.wait(job, timeout=timedelta(seconds=0.1))
        except WaitTimeout as error:
            print(error.detail)
        bad = await client.enqueue(divide, {"a": 1, "b": 0})
        await Worker(app).drain()
        print(await client.wait(job))
        try:
            await client.wait(bad)
        except JobFailed as error:
            print(error.message.replace(str(bad.id), "…"))


if __name__ == "__main__":
    asyncio.run(main())

# Output:
# The job goes on; only the waiting ended.
# 3.5
# job … ended as dead_letter: cannot divide by zero
