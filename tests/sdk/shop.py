"""The application that the SDK tests run: one task per behaviour."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta

from pydantic import BaseModel, Field

from onceward import Cancel, Client, Job, Onceward, PermanentFailure, Retry, Snooze
from onceward.errors import RateLimited, TemporaryFailure

app = Onceward(version="test")
AT_ONCE = Retry(waits=[timedelta(0)])
IN_AN_HOUR = Retry(waits=[timedelta(hours=1)])
started = threading.Event()
seen: list[object] = []


class Order(BaseModel):
    number: int = Field(gt=0)
    note: str = ""


@app.task
async def greet(name: str, times: int = 1) -> str:
    return " ".join([f"Hello {name}"] * times)


@app.task
def greet_slowly(name: str) -> str:
    return f"Hello {name}"


@app.task(lane="orders", priority=5, max_attempts=3)
async def ship(order: Order) -> dict[str, int]:
    return {"shipped": order.number}


@app.task(retry=AT_ONCE, max_attempts=3)
async def flaky(job: Job, good_at: int) -> int:
    if job.attempt < good_at:
        raise ValueError(f"attempt {job.attempt} of {good_at}")
    return job.attempt


@app.task(retry=AT_ONCE)
def hopeless() -> None:
    raise PermanentFailure("the address does not exist", hint="Ask the customer.")


@app.task
async def later(job: Job) -> object:
    seen.append(job.attempt)
    return Snooze(timedelta(hours=1), "not yet") if len(seen) == 1 else "done"


@app.task
def unneeded() -> Cancel:
    return Cancel("nobody wants it")


@app.task
async def measured(job: Job) -> None:
    await job.progress({"percent": 50})


@app.task
def measured_in_a_thread(job: Job) -> None:
    job.progress({"percent": 70})


@app.task
async def endless(job: Job) -> None:
    started.set()
    await asyncio.Event().wait()


@app.task
def stubborn(job: Job) -> str:
    started.set()
    while not job.cancelled:
        threading.Event().wait(0.01)
    raise RuntimeError("told to stop")


@app.task(timeout=timedelta(milliseconds=50), retry=AT_ONCE, max_attempts=1)
async def too_slow() -> None:
    await asyncio.Event().wait()


@app.task(timeout=timedelta(milliseconds=50), max_attempts=1)
def too_slow_in_a_thread(job: Job) -> None:
    while not job.cancelled:
        threading.Event().wait(0.01)


@app.task
async def unspeakable() -> object:
    return {"bad": float("nan")}


@app.task
async def enormous() -> str:
    return "x" * 300_000


@app.task(retry=AT_ONCE, max_attempts=1)
async def poisoned_error() -> None:
    raise ValueError("nul \x00 and surrogate \ud800 " + "long " * 5000)


@app.task(executor="process", max_attempts=1)
def emits_in_a_process(dsn: str) -> None:
    with Client(dsn) as client:
        client.emit_event("made", {"by": "a process"})


@app.task(executor="process", max_attempts=1)
def square(n: int) -> int:
    return n * n


@app.task(executor="process", max_attempts=1)
def dies(n: int) -> None:
    import os

    os._exit(n)


@app.task(executor="process", max_attempts=1, timeout=timedelta(seconds=2))
def spins() -> None:
    while True:
        pass


class Closed(TemporaryFailure):
    """The warehouse is closed."""

    category = "closed"

    def __init__(self, until: int) -> None:
        super().__init__(f"closed until {until}", retry_after=timedelta(hours=2))


def say_no(how: str) -> None:
    raise {
        "limited": RateLimited("429", retry_after=timedelta(seconds=20)),
        "closed": Closed(9),
        "temporary": TemporaryFailure("later"),
        "card": PermanentFailure("expired", category="card"),
        "odd": TemporaryFailure("odd", category=7, retry_after="soon"),  # type: ignore[arg-type]  # slips
        "nul": TemporaryFailure("nul", category="a\x00b" * 90),
    }[how]


@app.task(retry=IN_AN_HOUR)
async def says_no(how: str) -> None:
    say_no(how)


@app.task(retry=IN_AN_HOUR)
def says_no_in_a_thread(how: str) -> None:
    say_no(how)


@app.task(retry=IN_AN_HOUR, executor="process")
def says_no_in_a_process(how: str) -> None:
    say_no(how)


@app.task(retry=AT_ONCE, max_attempts=3)
async def snoozes_badly(kind: str) -> object:
    delays: dict[str, object] = {
        "negative": timedelta(seconds=-1),
        "endless": timedelta(days=3654),
        "number": 5,
        "nan": float("nan"),
        "infinite": float("inf"),
        "nothing": None,
    }
    return Snooze(delays[kind])  # type: ignore[arg-type]  # what a slip looks like


class Unsendable:
    """What pickle refuses, in one way or another."""

    def __init__(self, how: str) -> None:
        self.how = how

    def __reduce__(self) -> object:
        if self.how == "to send":
            raise RuntimeError("not to be sent")
        return (_unreadable, ())


def _unreadable() -> None:
    raise RuntimeError("not to be read")


@app.task(executor="process", retry=AT_ONCE, max_attempts=3)
def returns_a_lock() -> object:
    return threading.Lock()


@app.task(executor="process", retry=AT_ONCE, max_attempts=3)
def returns_unsendable(how: str) -> object:
    return Unsendable(how)
