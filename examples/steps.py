"""A step that is done is not run again: the second attempt goes on where the first one failed."""

import asyncio
from datetime import timedelta

from pydantic import BaseModel

from onceward import Job, Onceward, Retry
from onceward.worker import Worker

app = Onceward()
calls = 0


class Label(BaseModel):
    batch: str
    pages: int


async def draw_label(batch: str) -> Label:
    print("draw")
    return Label(batch=batch, pages=2)


async def print_label(label: Label) -> str:
    global calls  # noqa: PLW0603 - stands for a printer
    calls += 1
    if calls < 3:
        raise ConnectionError("the printer does not answer")
    print(f"print {label.pages} pages")
    return "tray 1"


@app.task(retry=Retry(waits=[timedelta(0)]))
async def make_label(batch: str, job: Job) -> str:
    # The second attempt gets what was kept, as the type that the function returns.
    label = await job.step("drawn", draw_label, batch)
    # Two tries within one attempt: a short trouble uses up no attempt.
    tray = await job.step("printed", print_label, label, tries=2, waits=[0.01], on=(ConnectionError,))
    return f"{label.batch} in {tray}"


if __name__ == "__main__":
    with app.client() as client:
        ref = client.enqueue(make_label, {"batch": "B7"})
        asyncio.run(Worker(app).drain())
        print(client.wait(ref))
        print(f"{client.job(ref).attempt} attempts")
        for step in client.steps(ref):
            print(f"{step.name}: {step.state}, tries: {step.tries}")

# Output:
# draw
# print 2 pages
# B7 in tray 1
# 2 attempts
# drawn: done, tries: 1
# printed: done, tries: 3
