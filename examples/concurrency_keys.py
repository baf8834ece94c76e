"""At most N jobs with the same concurrency key run at once, across all workers; the others are blocked."""

import asyncio
from collections import Counter

from onceward import Onceward
from onceward.worker import Worker

app = Onceward()
at_once: Counter[str] = Counter()
most: Counter[str] = Counter()


@app.task
async def sync_account(account: str) -> None:
    at_once[account] += 1
    most[account] = max(most[account], at_once[account])
    await asyncio.sleep(0.02)
    at_once[account] -= 1


if __name__ == "__main__":
    with app.client() as client:
        for account, limit in (("acme", 1), ("globex", 3)):
            for _ in range(6):
                client.enqueue(
                    sync_account, {"account": account}, concurrency_key=account, concurrency_limit=limit
                )
    print(f"{asyncio.run(Worker(app).drain())} jobs")
    print(f"most at once: acme {most['acme']}, globex {most['globex']}")

# Output:
# 12 jobs
# most at once: acme 1, globex 3
