"""Handlers with steps, for the same workers as the others.  Effects of transactions are rows; those of plain steps are lines."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

from onceward import Job
from tests.crash.handlers import app, attempt, note

ROW = "insert into public.flow_effect (token, step) values (%s, %s)"
TABLES = "create table public.flow_effect (id bigserial primary key, token text not null, step text not null)"


@app.task(name="flow", max_attempts=1000)
async def flow(token: str, steps: int, children: int, job: Job) -> int:
    """Transactions, plain steps and short sleeps by turns; at the end children, of which each has one effect."""
    for number in range(steps):
        name = f"s{number}"
        if number % 2 == 0:
            async with job.transaction(name) as connection:
                await connection.execute(ROW, [token, name])
        elif number % 5 == 0:
            await job.sleep(timedelta(milliseconds=5), name)
        else:
            await job.step(name, _tell, job, token, name)
    ids = await job.spawn("spawned", leaf, [{"token": f"{token}-{n}"} for n in range(children)])
    outcomes = await job.join("joined", ids)
    return sum(outcome.result for outcome in outcomes)


@app.task(name="leaf", max_attempts=1000)
async def leaf(token: str, job: Job) -> int:
    async with job.transaction("only") as connection:
        await connection.execute(ROW, [token, "leaf"])
    return 1


@app.task(name="flow_sync", max_attempts=1000)
def flow_sync(token: str, steps: int, children: int, job: Job) -> int:
    """The same in a thread."""
    for number in range(steps):
        name = f"s{number}"
        if number % 2 == 0:
            with job.transaction(name) as connection:
                connection.execute(ROW, [token, name])
        elif number % 5 == 0:
            job.sleep(timedelta(milliseconds=5), name)
        else:
            job.step(name, _tell, job, token, name)
    ids = job.spawn("spawned", leaf, [{"token": f"{token}-{n}"} for n in range(children)])
    return sum(outcome.result for outcome in job.join("joined", ids))


def _tell(job: Job, token: str, step: str) -> None:
    note("step", token, step, job.epoch)


@app.task(name="five")
async def five(token: str, job: Job) -> None:
    """Five steps, and nothing else."""
    with attempt(job, token):
        for number in range(5):
            await job.step(f"s{number}", _nothing)


@app.task(name="waits")
async def waits(token: str, how: str, job: Job, other: str = "") -> None:
    """Waits for something that does not come."""
    with attempt(job, token):
        match how:
            case "sleep":
                await job.sleep(timedelta(days=1))
            case "event":
                await job.wait_event("never", timedelta(days=1))
            case _:
                await job.join("others", [UUID(other)])


def _nothing() -> None:
    """What a step does."""
