"""Handlers that use every kind of step, for crash points.  What a step does is a row, or a line at the sink."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from onceward import Job
from tests.crash.handlers import Trouble, app, attempt, tell_sink

ROW = "insert into public.chain_effect (token, step) values (%s, %s)"
TABLES = """
create table public.chain_effect (id bigserial primary key, token text not null, step text not null);
create table public.tick_effect (id bigserial primary key, job_id uuid not null);
"""
# The steps of a chain whose effect is a row, and those whose effect is heard by the sink.
ROWS = ("written",)
HEARD = ("first", "last")
CHILDREN = 2
NAP = timedelta(milliseconds=5)
LATE = timedelta(seconds=1.5)


def event_of(token: str) -> str:
    return f"{token} may go on"


def children_of(token: str) -> list[str]:
    return [f"{token}-child-{number}" for number in range(CHILDREN)]


@app.task(name="chain")
async def chain(token: str, job: Job) -> int:
    with attempt(job, token):
        await job.step("first", _tell, job, token, "first")
        async with job.transaction("written") as connection:
            await connection.execute(ROW, [token, "written"])
        await job.sleep(NAP, "nap")
        await job.step("flaky", _fail_first, job)
        await job.wait_event(event_of(token), timedelta(days=1))
        ids = await job.spawn("spawned", child, [{"token": name} for name in children_of(token)])
        outcomes = await job.join("joined", ids)
        await job.step("last", _tell, job, token, "last")
        return sum(outcome.result for outcome in outcomes)


@app.task(name="chain_sync")
def chain_sync(token: str, job: Job) -> int:
    """The same in a thread."""
    with attempt(job, token):
        job.step("first", _tell, job, token, "first")
        with job.transaction("written") as connection:
            connection.execute(ROW, [token, "written"])
        job.sleep(NAP, "nap")
        job.step("flaky", _fail_first, job)
        job.wait_event(event_of(token), timedelta(days=1))
        ids = job.spawn("spawned", child, [{"token": name} for name in children_of(token)])
        outcomes = job.join("joined", ids)
        job.step("last", _tell, job, token, "last")
        return sum(outcome.result for outcome in outcomes)


@app.task(name="child", max_attempts=100)
async def child(token: str, job: Job) -> int:
    with attempt(job, token):
        async with job.transaction("written") as connection:
            await connection.execute(ROW, [token, "written"])
        return 1


@app.task(name="booked")
async def booked(token: str, job: Job, ms: int = 0, mode: str = "plain") -> None:
    """A row, on a connection that the worker lends."""
    with attempt(job, token):
        async with job.transaction("written") as connection:
            await connection.execute(ROW, [token, "written"])
            await asyncio.sleep(ms / 1000)


@app.task(name="starter")
async def starter(token: str, event: str, job: Job, late: bool = False) -> None:
    """Emits the event that a chain waits for, together with a row; late: when the chain already waits."""
    with attempt(job, token):
        if late:
            await job.sleep(LATE, "nap")
        async with job.transaction("written") as connection:
            await connection.execute(ROW, [token, "written"])
            await connection.execute("select onceward.emit_event(%s)", [event])


@app.task(name="ticked")
async def ticked(job: Job) -> None:
    """What a schedule enqueues."""
    async with job.transaction("written") as connection:
        await connection.execute("insert into public.tick_effect (job_id) values (%s)", [job.id])


def _tell(job: Job, token: str, step: str) -> None:
    # What the docs advise: the same in every attempt.
    tell_sink(token, step, f"{job.id}/{step}", job.epoch)


def _fail_first(job: Job) -> None:
    if job.attempt == 1:
        raise Trouble("on purpose")
