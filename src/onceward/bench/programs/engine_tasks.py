"""The application whose jobs are measured: handlers that count, and do nothing else."""

from __future__ import annotations

import asyncio
import threading

from onceward import Job, Onceward
from onceward.limits import use

from .tally import Tally

STEPS = 5
app = Onceward()
# So wide that it never holds anybody back.
app.limit("wide", requests=600_000_000, burst=10_000_000)
# Of this process, from its first job on: the producer and the parent of workers import this module, too.
_tallies: list[Tally] = []
_opening = threading.Lock()


def tally() -> Tally:
    if not _tallies:
        with _opening:
            if not _tallies:
                _tallies.append(Tally())
    return _tallies[0]


@app.task
async def count(sent: int) -> None:
    tally().hit(sent)


@app.task
async def count_filled(sent: int, filling: str) -> None:
    tally().hit(sent)


@app.task
def count_in_thread(sent: int) -> None:
    tally().hit_from_thread(sent)


@app.task(limits=[use("wide")])
async def count_limited(sent: int) -> None:
    tally().hit(sent)


@app.task
async def work(sent: int) -> None:
    """As long as a call of a provider."""
    await asyncio.sleep(0.1)
    tally().hit(sent)


@app.task
async def stepped(sent: int, job: Job) -> None:
    """The same in five steps, each of which is kept."""
    for number in range(STEPS):
        await job.step(f"step {number}", _nothing)
    tally().hit(sent)


def _nothing() -> None:
    """What each step does."""


@app.task
async def hold() -> None:
    """Keeps its concurrency key until the worker is stopped."""
    await asyncio.Event().wait()
