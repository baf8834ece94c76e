"""Tenants take turns: a tenant with two hundred jobs does not hold up another one's three."""

import asyncio

from onceward import Job, Onceward
from onceward.worker import Worker

app = Onceward()
order: list[str] = []


@app.task
async def resize(image: int, job: Job) -> None:
    order.append(job.tenant)


if __name__ == "__main__":
    with app.client(tenant="noisy") as client:
        client.enqueue_many(resize, [{"image": n} for n in range(200)])
    with app.client(tenant="quiet") as client:
        client.enqueue_many(resize, [{"image": n} for n in range(3)])
    asyncio.run(Worker(app, concurrency=10).drain())
    print(f"{len(order)} jobs")
    print("the quiet tenant is done within the first 20:", order[:20].count("quiet") == 3)

# Output:
# 203 jobs
# the quiet tenant is done within the first 20: True
