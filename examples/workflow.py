"""Jobs that wait for each other, enqueued as one. When one fails, a policy says what becomes of those that wait."""

import asyncio

from onceward import Onceward, PermanentFailure, Workflow
from onceward.worker import Worker

app = Onceward()
stock = 0


@app.task
async def reserve(item: str) -> None:
    print(f"reserve {item}")


@app.task
async def charge(item: str) -> None:
    print(f"charge {item}")


@app.task
async def ship(item: str) -> None:
    if stock == 0:
        raise PermanentFailure("out of stock")
    print(f"ship {item}")


@app.task
async def refund(item: str) -> None:
    print(f"refund {item}")


@app.task
async def thank(item: str) -> None:
    print(f"thanks for {item}")


def order(item: str) -> Workflow:
    flow = Workflow()
    payload = {"item": item}
    reserved = flow.add("reserve", reserve, payload)
    charged = flow.add("charge", charge, payload, after=[reserved])
    shipped = flow.add("ship", ship, payload, after=[charged])
    flow.add("thank", thank, payload, after=[shipped])
    flow.add("refund", refund, payload, after=[shipped], after_policy="compensate")
    return flow


if __name__ == "__main__":
    with app.client() as client:
        jobs = client.enqueue_workflow(order("mug"))
        flow = client.job(jobs["reserve"]).workflow_id
        asyncio.run(Worker(app).drain())
        for job in client.workflow_jobs(flow):
            print(f"  {job.node}: {job.state}")

        stock = 1
        print(f"again: {client.requeue_workflow(flow)} jobs")
        asyncio.run(Worker(app).drain())
        print(client.workflows()[0].state)

# Output:
# reserve mug
# charge mug
# refund mug
#   reserve: done
#   charge: done
#   ship: dead_letter
#   thank: cancelled
#   refund: done
# again: 2 jobs
# ship mug
# thanks for mug
# done
