"""Schedules: run a task again and again, by cron, by local time, or by an interval.

Each worker writes what the code declares into the database, and fires what is due: ten workers fire each moment once.
"""

import asyncio
from datetime import UTC, datetime, timedelta

from onceward import Job, Onceward
from onceward.schedules import Schedules
from onceward.worker import Worker

app = Onceward(name="examples")


@app.schedule("0 7 * * mon-fri", zone="America/Los_Angeles", missed="latest", overlap="skip")
@app.task
async def report(kind: str = "short") -> None:
    print(f"{kind} report")


# No `missed`: when the worker is late, the last moment counts.
@app.schedule(timedelta(seconds=1), name="pulse")
@app.task
async def pulse(job: Job) -> None:
    print(f"fired for a slot of schedule {job.headers['schedule']}")
    worker.stop()


if __name__ == "__main__":
    # Until the second is full and the schedule has fired.
    worker = Worker(app)
    asyncio.run(worker.run())
    with app.client() as client:
        schedules = Schedules(client)
        schedules.drop("pulse")
        for tick in schedules.next_ticks(
            "30 2 * * *", "America/Los_Angeles", after=datetime(2026, 3, 7, tzinfo=UTC), count=3
        ):
            print(tick.slot, "at", tick.fire_at.astimezone(UTC).strftime("%d %B %H:%M UTC"))
        # One that a person makes, beside those of the code.
        change = schedules.add(
            report, "09:00", name="long-report", zone="Asia/Tokyo", payload={"kind": "long"}
        )
        reports = [schedule.name for schedule in schedules.all() if schedule.task == report.name]
        print(change.outcome, reports)
        schedules.run_now("long-report")
    asyncio.run(Worker(app).drain())

# Output:
# fired for a slot of schedule pulse
# 2026-03-07T02:30:00 at 07 March 10:30 UTC
# 2026-03-08T02:30:00 at 08 March 10:00 UTC
# 2026-03-09T02:30:00 at 09 March 09:30 UTC
# created ['long-report', 'report']
# long report
