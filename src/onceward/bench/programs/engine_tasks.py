"""The application whose jobs are measured: handlers that count, and do nothing else."""

from __future__ import annotations

import asyncio

from onceward import Job, Onceward
from onceward.limits import use

from .tally import Tally

STEPS = 5
app = Onceward()
# So wide that it never holds anybody back.
app.limit("wide", requests=600_000_000, burst=10_000_000)
# Filled by the worker process before it starts; the producer imports this module, too.
tallies: list[Tally] = []


@app.task
async def count(sent: int) -> None:
    tallies[0].hit(sent)


@app.task
async def count_filled(sent: int, filling: str) -> None:
    tallies[0].hit(sent)


@app.task
def count_in_thread(sent: int) -> None:
    tallies[0].hit_from_thread(sent)


@app.task(limits=[use("wide")])
async def count_limited(sent: int) -> None:
    tallies[0].hit(sent)


@app.task
async def work(sent: int) -> None:
    """As long as a call of a provider."""
    await asyncio.sleep(0.1)
    tallies[0].hit(sent)


@app.task
async def stepped(sent: int, job: Job) -> None:
    """The same in five steps, each of which is kept."""
    for number in range(STEPS):
        await job.step(f"step {number}", _nothing)
    tallies[0].hit(sent)


def _nothing() -> None:
    """What each step does."""


@app.task
async def hold() -> None:
    """Keeps its concurrency key until the worker is stopped."""
    await asyncio.Event().wait()
