"""The list of metrics, and their text for Prometheus.

This list is the only place that says what each one is called, means and is labelled with.  The gauges of the database
come from `onceward.metrics()`, those of a worker from its own tally.  The page docs/operations/metrics.md and the
dashboard are made from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from onceward.errors import OncewardError
from onceward.model import Sample

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric as Family

Kind = Literal["gauge", "counter", "histogram"]
Source = Literal["database", "worker"]
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric.  Counters are named without `_total`, which their text adds."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    source: Source
    # Where it stands on the dashboard.
    group: str
    help: str


METRICS: tuple[Metric, ...] = (
    Metric("onceward_jobs", "gauge", ("lane", "state"), "database", "Lanes", "Live jobs; a count stops at 100,000."),
    Metric("onceward_oldest_ready_seconds", "gauge", ("lane",), "database", "Lanes", "How long the oldest ready job has been due."),
    Metric("onceward_lane_paused", "gauge", ("lane",), "database", "Lanes", "1 when the lane is paused."),
    Metric("onceward_lane_workers", "gauge", ("lane",), "database", "Lanes", "Live workers that serve the lane."),
    Metric("onceward_lane_slots", "gauge", ("lane",), "database", "Lanes", "Jobs that those workers can run at once, over all their lanes."),
    Metric("onceward_promotion_lag_seconds", "gauge", (), "database", "Lanes", "How long a scheduled job has been due without becoming ready; above a few seconds, no worker looks."),
    Metric("onceward_partial_completions", "gauge", (), "database", "Lanes", "Failed jobs that have done some of their steps, among the first thousand dead letters and the first thousand that wait."),
    Metric("onceward_attempts_started", "counter", ("lane", "task"), "worker", "Attempts", "Attempts that this process has claimed."),
    Metric("onceward_attempts_ended", "counter", ("lane", "task", "outcome"), "worker", "Attempts", "Attempts whose end the database has taken: done, retried, dead_letter, snoozed, suspended, cancelled, released, lost."),
    Metric("onceward_attempt_seconds", "histogram", ("lane", "task"), "worker", "Attempts", "How long handlers ran, whatever the outcome."),
    Metric("onceward_workers", "gauge", ("state",), "database", "Workers", "Worker processes that have not been retired: live, or expired and about to be rescued."),
    Metric("onceward_handlers_active", "gauge", (), "worker", "Workers", "Jobs that this process runs or has buffered."),
    Metric("onceward_handler_slots", "gauge", (), "worker", "Workers", "Jobs that this process runs at once at most."),
    Metric("onceward_worker_ready", "gauge", (), "worker", "Workers", "1 while the lease of this process is held."),
    Metric("onceward_heartbeat_age_seconds", "gauge", (), "worker", "Workers", "Since the database has last confirmed the lease of this process."),
    Metric("onceward_heartbeat_failures", "counter", (), "worker", "Workers", "Heartbeats of this process that failed."),
    Metric("onceward_worker_leases_lost", "counter", (), "worker", "Workers", "How often this process lost its lease and registered anew."),
    Metric("onceward_exchange_seconds", "histogram", (), "worker", "Workers", "Round trips that finish a batch and claim the next."),
    Metric("onceward_exchange_failures", "counter", (), "worker", "Workers", "Round trips that failed, most of them because the connection broke."),
    Metric("onceward_deliveries", "gauge", ("state",), "database", "Deliveries and schedules", "Deliveries under way (pending, sending) and those that a person has to look at (uncertain, abandoned)."),
    Metric("onceward_schedules_late", "gauge", (), "database", "Deliveries and schedules", "Schedules whose next moment is more than a minute ago."),
    Metric("onceward_schedule_lateness_seconds", "gauge", (), "database", "Deliveries and schedules", "How late the latest of them is."),
    Metric("onceward_limit_level", "gauge", ("limit",), "database", "Limits", "What is left of the limit, from 0 to 1: the least of its requests, weight and slots; of a limit per key, that of the emptiest key."),
    Metric("onceward_limit_waiting", "gauge", ("limit",), "database", "Limits", "Ready jobs that use the limit; a count stops at 100,000."),
    Metric("onceward_limit_paused", "gauge", ("limit",), "database", "Limits", "1 while the limit is paused or tries whether it is open again; of a limit per key, how many keys are."),
    Metric("onceward_alerts_open", "gauge", ("severity",), "database", "Alerts and audit log", "Open alerts: info, warning, critical."),
    Metric("onceward_audit_unsealed_entries", "gauge", (), "database", "Alerts and audit log", "Entries of the audit log that are not sealed yet; a count stops at 100,000."),
    Metric("onceward_audit_unsealed_seconds", "gauge", (), "database", "Alerts and audit log", "How old the oldest of them is; above a minute, no worker seals or a transaction stays open."),
    Metric("onceward_xmin_age_transactions", "gauge", (), "database", "Storage", "How many transactions ago the oldest snapshot was taken; dead rows since then cannot be removed."),
    Metric("onceward_dead_rows", "gauge", ("table",), "database", "Storage", "Rows that vacuum has yet to remove, by its own estimate."),
    Metric("onceward_table_bytes", "gauge", ("table",), "database", "Storage", "Size on disk with indexes, and with all partitions."),
    Metric("onceward_database_up", "gauge", (), "worker", "Storage", "1 when the gauges of the database could be read for this scrape."),
)  # fmt: skip
BY_NAME = {metric.name: metric for metric in METRICS}


@dataclass(frozen=True, slots=True)
class Distribution:
    """The value of a histogram: how many were at most each bound, the last of which is infinity; and their sum."""

    name: str
    labels: dict[str, str]
    buckets: Sequence[tuple[str, float]]
    sum: float


def exposition(samples: Iterable[Sample], distributions: Iterable[Distribution] = ()) -> bytes:
    """The text of these values, in the order of the list.  A name that is not in the list is an error."""
    try:
        from prometheus_client import CollectorRegistry, generate_latest
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
    except ImportError as error:
        raise OncewardError(
            "metrics need the package prometheus-client",
            hint="Install it: pip install prometheus-client.",
        ) from error
    families: dict[str, Family] = {}

    def family(name: str) -> Family:
        if name not in families:
            kinds = {
                "gauge": GaugeMetricFamily,
                "counter": CounterMetricFamily,
                "histogram": HistogramMetricFamily,
            }
            metric = BY_NAME[name]
            families[name] = kinds[metric.kind](name, metric.help, labels=metric.labels)
        return families[name]

    for sample in samples:
        labels = [sample.labels[label] for label in BY_NAME[sample.name].labels]
        family(sample.name).add_metric(labels, sample.value)  # type: ignore[attr-defined]
    for distribution in distributions:
        labels = [distribution.labels[label] for label in BY_NAME[distribution.name].labels]
        family(distribution.name).add_metric(labels, distribution.buckets, distribution.sum)  # type: ignore[attr-defined]

    class Collector:
        def collect(self) -> list[Family]:
            return [families[metric.name] for metric in METRICS if metric.name in families]

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Collector())
    return generate_latest(registry)
