"""A handler stores how far it is; anybody can read it. Storing fails with LeaseLost when another attempt owns the job."""

import asyncio

from onceward import Job, Onceward
from onceward.worker import Worker

app = Onceward()


@app.task
async def reindex(pages: int, job: Job) -> str:
    async with app.async_client() as client:
        for page in range(1, pages + 1):
            await job.progress({"page": page, "of": pages})
            seen = (await client.job(job.id)).progress
            print(f"page {seen['page']} of {seen['of']}")
    return "indexed"


if __name__ == "__main__":
    with app.client() as client:
        job = client.enqueue(reindex, {"pages": 3})
        asyncio.run(Worker(app).drain())
        print(client.job(job).result)

# Output:
# page 1 of 3
# page 2 of 3
# page 3 of 3
# indexed
