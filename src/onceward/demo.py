"""`onceward demo`: a minute in the life of a shop, on a real PostgreSQL, with real worker processes.

The tasks at the top are what the worker runs; the story below enqueues, watches, kills and mends.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from types import FrameType
from typing import IO
from uuid import UUID

import psycopg
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from onceward import calls, install
from onceward.app import Onceward
from onceward.client import Client
from onceward.dsn import resolve_dsn
from onceward.errors import OncewardError, PermanentFailure, WrongState
from onceward.model import FINISHED, JobFilter, JobInfo, JobRef, Retry
from onceward.worker.job import Job

LANE = "demo"
LEASE = timedelta(seconds=4)
# Of the live table.
MOST_ROWS = 14
PARENT = "ONCEWARD_DEMO_PARENT"
STYLES = {
    "scheduled": "magenta", "ready": "cyan", "running": "bold blue", "blocked": "yellow", "done": "green",
    "cancelled": "dim", "dead_letter": "bold red", "resolved": "dim green",
}  # fmt: skip

# ---------------------------------------------------------------- what the worker runs

app = Onceward()
one_second_then_two = Retry(waits=[timedelta(seconds=1), timedelta(seconds=2)])


@app.task(lane=LANE)
async def send_receipt(order: int) -> str:
    await asyncio.sleep(0.6 + order % 5 * 0.1)
    return f"receipt for order {order} sent"


@app.task(lane=LANE, retry=one_second_then_two)
async def sync_stock(sku: str, job: Job) -> str:
    await asyncio.sleep(0.3)
    if job.attempt < 3:
        raise ConnectionError("the warehouse does not answer")
    return f"stock of {sku} is right"


@app.task(lane=LANE)
async def print_label(order: int, printer: str) -> str:
    await asyncio.sleep(0.8)
    return f"label {order} on {printer}"


@app.task(lane=LANE)
async def pack_order(order: int) -> str:
    await asyncio.sleep(2)
    return f"order {order} packed"


@app.task(lane=LANE, max_attempts=3, retry=one_second_then_two)
async def charge_card(order: int, card: str, job: Job) -> str:
    await asyncio.sleep(0.3)
    if not card.startswith("valid"):
        if job.attempt < 2:
            raise TimeoutError("the bank does not answer")
        raise PermanentFailure("the card has expired")
    return f"order {order} paid"


def _end_with_parent(parent: int) -> None:
    """A worker of the demo ends when the demo does, however that ended."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGTERM)


if PARENT in os.environ:
    threading.Thread(target=_end_with_parent, args=(int(os.environ[PARENT]),), daemon=True).start()


# ---------------------------------------------------------------- the story


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


class StoryError(OncewardError):
    """The demo did not go as planned."""


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
        stage.fact("insert order 1001, enqueue, commit", f"one order, job …{_short(job.id)}")
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
    here = Path(sys.executable).parent / "onceward"
    with contextlib.suppress(ValueError):
        here = here.relative_to(Path.cwd())
    program = "onceward" if shutil.which("onceward") else str(here)
    console.print(Text("\nLook further", style="bold"))
    for command, meaning in (
        (f"{program} job list --lane {LANE}", "every job, newest first"),
        (
            f"{program} job show {dead}" if dead else "",
            "one job: attempts, errors, payloads before and after",
        ),
        (f"{program} lane list", "what waits where"),
        (f"{program} workers --all", "the worker that was killed, and the one that came"),
        (f"{program} doctor", "what could lose work or slow it down"),
    ):
        if command:
            console.print(Text.assemble("  ", (command, "cyan")), soft_wrap=True)
            console.print(Text(f"      {meaning}", style="dim"), soft_wrap=True)
    kept = "PostgreSQL keeps running, and the jobs stay." if embedded else "The jobs stay in the database."
    console.print(Text(f"{kept} Next: docs/quickstart.md\n", style="dim"))


# ---------------------------------------------------------------- the stage


class Stage:
    """Shows this run's jobs: a live table on a terminal, one line per attempt elsewhere."""

    def __init__(self, console: Console, client: Client) -> None:
        self.client = client
        self._console = console
        self._since = client.run(calls.now())
        self._jobs: list[JobInfo] = []
        self._live: Live | None = None
        self._told: set[tuple[UUID, int]] = set()
        self._seen: dict[UUID, tuple[int, str]] = {}
        self._rescued: set[UUID] = set()
        self.embedded = False

    def introduce(self, dsn: str) -> None:
        with psycopg.connect(dsn) as connection:
            version, database = connection.info.server_version, connection.info.dbname
        self.embedded = not os.environ.get("ONCEWARD_DSN") and bool(dsn)
        server = f"PostgreSQL {version // 10000}.{version % 10000}" + (
            ", which came with the install" if self.embedded else ""
        )
        self._say(Text.assemble(("Onceward", "bold"), f' on {server}: database "{database}", lane "{LANE}"'))

    @contextlib.contextmanager
    def live(self) -> Iterator[None]:
        if not self._console.is_terminal:
            yield
            return
        with Live(console=self._console, auto_refresh=False, vertical_overflow="crop") as self._live:
            yield

    def act(self, title: str, text: str) -> None:
        self._say(Text.assemble("\n", (title, "bold"), "   ", text))

    def fact(self, what: str, answer: str) -> None:
        self._say(Text.assemble("   ", (what, "cyan"), "  →  ", answer))

    def look(self, *, seconds: float) -> list[JobInfo]:
        """Show what happens for a while."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._refresh()
            time.sleep(0.1)
        return self._jobs

    def until(
        self,
        wanted: Callable[[list[JobInfo]], bool],
        workers: Workers | None = None,
        *,
        seconds: float = 30.0,
    ) -> None:
        """Show what happens until it is as wanted."""
        end = time.monotonic() + seconds
        while True:
            self._refresh()
            if self._jobs and wanted(self._jobs):
                return
            if workers is not None:
                workers.check()
            if time.monotonic() > end:
                raise StoryError(
                    f"this took longer than {seconds:.0f} s", detail=workers.log if workers else None
                )
            time.sleep(0.1)

    def finish(self) -> None:
        self._refresh()
        if self._live is not None:
            self._live.stop()
            self._live = None
        counts = Counter(job.state for job in self._jobs)
        attempts = sum(job.epoch for job in self._jobs)
        ended = ", ".join(f"{count} {state}" for state, count in counts.items())
        took = (self.client.run(calls.now()) - self._since).total_seconds()
        text = f"{len(self._jobs)} jobs, {attempts} attempts, {ended}, in {took:.0f} s. None was lost."
        self._say(Text.assemble("\n", ("Done  ", "bold green"), text))

    def clean_up(self) -> None:
        """End what an interrupted run left; a finished one has left nothing."""
        with contextlib.suppress(psycopg.Error, OSError):
            for job in self._fetch():
                with contextlib.suppress(WrongState):
                    if job.state == "dead_letter":
                        self.client.resolve(job.id, "the demo was stopped")
                    elif job.state not in FINISHED:
                        self.client.cancel(job.id, "the demo was stopped")

    def _fetch(self) -> list[JobInfo]:
        found = self.client.jobs(JobFilter(lane=LANE, since=self._since, limit=200))
        # Another demo may be running on the same database.
        return [job for job in reversed(found) if job.task in app.tasks]

    def _refresh(self) -> None:
        self._jobs = self._fetch()
        for job in self._jobs:
            if self._seen.get(job.id) != (job.epoch, job.state):
                self._seen[job.id] = (job.epoch, job.state)
                self._tell_attempts(job)
        if self._live is not None:
            self._live.update(self._table(), refresh=True)

    def _tell_attempts(self, job: JobInfo) -> None:
        for attempt in self.client.attempts(job.id):
            if attempt.outcome == "running" or (job.id, attempt.epoch) in self._told:
                continue
            self._told.add((job.id, attempt.epoch))
            if attempt.outcome == "rescued":
                self._rescued.add(job.id)
            if self._live is None:
                error = f": {attempt.message}" if attempt.message else ""
                line = (
                    f"   …{_short(job.id)}  {job.task}  attempt {attempt.attempt}  {attempt.outcome}{error}"
                )
                self._say(Text(line))

    def _table(self) -> Table:
        now = self.client.run(calls.now())
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), expand=True)
        for title, width in (("", 6), ("STATE", 11), ("TASK", 12), ("TRY", 3)):
            table.add_column(title, width=width, no_wrap=True, header_style="dim")
        table.add_column("", ratio=1, no_wrap=True, overflow="ellipsis")
        # The ended ones make way, oldest first.
        ended = [job for job in self._jobs if job.state in FINISHED]
        too_many = len(self._jobs) - min(MOST_ROWS, max(5, self._console.height - 6))
        hidden = {job.id for job in ended[: max(0, too_many)]}
        for job in self._jobs:
            if job.id not in hidden:
                table.add_row(
                    Text(_short(job.id), style="dim"),
                    Text(job.state, style=STYLES[job.state]),
                    job.task,
                    f"{job.attempt}/{job.max_attempts}" if job.attempt else "-",
                    self._remark(job, now),
                )
        counts = Counter(job.state for job in self._jobs)
        summary = Text("   ").join(Text(f"{counts[state]} {state}", style=STYLES[state]) for state in counts)
        table.title, table.title_justify = Text.assemble("\n", summary), "left"
        table.title_style = ""
        return table

    def _remark(self, job: JobInfo, now: datetime) -> Text:
        error = (job.last_error or {}).get("message", "")
        if job.state == "done":
            again = "  (its first worker was killed)" if job.id in self._rescued else ""
            return Text(f"{job.result}{again}", style="green")
        if job.state == "scheduled":
            wait = max(0.0, (job.run_at - now).total_seconds())
            return Text(f"{error}; again in {wait:.1f} s", style="magenta")
        if job.state == "dead_letter":
            return Text(error, style="red")
        if job.state == "blocked":
            return Text(f"waits for {job.concurrency_key}", style="yellow")
        return Text(", ".join(f"{name} {value}" for name, value in job.payload.items()), style="dim")

    def _say(self, text: Text) -> None:
        # Above the table, where it stays.
        (self._live.console if self._live is not None else self._console).print(text, soft_wrap=True)


def _short(job_id: UUID) -> str:
    return job_id.hex[-6:]


# ---------------------------------------------------------------- worker processes


class Workers:
    """One worker process at a time, with its log in a file."""

    def __init__(self, dsn: str) -> None:
        self._environment = {**os.environ, PARENT: str(os.getpid()), **({"ONCEWARD_DSN": dsn} if dsn else {})}
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> int:
        arguments = ["worker", "onceward.demo:app", "--lanes", LANE, "--concurrency", "6", "--grace", "2s"]
        arguments += ["--lease", f"{LEASE.seconds}s", "--name", "demo"]
        self._process = subprocess.Popen(
            [sys.executable, "-c", "from onceward.cli.main import main; main()", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            env=self._environment,
            # The terminal's Ctrl-C reaches the demo only, which then stops the worker.
            start_new_session=True,
        )
        return self._process.pid

    def kill(self) -> int:
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        return self._process.pid

    def check(self) -> None:
        if self._process is not None and self._process.poll() is not None:
            raise StoryError(f"the worker ended with status {self._process.returncode}", detail=self.log)

    @property
    def log(self) -> str:
        self._log.seek(0)
        return self._log.read().decode(errors="replace")[-2000:].strip()

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(5)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._log.close()
