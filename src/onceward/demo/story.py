"""The story of the demo: a shop enqueues, a worker runs and is killed, a person mends."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Sequence
from types import FrameType
from uuid import UUID

import psycopg
from rich.console import Console
from rich.text import Text

from onceward import install
from onceward.demo.stage import Stage, short_id
from onceward.demo.tasks import (
    LANE,
    LEASE,
    app,
    charge_card,
    pack_order,
    print_label,
    send_receipt,
    sync_stock,
)
from onceward.demo.workers import Workers
from onceward.dsn import resolve_dsn
from onceward.model import FINISHED, JobInfo, JobRef
from onceward.program import program


def run() -> int:
    """Tell the story; returns the exit status.  Ends every process it started, also on Ctrl-C."""
    console = Console(highlight=False, emoji=False)
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        with contextlib.ExitStack() as stack:
            _tell(console, stack)
    except KeyboardInterrupt:
        text = "Stopped. The worker has ended, and what was left of this demo's jobs is cancelled."
        console.print(f"\n{text}", soft_wrap=True)
        return 130
    finally:
        signal.signal(signal.SIGTERM, before)
    return 0


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _tell(console: Console, stack: contextlib.ExitStack) -> None:
    with console.status("Starting PostgreSQL …") if console.is_terminal else contextlib.nullcontext():
        dsn = resolve_dsn()
        install.upgrade(dsn)
    client = stack.enter_context(app.client(dsn))
    stage = Stage(console, client)
    stage.introduce(dsn)
    # In this order: first the screen, then the worker, then what it left behind.
    stack.callback(stage.clean_up)
    workers = stack.enter_context(contextlib.closing(Workers(dsn)))
    stack.enter_context(stage.live())
    enqueue(stage, dsn)
    run_and_retry(stage, workers)
    crash(stage, workers)
    dead = dead_letter(stage)
    stage.finish()
    _look_further(console, dead, embedded=stage.embedded)


def enqueue(stage: Stage, dsn: str) -> None:
    stage.act("1  Enqueue", "A job is written in the transaction of the business row, or not at all.")
    with psycopg.connect(dsn) as shop:
        shop.execute("create temp table orders (id int primary key)")
        shop.commit()
        shop.execute("insert into orders values (1001)")
        job = stage.client.enqueue(send_receipt, {"order": 1001}, connection=shop)
        shop.commit()
        stage.fact("insert order 1001, enqueue, commit", f"one order, job …{short_id(job.id)}")
        shop.execute("insert into orders values (1002)")
        stage.client.enqueue(send_receipt, {"order": 1002}, connection=shop)
        shop.rollback()
        stage.fact("insert order 1002, enqueue, rollback", "neither order nor job")
    key = f"receipt-1003-{time.time_ns()}"
    first = stage.client.enqueue(send_receipt, {"order": 1003}, key=key)
    again = stage.client.enqueue(send_receipt, {"order": 1003}, key=key)
    same = "the same job" if again.id == first.id and not again.created else "two jobs"
    stage.fact("enqueue twice with one idempotency key", same)
    stage.look(seconds=2.0)


def run_and_retry(stage: Stage, workers: Workers) -> None:
    stage.act("2  Run and retry", "A worker is a process of its own; it runs six of these jobs at once.")
    stage.client.enqueue_many(send_receipt, [{"order": order} for order in range(1010, 1022)])
    for sku in ("mug", "lamp"):
        stage.client.enqueue(sync_stock, {"sku": sku})
    for order in (1010, 1011, 1012):
        stage.client.enqueue(print_label, {"order": order, "printer": "left"}, concurrency_key="printer left")
    stage.client.enqueue(charge_card, {"order": 1010, "card": "expired 11/24"}, priority=10)
    pid = workers.start()
    stage.fact("onceward worker onceward.demo:app", f"process {pid}")
    stage.fact("sync_stock fails twice", "it waits 1 s, then 2 s, and tries again")
    stage.fact("print_label shares a printer", "one runs, the others are blocked")
    stage.until(
        lambda jobs: all(job.state in FINISHED or job.state == "dead_letter" for job in jobs), workers
    )


def crash(stage: Stage, workers: Workers) -> None:
    stage.act("3  Crash", "A worker is killed with SIGKILL while it works. It cannot tell anybody.")
    packing = stage.client.enqueue_many(pack_order, [{"order": order} for order in range(1010, 1014)])
    stage.until(lambda jobs: _running(jobs, packing) == len(packing), workers)
    stage.look(seconds=1.0)
    pid = workers.kill()
    stage.fact(f"kill -9 {pid}", f"{len(packing)} jobs are running, and nobody runs them")
    pid = workers.start()
    stage.fact(
        f"another worker, process {pid}", f"takes them over when the lease of {LEASE.seconds} s is out"
    )
    stage.until(lambda jobs: all(job.state == "done" for job in jobs if job.task == "pack_order"), workers)
    stage.fact("each ran again", "had the killed worker woken up, its writes would have been refused")


def dead_letter(stage: Stage) -> UUID | None:
    stage.act("4  Dead letter", "charge_card gave up: the card has expired. Only a person can mend that.")
    dead = next((job for job in stage.look(seconds=2.0) if job.state == "dead_letter"), None)
    if dead is None:
        return None
    stage.client.requeue(dead.id, payload={**dead.payload, "card": "valid until 12/31"})
    stage.fact("requeue with an edited payload", "fresh attempts; the old payload is kept")
    stage.until(lambda jobs: all(job.state in FINISHED for job in jobs))
    stage.look(seconds=1.0)
    return dead.id


def _running(jobs: Sequence[JobInfo], wanted: Sequence[JobRef]) -> int:
    ids = {job.id for job in wanted}
    return sum(job.state == "running" for job in jobs if job.id in ids)


def _look_further(console: Console, dead: UUID | None, *, embedded: bool) -> None:
    console.print(Text("\nLook further", style="bold"))
    for command, meaning in (
        (f"{program()} job list --lane {LANE}", "every job, newest first"),
        (
            f"{program()} job show {dead}" if dead else "",
            "one job: attempts, errors, payloads before and after",
        ),
        (f"{program()} lane list", "what waits where"),
        (f"{program()} workers --all", "the worker that was killed, and the one that came"),
        (f"{program()} doctor", "what could lose work or slow it down"),
    ):
        if command:
            console.print(Text.assemble("  ", (command, "cyan")), soft_wrap=True)
            console.print(Text(f"      {meaning}", style="dim"), soft_wrap=True)
    kept = "PostgreSQL keeps running, and the jobs stay." if embedded else "The jobs stay in the database."
    console.print(Text(f"{kept} Next: docs/quickstart.md\n", style="dim"))
