"""The application whose jobs are measured: handlers that count, and do nothing else."""

from __future__ import annotations

import asyncio

from onceward import Onceward

from .tally import Tally

app = Onceward()
_tally: Tally | None = None


def tally() -> Tally:
    # Made at the first job: the producer imports this module, too.
    global _tally  # noqa: PLW0603 - one per process
    if _tally is None:
        _tally = Tally()
    return _tally


@app.task
async def count(sent: int) -> None:
    tally().hit(sent)


@app.task
async def count_filled(sent: int, filling: str) -> None:
    tally().hit(sent)


@app.task
def count_in_thread(sent: int) -> None:
    tally().hit_from_thread(sent)


@app.task
async def hold() -> None:
    """Keeps its concurrency key until the worker is stopped."""
    await asyncio.Event().wait()
