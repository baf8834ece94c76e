"""What a worker does on its links is done in turn: for handlers, to finish and claim, to keep the lanes moving."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from onceward import Client, Job, Onceward
from tests.sdk.test_relay import working as relayed_working
from tests.sdk.test_worker import until, working


@pytest.mark.parametrize("kind", [working, relayed_working])
def test_handlers_that_never_stop_calling_hold_up_neither_claims_nor_what_is_due(onceward_database, kind):
    """Links are used in turn: for them, for exchanges, and to make jobs ready whose time has come."""
    app = Onceward()
    over = asyncio.Event()

    @app.task
    async def talks(job: Job) -> None:
        while not over.is_set():
            await job.progress("still here")

    @app.task
    async def ends() -> None:
        over.set()

    async def main():
        with Client(onceward_database, app=app) as client:
            talking = client.enqueue_many(talks, [{}] * 5)
            async with kind(onceward_database, app):
                await until(lambda: all(client.job(job).progress for job in talking))
                later = client.enqueue(ends, delay=timedelta(seconds=0.5))
                await until(lambda: client.job(later).state == "done")
                await until(lambda: all(client.job(job).state == "done" for job in talking))

    asyncio.run(main())


@pytest.mark.parametrize("kind", [working, relayed_working])
def test_a_backlog_does_not_keep_a_job_whose_time_has_come_from_being_made_ready(onceward_database, kind):
    app = Onceward()
    seen = []

    @app.task
    async def one_of_many() -> None:
        seen.append("many")

    @app.task(lane="timely")
    async def due() -> None:
        seen.append("due")

    async def main():
        with Client(onceward_database, app=app) as client:
            client.enqueue(due, delay=timedelta(milliseconds=1))
            jobs = client.enqueue_many(one_of_many, [{}] * 10_000)
            async with kind(onceward_database, app):
                await until(lambda: client.job(jobs[-1]).state == "done")

    asyncio.run(main())
    assert "many" in seen[seen.index("due") :]
