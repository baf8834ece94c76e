"""One job spawns many, gives its slot back until all have ended, and puts their results together."""

import asyncio
from datetime import timedelta

from onceward import Job, Onceward, Retry
from onceward.worker import Worker

app = Onceward()


@app.task(max_attempts=1)
async def count_words(chapter: int) -> int:
    if chapter == 13:
        raise ValueError("there is no chapter 13")
    return chapter * 100


@app.task(retry=Retry(waits=[timedelta(0)]))
async def count_book(chapters: int, job: Job) -> str:
    children = await job.spawn("chapters", count_words, [{"chapter": n} for n in range(1, chapters + 1)])
    if job.attempt == 1:
        # The children were enqueued with the checkpoint: the next attempt gets the same ones.
        raise RuntimeError("a worker died here")
    outcomes = await job.join("counted", children, on_failure="ignore")
    words = sum(outcome.result for outcome in outcomes if outcome.state == "done")
    failed = [outcome for outcome in outcomes if outcome.state != "done"]
    return f"{words} words; {len(failed)} failed: {failed[0].error['message']}"


if __name__ == "__main__":
    with app.client() as client:
        ref = client.enqueue(count_book, {"chapters": 20})
        asyncio.run(Worker(app).drain())
        print(client.wait(ref))
        # Its id is that of its first job.
        (flow,) = (flow for flow in client.workflows() if flow.id == ref.id)
        print(f"{flow.jobs} jobs, {flow.done} done, {flow.dead_letters} dead letter")

# Output:
# 19700 words; 1 failed: there is no chapter 13
# 21 jobs, 20 done, 1 dead letter
