"""The application of the worker processes that the tests start."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from pathlib import Path

import psycopg

from onceward import Job, Onceward
from onceward.errors import from_database

app = Onceward()


@app.task
async def echo(text: str) -> str:
    return text


@app.task
async def hangs(job: Job) -> None:
    await job.progress("begun")
    await asyncio.Event().wait()


@app.task
def hangs_in_a_thread(job: Job) -> None:
    job.progress("begun")
    threading.Event().wait()


@app.task
def fails(secret: str) -> None:
    raise ValueError(secret)


@app.task
def writes(dsn: str, go: str, told: str, job: Job) -> None:
    """Waits for a file, then ends its job in a transaction of its own, and tells what became of that."""
    job.progress("begun")
    while not Path(go).exists():
        time.sleep(0.01)
    try:
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute("select public.effect_and_end('written', %s, %s)", [job.id, job.epoch])
        outcome = "accepted"
    except psycopg.Error as error:
        outcome = type(from_database(error)).__name__
    with Path(f"{told}-{os.getpid()}").open("a") as file:
        file.write(f"{outcome}\n")


@app.task(executor="process")
def computes(told: str, go: str) -> str:
    """Tells its process by a file, and waits for another."""
    Path(told).write_text(str(os.getpid()))
    while not Path(go).exists():
        time.sleep(0.01)
    return "done"


@app.task(executor="process", max_attempts=1)
def ends_itself(number: int) -> None:
    os.kill(os.getpid(), number)
