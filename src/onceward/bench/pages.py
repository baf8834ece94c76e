"""The web pages and the API beside a long history: how long each read takes, asked over HTTP, one at a time."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import httpx

from onceward.bench.children import processor_seconds
from onceward.bench.stage import Stage
from onceward.web import secrets

if TYPE_CHECKING:
    from onceward.bench.measures import Bench, Figures

HISTORY = Path(__file__).with_name("history.sql")
# Those that need no id.  Filters that match little are as important as those that match everything.
PAGES = (
    "/", "/jobs", "/jobs?state=ready", "/jobs?state=dead_letter", "/jobs?state=done", "/jobs?lane=mail&state=scheduled",
    "/jobs?task=nobody", "/jobs?error=bank", "/jobs?tenant=tenant_10", "/jobs?since=1h", "/jobs/cancel?state=ready",
    "/dead-letters", "/dead-letters?task=task_1&fingerprint=none", "/dead-letters/requeue?task=task_1", "/alerts",
    "/alerts?state=closed", "/alerts/silences", "/lanes", "/lanes/mail", "/limits", "/limits/of/openai", "/schedules",
    "/schedules/new", "/deliveries", "/deliveries?state=uncertain", "/workers", "/workers?all=1", "/monitors",
    "/monitors/of/dead_letters", "/channels", "/audit", "/audit?kind=lane.", "/audit?actor=nobody", "/retention", "/doctor",
)  # fmt: skip
READS = (
    "/jobs", "/jobs?state=ready", "/jobs?task=nobody", "/dead-letters", "/dead-letters/groups", "/lanes", "/schedules",
    "/limits", "/deliveries", "/alerts", "/audit",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Timed:
    """One address: milliseconds of each answer, rising, and of the web process' own work for one."""

    name: str
    took: list[float]
    processor: float

    def percentile(self, share: float) -> float:
        return self.took[min(len(self.took) - 1, int(share * len(self.took)))]

    def __str__(self) -> str:
        return (
            f"{self.name}: p50 {self.percentile(0.5):.0f} ms, p95 {self.percentile(0.95):.0f} ms, "
            f"own work {self.processor:.0f} ms"
        )


def pages(bench: Bench, name: str) -> Figures:
    """The slowest page by its p95, and the middle one; each address is noted."""
    with Stage.opened(bench.place, bench.system(name)) as stage:
        fill(stage, archived=bench.sizes.archived_jobs, live=bench.sizes.live_jobs)
        with served(stage) as (client, pid):
            found = [
                timed(client, path, pid, name=name, times=bench.sizes.page_reads)
                for name, path in _addresses(stage).items()
            ]
    found.sort(key=lambda each: -each.percentile(0.95))
    bench.notes.extend(str(each) for each in found)
    return {
        "web_p95": found[0].percentile(0.95),
        "web_middle": statistics.median(each.percentile(0.95) for each in found),
        "web_processor": max(each.processor for each in found),
    }


def fill(stage: Stage, *, archived: int, live: int) -> None:
    text = HISTORY.read_text(encoding="utf-8")
    stage.observer.execute(text.replace(":archived", str(archived)).replace(":live", str(live)).encode())
    while stage.query("select entries from onceward.seal() as entries"):
        pass
    stage.observer.execute("vacuum analyze")


@contextmanager
def served(stage: Stage) -> Iterator[tuple[httpx.Client, int]]:
    """The pages on a port of their own, and a signed-in client with a token."""
    link, token = secrets.new(secrets.LINK), secrets.new(secrets.TOKEN)
    run: Callable[..., object] = stage.observer.execute
    run("select onceward.add_operator('bench', 'admin', null)")
    run("select onceward.create_link('bench', %s)", [secrets.digest(link)])
    run("select onceward.create_token('bench', %s, %s)", [secrets.digest(token), ["read"]])
    child = stage.child("serve")
    try:
        address = child.ask(timeout=60)["address"]
        with httpx.Client(
            base_url=address, headers={"authorization": f"Bearer {token}"}, timeout=60
        ) as client:
            client.post("/sign-in", data={"link": link})
            yield client, child.pid
    finally:
        child.kill()


def timed(client: httpx.Client, path: str, pid: int, *, name: str, times: int) -> Timed:
    """After one that does not count: plans, templates and caches as in a process that has been running."""
    _read(client, path)
    took, before = [], processor_seconds(pid)
    for _ in range(times):
        began = time.perf_counter()
        _read(client, path)
        took.append((time.perf_counter() - began) * 1000)
    return Timed(name, sorted(took), (processor_seconds(pid) - before) * 1000 / times)


def _read(client: httpx.Client, path: str) -> None:
    answer = client.get(path)
    if answer.status_code != 200:
        raise RuntimeError(f"{path} answered {answer.status_code}")


def _addresses(stage: Stage) -> dict[str, str]:
    """What is asked, by what it is called: pages of one thing each, by the thing."""
    of_one = {
        "/jobs/(ready)": "select '/jobs/' || id from onceward.job_private where state = 'ready' limit 1",
        "/jobs/(dead letter)": "select '/jobs/' || id from onceward.job_private where state = 'dead_letter' limit 1",
        "/jobs/(blocked)": "select '/jobs/' || id from onceward.job_private where state = 'blocked' limit 1",
        "/jobs/(running)": "select '/jobs/' || id from onceward.job_private where state = 'running' limit 1",
        "/jobs/(with steps)": "select '/jobs/' || job_id from onceward.step_private limit 1",
        "/deliveries/(uncertain)": "select '/deliveries/' || id from onceward.delivery_private where state = 'uncertain' limit 1",
        "/schedules/(one)": "select '/schedules/' || id from onceward.schedule_private limit 1",
        "/alerts/(open)": "select '/alerts/' || id from onceward.alert_private where closed_at is null limit 1",
        "/audit/(last)": "select '/audit/' || max(seq) from onceward.audit_private",
    }
    plain = [*PAGES, *(f"/api/v1{path}" for path in READS), "/metrics"]
    return {path: path for path in plain} | {name: stage.query(find) for name, find in of_one.items()}
