"""What is seen of the demo."""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime
from uuid import UUID

import psycopg
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from onceward import calls
from onceward.client import Client
from onceward.demo.tasks import LANE, app
from onceward.demo.workers import StoryError, Workers
from onceward.errors import CannotConnect, ConnectionLost, WrongState
from onceward.model import FINISHED, JobFilter, JobInfo

# Of the live table.
MOST_ROWS = 14
STYLES = {
    "scheduled": "magenta", "ready": "cyan", "running": "bold blue", "blocked": "yellow", "done": "green",
    "cancelled": "dim", "dead_letter": "bold red", "resolved": "dim green",
}  # fmt: skip


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
        with contextlib.suppress(CannotConnect, ConnectionLost):
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
                    f"   …{short_id(job.id)}  {job.task}  attempt {attempt.attempt}  {attempt.outcome}{error}"
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
                    Text(short_id(job.id), style="dim"),
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


def short_id(job_id: UUID) -> str:
    return job_id.hex[-6:]
