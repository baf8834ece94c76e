"""The same key gives the same job, however often and from wherever it is enqueued.

The key keeps a second job from being created. It does not keep one job from running twice after a crash.
"""

import asyncio
from datetime import timedelta

from onceward import Onceward
from onceward.errors import KeyConflict
from onceward.worker import Worker

app = Onceward()


@app.task
async def daily_report(day: str) -> None:
    print(f"report of {day}")


if __name__ == "__main__":
    with app.client() as client:
        options = {"key": "2030-01-31", "key_window": timedelta(days=2)}
        first = client.enqueue(daily_report, {"day": "31 January"}, **options)
        again = client.enqueue(daily_report, {"day": "31 January"}, **options)
        print(f"same job: {first.id == again.id}, created: {first.created}, {again.created}")
        try:
            client.enqueue(daily_report, {"day": "1 February"}, **options)
        except KeyConflict as error:
            print(error.message)
        asyncio.run(Worker(app).drain())
        after = client.enqueue(daily_report, {"day": "31 January"}, **options)
        print(f"after it has finished: same job: {after.id == first.id}")

# Output:
# same job: True, created: True, False
# key "2030-01-31" of task "daily_report" is taken by a job with a different payload
# report of 31 January
# after it has finished: same job: True
