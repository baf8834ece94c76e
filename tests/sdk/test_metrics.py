"""What a worker tells whoever scrapes it: real processes, over HTTP, read by Prometheus's own parser."""

from __future__ import annotations

import asyncio
import signal
import socket
import urllib.request
from collections import defaultdict
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from prometheus_client.parser import text_string_to_metric_families

from onceward import Client, Onceward
from onceward.metrics import BY_NAME, METRICS, exposition
from onceward.model import Sample
from onceward.worker import Worker
from onceward.worker.exposition import Exposition
from onceward.worker.tally import MOST_PAIRS, OTHER, Spread, Tally, outcome_of
from tests.sdk import shop
from tests.sdk.children import log_line, process, until


class Page:
    """A page, by name and labels."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.families = {family.name: family for family in text_string_to_metric_families(text)}
        self.samples: dict[tuple[str, frozenset], float] = {}
        for family in self.families.values():
            for sample in family.samples:
                key = (sample.name, frozenset(sample.labels.items()))
                assert key not in self.samples, f"{key} comes twice"
                self.samples[key] = sample.value

    def value(self, name: str, **labels: str) -> float | None:
        return self.samples.get((name, frozenset(labels.items())))

    def total(self, name: str, **labels: str) -> float:
        return sum(
            v for (n, found), v in self.samples.items() if n == name and labels.items() <= dict(found).items()
        )


def scrape(port: int) -> Page:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        return Page(answer.read().decode())


def free_ports(count: int) -> int:
    """The first of so many ports in a row that nobody listens on."""
    while True:
        with socket.socket() as first:
            first.bind(("127.0.0.1", 0))
            port = first.getsockname()[1]
        try:
            others = [socket.create_server(("127.0.0.1", port + n)) for n in range(count)]
        except OSError:
            continue
        for other in others:
            other.close()
        return port


@pytest.fixture
def client(onceward_database):
    shop.seen.clear()
    with Client(onceward_database, app=shop.app) as client:
        yield client


@pytest.mark.slow
def test_a_scrape_tells_what_the_process_did_and_what_the_database_holds(onceward_database, client):
    for name in ("Ada", "Grace", "Linus"):
        client.enqueue(shop.greet, {"name": name})
    client.enqueue(shop.greet_slowly, {"name": "Ada"})
    client.enqueue(shop.flaky, {"good_at": 2})
    dead = client.enqueue(shop.hopeless)
    snoozed = client.enqueue(shop.later)
    client.enqueue(shop.unneeded)
    with Client(onceward_database) as stranger:
        stranger.enqueue("nobody.knows.this", lane="orders")
    later = client.enqueue(shop.greet, {"name": "x"}, run_at=datetime.now(UTC) + timedelta(hours=1))
    with process(onceward_database, target="tests.sdk.shop:app", health_port=0) as child:
        port = log_line(child, "health_port_open")["port"]
        log_line(child, "worker_started")

        def everything_is_over():
            ended = scrape(port).total("onceward_attempts_ended_total")
            return ended == 10

        until(everything_is_over)
        page = scrape(port)

    def ended(task: str, outcome: str) -> float | None:
        return page.value("onceward_attempts_ended_total", lane="default", task=task, outcome=outcome)

    assert ended("greet", "done") == 3
    assert ended("greet_slowly", "done") == 1
    assert (ended("flaky", "retried"), ended("flaky", "done")) == (1, 1)
    assert ended("hopeless", "dead_letter") == 1
    assert ended("later", "snoozed") == 1
    assert ended("unneeded", "cancelled") == 1
    assert page.value("onceward_attempts_ended_total", lane="orders", task=OTHER, outcome="snoozed") == 1
    assert page.total("onceward_attempts_started_total") == 10
    assert page.value("onceward_attempt_seconds_count", lane="default", task="greet") == 3
    assert page.value("onceward_attempt_seconds_bucket", lane="default", task="greet", le="+Inf") == 3
    assert page.total("onceward_exchange_seconds_count") > 0
    assert page.value("onceward_worker_ready") == 1
    assert page.value("onceward_heartbeat_failures_total") == 0
    assert page.value("onceward_handler_slots") == 50
    assert page.value("onceward_database_up") == 1
    assert page.value("onceward_workers", state="live") == 1
    # Asked for at most every few seconds, so these may be from before the end.
    assert page.value("onceward_lane_workers", lane="default") == 1
    assert {"dead_letter", "ready", "running", "scheduled", "blocked"} == {
        dict(labels)["state"] for (name, labels) in page.samples if name == "onceward_jobs"
    }
    # No name of a task that only a producer knows, no id, no payload.
    assert "nobody" not in page.text
    assert not any(str(job.id) in page.text for job in (dead, snoozed, later))
    assert "Grace" not in page.text


def test_no_connection_stays_open_between_two_scrapes(onceward_database):
    async def main():
        page = Exposition(Worker(shop.app, dsn=onceward_database))
        assert Page((await page.page()).decode()).value("onceward_database_up") == 1
        with psycopg.connect(onceward_database, autocommit=True) as other:
            kept = "select from pg_stat_activity where application_name = 'onceward metrics' and datname = current_database()"
            until(lambda: other.execute(kept).fetchone() is None)

    asyncio.run(main())


@pytest.mark.slow
def test_the_sums_over_all_processes_are_right(onceward_database, client):
    first = free_ports(2)
    jobs = client.enqueue_many(shop.greet, [{"name": str(n)} for n in range(400)])
    with process(
        onceward_database, target="tests.sdk.shop:app", processes=2, health_port=first, concurrency=5
    ) as child:
        for job in jobs:
            client.wait(job)
        log_line(child, "worker_started")
        log_line(child, "worker_started")

        def sums():
            pages = [scrape(first), scrape(first + 1)]
            totals: defaultdict[str, float] = defaultdict(float)
            for page in pages:
                for (name, _), value in page.samples.items():
                    totals[name] += value
            # The database is one: whoever asks gets the same.
            assert {page.value("onceward_lane_paused", lane="default") for page in pages} == {0}
            return totals["onceward_attempts_ended_total"] >= 400 and totals

        totals = until(sums)
        assert totals["onceward_attempts_ended_total"] == 400
        assert totals["onceward_attempts_started_total"] == 400
        assert totals["onceward_attempt_seconds_count"] == 400
        child.send_signal(signal.SIGTERM)
        assert child.wait(30) == 0


def test_a_database_that_does_not_answer_costs_its_gauges_and_not_the_page():
    worker = Worker(Onceward(), dsn="host=127.0.0.1 port=1 connect_timeout=1")

    async def page() -> Page:
        exposition = Exposition(worker)
        try:
            return Page((await exposition.page()).decode())
        finally:
            await exposition.close()

    shown = asyncio.run(page())

    assert shown.value("onceward_database_up") == 0
    assert shown.value("onceward_worker_ready") == 0
    assert "onceward_jobs" not in shown.families


# ------------------------------------------------------------ the list


def test_the_database_gives_the_gauges_of_the_list_and_no_others(plain):
    from onceward import calls

    samples = plain.run(calls.metrics())

    assert {sample.name for sample in samples} == {m.name for m in METRICS if m.source == "database"}
    for sample in samples:
        assert set(sample.labels) == set(BY_NAME[sample.name].labels), sample


def test_the_names_of_the_list_are_as_prometheus_wants_them():
    assert len(BY_NAME) == len(METRICS)
    for metric in METRICS:
        assert metric.name.startswith("onceward_")
        assert metric.help.endswith(".")
        assert not metric.name.endswith("_total"), "added by the text"
        assert metric.source == "worker" or metric.kind == "gauge"
        assert not set(metric.labels) & {"tenant", "key", "job", "worker", "job_id"}, "unbounded, or private"


def test_the_text_has_help_and_type_of_each_and_escapes_labels():
    page = Page(exposition([Sample("onceward_lane_paused", {"lane": 'a"b\\c\nd'}, 1.0)]).decode())

    assert page.families["onceward_lane_paused"].documentation == BY_NAME["onceward_lane_paused"].help
    assert page.value("onceward_lane_paused", lane='a"b\\c\nd') == 1


def test_a_name_that_is_not_in_the_list_is_an_error():
    with pytest.raises(KeyError):
        exposition([Sample("onceward_surprise", {}, 1.0)])


# ------------------------------------------------------------ the tally


class Some:
    def __init__(self, lane: str, task: str) -> None:
        self.lane, self.task = lane, task


def test_the_number_of_series_is_bounded():
    tally = Tally([f"task {n}" for n in range(5000)])
    for n in range(5000):
        tally.started(Some("default", f"task {n}")).ended["done"] += 1
    for n in range(100):
        tally.started(Some(f"lane {n}", "invented by a producer"))

    started = [sample for sample in tally.samples() if sample.name == "onceward_attempts_started"]

    assert len(started) == MOST_PAIRS + 1
    assert sum(sample.value for sample in started) == 5100


def test_a_histogram_counts_each_value_once_at_its_bound():
    spread = Spread((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 2.0, 99.0):
        spread.add(value)

    read = spread.read("onceward_exchange_seconds", {})

    assert read.buckets == [("1.0", 2), ("2.0", 4), ("+Inf", 5)]
    assert read.sum == 104.0


@pytest.mark.parametrize(
    ("answer", "expected", "outcome"),
    [
        (("scheduled", None), "retried", "retried"),
        (("dead_letter", None), "retried", "dead_letter"),
        (("cancelled", None), "snoozed", "cancelled"),
        (("scheduled", None), "snoozed", "snoozed"),
        (("sent", None), "retried", "done"),
        (("pending", None), "retried", "retried"),
        (("uncertain", None), "retried", "dead_letter"),
        (datetime(2030, 1, 1, tzinfo=UTC), "suspended", "suspended"),
        (None, "done", "done"),
        ("cancelled", "cancelled", "cancelled"),
    ],
)
def test_the_outcome_is_what_the_database_says(answer, expected, outcome):
    assert outcome_of(answer, expected) == outcome
