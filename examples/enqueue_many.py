"""Many jobs of one task in one statement; with a key each, a repetition creates only what is missing."""

import asyncio

from onceward import Onceward
from onceward.worker import Worker

app = Onceward()
seen: set[int] = set()


@app.task
async def notify(user: int) -> None:
    seen.add(user)


if __name__ == "__main__":
    with app.client() as client:
        for users in (range(1_000), range(1_500)):
            refs = client.enqueue_many(
                notify, [{"user": user} for user in users], keys=[f"news-{user}" for user in users]
            )
            print(f"{len(refs)} asked for, {sum(ref.created for ref in refs)} created")
    ran = asyncio.run(Worker(app).drain())
    print(f"{ran} ran, {len(seen)} users notified")

# Output:
# 1000 asked for, 1000 created
# 1500 asked for, 500 created
# 1500 ran, 1500 users notified
