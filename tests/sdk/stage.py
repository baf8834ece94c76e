"""The application of the worker processes that the tests start."""

from __future__ import annotations

import asyncio
import threading

from onceward import Job, Onceward

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
