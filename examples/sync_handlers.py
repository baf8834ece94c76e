"""Plain functions run in threads. They cannot be interrupted, so a long one looks at `job.cancelled` now and then."""

import asyncio
import threading
import time

from onceward import Job, Onceward
from onceward.worker import Worker

app = Onceward()


@app.task
def resize(image: str, job: Job) -> str:
    for step in range(1, 4):
        if job.cancelled:
            return f"{image} left at step {step}"
        job.progress({"step": step})
        time.sleep(0.01)
    in_thread = threading.current_thread() is not threading.main_thread()
    return f"{image} resized, in a thread: {in_thread}"


if __name__ == "__main__":
    with app.client() as client:
        jobs = [client.enqueue(resize, {"image": name}) for name in ("a.png", "b.png")]
        asyncio.run(Worker(app, concurrency=8).drain())
        for job in jobs:
            print(client.wait(job))

# Output:
# a.png resized, in a thread: True
# b.png resized, in a thread: True
