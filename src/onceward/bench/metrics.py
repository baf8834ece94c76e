"""What the figures mean, and what they are held against."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Better = Literal["higher", "lower"]
Kind = Literal["first bar", "goal"]
# Medians, by metric and system.
Medians = Mapping[str, Mapping[str, float]]

RATE, MS, MB, TIMES = "jobs/s", "ms", "MB", "×"


@dataclass(frozen=True, slots=True)
class Metric:
    name: str
    group: str
    title: str
    unit: str
    better: Better


def _metric(name: str, group: str, title: str, unit: str) -> Metric:
    return Metric(name, group, title, unit, "higher" if unit in {RATE, TIMES} else "lower")


METRICS = (
    _metric("single", "single", "single enqueue, awaited", RATE),
    _metric("bulk", "bulk", "bulk enqueue, calls of 1,000", RATE),
    _metric("transaction_added", "transaction", "enqueue in the caller's transaction, added time", MS),
    _metric(
        "transaction_statements", "transaction", "enqueue in the caller's transaction, added statements", ""
    ),
    _metric("drain_one", "drain", "drain, one worker process", RATE),
    _metric("connections_one", "drain", "connections while draining, one worker process", ""),
    _metric("memory_end", "drain", "memory of the worker after the drain", MB),
    _metric("rows_left", "drain", "rows kept per finished job", ""),
    _metric("drain_two", "drain-two", "drain, two worker processes", RATE),
    _metric("connections_two", "drain-two", "connections while draining, two worker processes", ""),
    _metric("drain_threads", "drain-threads", "drain, sync handlers in threads", RATE),
    _metric("start_p50", "latency", "start latency, idle worker, p50", MS),
    _metric("start_p99", "latency", "start latency, idle worker, p99", MS),
    _metric("start_max", "latency", "start latency, idle worker, highest", MS),
    _metric("memory_idle", "latency", "memory of an idle worker", MB),
    _metric("connections_idle", "latency", "connections of an idle worker", ""),
    _metric("growth_shallow", "growth", "drain, at most 10 k ready", RATE),
    _metric("growth_ready", "growth", "drain, deep: 1 M ready", RATE),
    _metric("growth_ready_kept", "growth", "deep ÷ 10 k", TIMES),
    _metric("growth_both", "growth", "drain, deep: 1 M ready and 1 M scheduled", RATE),
    _metric("growth_both_kept", "growth", "deep with scheduled ÷ 10 k", TIMES),
    _metric("horizon_free", "horizon", "drain, no old snapshot", RATE),
    _metric("horizon_pinned", "horizon", "drain, xmin pinned by another session", RATE),
    _metric("horizon_kept", "horizon", "xmin pinned ÷ not", TIMES),
    _metric("keys_without", "keys", "drain without concurrency keys", RATE),
    _metric("keys_with", "keys", "drain of blocked jobs, keys with limit 1, in turn", RATE),
    _metric("keys_kept", "keys", "with concurrency keys, in turn ÷ without", TIMES),
    _metric("keys_apart", "keys", "drain of blocked jobs, keys one after another, so on distant pages", RATE),
    _metric("keys_apart_kept", "keys", "with concurrency keys, one after another ÷ without", TIMES),
    _metric("keys_beside", "keys", "drain beside as many jobs that stay blocked", RATE),
    _metric("keys_beside_kept", "keys", "beside blocked jobs ÷ without", TIMES),
    _metric("limits_without", "limits", "drain without limits", RATE),
    _metric("limits_with", "limits", "drain under a limit that has room", RATE),
    _metric("limits_kept", "limits", "with a limit ÷ without", TIMES),
    _metric("fairness_alone", "fairness", "jobs of 0.1 s of a tenant, alone, p95 until done", MS),
    _metric("fairness_beside", "fairness", "the same beside a tenant with 200 k jobs, p95 until done", MS),
    Metric("fairness_times", "fairness", "beside ÷ alone", TIMES, "lower"),
    _metric("steps_without", "steps", "drain without steps", RATE),
    _metric("steps_with", "steps", "drain of jobs with 5 steps", RATE),
    _metric("steps_statements", "steps", "statements and round trips that 5 steps add to a job", ""),
    _metric("log_enqueue", "log", "write-ahead log per job, enqueued, 100-byte payload", "bytes"),
    _metric("log_work", "log", "write-ahead log per job, worked off", "bytes"),
    _metric("log", "log", "write-ahead log per job", "bytes"),
    _metric("audit_ends", "audit", "drain, ends of jobs in the audit log", RATE),
    _metric("audit_all", "audit", "drain, every transition in the audit log", RATE),
    _metric("audit_kept", "audit", "every transition ÷ ends", TIMES),
    _metric(
        "web_p95", "web", "slowest page or read of the API, p95, beside 1 M archived and 100 k live jobs", MS
    ),
    _metric("web_middle", "web", "the middle one of them, p95", MS),
    _metric("web_processor", "web", "the web process' own work for one answer, highest", MS),
    _metric("import", "import", "import of the client", MS),
)


@dataclass(frozen=True, slots=True)
class Bar:
    """A figure to reach.  `value` may be None: what it needs was not measured."""

    metric: str
    kind: Kind
    text: str
    value: Callable[[Medians], float | None]
    limit: float
    better: Better = "higher"

    def judge(self, medians: Medians) -> dict[str, Any]:
        value = self.value(medians)
        passed = None
        if value is not None:
            passed = value >= self.limit if self.better == "higher" else value <= self.limit
        return {
            "kind": self.kind,
            "text": self.text,
            "value": None if value is None else rounded(value),
            "limit": self.limit,
            "passed": passed,
        }


def rounded(value: float) -> float:
    """Four digits: more would only pretend."""
    return float(f"{value:.4g}") if abs(value) < 1000 else round(value)


def _of(metric: str, system: str = "onceward") -> Callable[[Medians], float | None]:
    return lambda medians: medians.get(metric, {}).get(system)


def _ratio(
    metric: str, over: Sequence[str], *, system: str = "onceward", base: str | None = None
) -> Callable[[Medians], float | None]:
    """One system's figure ÷ the best of others, maybe of another metric."""

    def value(medians: Medians) -> float | None:
        ours = medians.get(metric, {}).get(system)
        found = medians.get(base or metric, {})
        theirs = max((found[name] for name in over if name in found), default=None)
        return None if ours is None or not theirs else ours / theirs

    return value


def _pair(
    metric: str, text: str, value: Callable[[Medians], float | None], first: float, goal: float | None
) -> list[Bar]:
    bars = [Bar(metric, "first bar", text.format(first), value, first)]
    return bars if goal is None else [*bars, Bar(metric, "goal", text.format(goal), value, goal)]


def _at_most(
    metric: str, text: str, value: Callable[[Medians], float | None], first: float | None, goal: float | None
) -> list[Bar]:
    limits: list[tuple[Kind, float | None]] = [("first bar", first), ("goal", goal)]
    return [
        Bar(metric, kind, text.format(f"{limit:g}"), value, limit, "lower")
        for kind, limit in limits
        if limit is not None
    ]


RAW_SINGLE = ("raw", "raw_psycopg")
RAW_BULK = ("raw_unnest", "raw_copy")
BARS = (
    Bar("drain_one", "first bar", "≥ 2 × PgQueuer", _ratio("drain_one", ["pgqueuer"]), 2.0),
    *_pair("drain_one", "≥ {} × raw loop, batch 1,000", _ratio("drain_one", ["raw_1000"]), 0.5, 0.9),
    Bar("drain_two", "first bar", "≥ 1.3 × one", _ratio("drain_two", ["onceward"], base="drain_one"), 1.3),
    Bar("drain_two", "goal", "≥ 0.75 × raw loop with two connections", _ratio("drain_two", ["raw_1000"]), 0.75),
    Bar("drain_threads", "first bar", "≥ 5,000/s", _of("drain_threads"), 5000),
    Bar("drain_threads", "goal", "≥ 15,000/s", _of("drain_threads"), 15_000),
    *_pair(
        "bulk", "≥ {} × raw COPY or unnest, keys and validation on", _ratio("bulk", RAW_BULK, system="onceward_keys"),
        0.5, 0.8,
    ),
    *_pair("bulk", "≥ {} × raw COPY or unnest, validation on", _ratio("bulk", RAW_BULK), 0.5, 0.8),
    *_pair("single", "≥ {} × raw single INSERT", _ratio("single", RAW_SINGLE), 0.7, 0.9),
    *_pair("single", "≥ {} × raw, sync client", _ratio("single", RAW_SINGLE, system="onceward_sync"), 0.7, 0.9),
    *_at_most("transaction_added", "≤ {} ms", _of("transaction_added"), 0.3, None),
    *_at_most("transaction_statements", "≤ {} statement", _of("transaction_statements"), 1, None),
    *_at_most("start_p50", "p50 ≤ {} × raw LISTEN loop", _ratio("start_p50", ["raw"]), 1.5, 1.2),
    *_at_most("start_p99", "p99 ≤ {} ms", _of("start_p99"), 10, 5),
    *_pair("growth_ready_kept", "≥ {} × the rate at 10 k", _of("growth_ready_kept"), 0.9, None),
    *_pair("growth_both_kept", "≥ {} × the rate at 10 k", _of("growth_both_kept"), 0.9, None),
    *_pair("horizon_kept", "≥ {} × the rate without", _of("horizon_kept"), 0.9, None),
    *_pair("keys_kept", "≥ {} × the rate without, keys in turn", _of("keys_kept"), 0.7, 0.9),
    *_pair("keys_beside_kept", "≥ {} × the rate without", _of("keys_beside_kept"), 0.7, 0.9),
    *_pair("limits_kept", "≥ {} × the rate without", _of("limits_kept"), 0.8, None),
    *_at_most("fairness_times", "≤ {} × alone", _of("fairness_times"), 2, None),
    *_pair("audit_kept", "≥ {} × the rate with ends only", _of("audit_kept"), 0.9, None),
    # The upkeep of the worker in the time that the steps take is part of the figure.
    Bar("steps_statements", "first bar", "≤ 5 statements, and some upkeep", _of("steps_statements"), 5.5, "lower"),
    *_at_most("web_p95", "≤ {} ms", _of("web_p95"), 200, None),
    *_at_most("log", "≤ {} bytes", _of("log"), None, 1024),
    *_at_most("connections_one", "≤ {} (2 + processes)", _of("connections_one"), 3, None),
    *_at_most("connections_two", "≤ {} (2 + processes)", _of("connections_two"), 4, None),
    *_at_most("memory_idle", "≤ {} MB", _of("memory_idle"), 80, None),
    *_at_most("import", "≤ {} ms", _of("import"), 150, 80),
)  # fmt: skip
# Goals that one run of this program cannot decide.
NOT_MEASURED = (
    "drain, one worker process: ahead of Graphile Worker and pg-boss, which are not part of this run",
    "10 M ready and 10 M scheduled",
    "xmin pinned for 60 minutes at half load",
    "memory over a soak",
    "behind a transaction pooler",
)


def summary(runs: Mapping[str, Mapping[str, Sequence[float]]]) -> list[dict[str, Any]]:
    """Metrics with medians, spread, ratios and verdicts, from the figures of each metric and system."""
    medians = {
        metric: {system: statistics.median(figures) for system, figures in by_system.items()}
        for metric, by_system in runs.items()
    }
    found = []
    for metric in METRICS:
        if metric.name not in runs:
            continue
        systems = {
            system: _system(system, figures, medians[metric.name])
            for system, figures in runs[metric.name].items()
        }
        found.append(
            {
                "name": metric.name,
                "group": metric.group,
                "title": metric.title,
                "unit": metric.unit,
                "better": metric.better,
                "systems": systems,
                "bars": [bar.judge(medians) for bar in BARS if bar.metric == metric.name],
            }
        )
    return found


def _system(system: str, figures: Sequence[float], medians: Mapping[str, float]) -> dict[str, Any]:
    median = medians[system]
    shown: dict[str, Any] = {
        "median": rounded(median),
        "min": rounded(min(figures)),
        "max": rounded(max(figures)),
        "runs": [rounded(figure) for figure in figures],
    }
    if system.startswith("onceward"):
        shown["ratios"] = {
            other: rounded(median / value)
            for other, value in medians.items()
            if not other.startswith("onceward") and value > 0
        }
    return shown
