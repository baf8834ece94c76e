"""The measurements.  Each takes one system and gives one figure per metric; repeats go round the systems in turn."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from onceward.bench.children import import_milliseconds, wait_until
from onceward.bench.pages import pages
from onceward.bench.place import Place
from onceward.bench.sizes import Sizes
from onceward.bench.stage import START_SECONDS, Stage, steady_rate
from onceward.bench.systems import System, Systems
from onceward.errors import OncewardError

Figures = dict[str, float]


@dataclass(frozen=True, slots=True)
class Bench:
    """What every measurement needs."""

    place: Place
    systems: Systems
    sizes: Sizes
    # What has to be said about the measurement under way.
    notes: list[str] = field(default_factory=list)

    def system(self, name: str, **produce: Any) -> System:
        found = self.systems.find(name)
        return replace(found, produce={**found.produce, **produce}) if produce else found


@dataclass(frozen=True, slots=True)
class Group:
    """One measurement, as `--only` names it."""

    name: str
    systems: tuple[str, ...]
    measure: Callable[[Bench, str], Figures]


def single(bench: Bench, name: str) -> Figures:
    with Stage.opened(bench.place, bench.system(name)) as stage:
        return {"single": stage.ask("single", seconds=bench.sizes.single_seconds)["rate"]}


def bulk(bench: Bench, name: str) -> Figures:
    keyed = name == "onceward_keys"
    with Stage.opened(bench.place, bench.system(name)) as stage:
        stage.fill(bench.sizes.chunk)  # Connections, plans and caches as in a producer that has been running.
        return {
            "bulk": stage.fill(
                bench.sizes.bulk_jobs, chunk=bench.sizes.chunk, **({"keyed": True} if keyed else {})
            )
        }


def transaction(bench: Bench, name: str) -> Figures:
    with Stage.opened(bench.place, bench.system(name)) as stage:
        answer = stage.ask("transaction", count=bench.sizes.transactions)
    figures = {"transaction_added": answer["with_ms"] - answer["without_ms"]}
    if answer["statements"] is not None:
        figures["transaction_statements"] = answer["statements"]
    return figures


@dataclass(slots=True)
class Drained:
    rate: float
    connections: int
    memory: float


def drain(stage: Stage, total: int, bench: Bench, *, workers: int = 1, extra: int = 0) -> Drained:
    """Work off what is enqueued.  The clock runs from 10 % handled until nothing is unfinished.

    `extra` jobs are handled beside, or stay behind; then the clock stops with the handlers.
    """
    stage.settle()
    stage.start(workers)
    began = time.monotonic()
    while True:
        seen, now = stage.handled(), time.monotonic()
        # Every worker has begun; if the jobs are too few for that, half of them.
        if (seen >= total / 10 and stage.working() >= workers) or seen >= total / 2:
            break
        if now - began > START_SECONDS:
            raise OncewardError(f"only {seen} of {total} jobs were handled within {START_SECONDS:g} s")
        stage.check()
        time.sleep(0.002)
    end = now + bench.sizes.cap_seconds
    connections = stage.connections()
    while stage.handled() < total and time.monotonic() < end:
        stage.wait_handled(total, timeout=0.5)
        connections = max(connections, stage.connections())
    done = stage.handled()
    if done < total:
        bench.notes.append(f"stopped after {bench.sizes.cap_seconds:g} s with {done:,} of {total:,} handled")
    memory = stage.memory()
    if done >= total and not extra and not stage.wait_finished(timeout=30):
        raise OncewardError("jobs were handled but not finished within 30 s")
    if seen >= total / 2:
        # Gone with the first batches.  Count from the start of the worker, which is too low.
        bench.notes.append("too few jobs for a rate")
        seen, now = 0, began
    return Drained((done - seen) / (time.monotonic() - now), connections, memory)


def drain_one(bench: Bench, name: str) -> Figures:
    total = bench.sizes.drain_jobs[name]
    with Stage.opened(bench.place, bench.system(name)) as stage:
        stage.fill(total, chunk=bench.sizes.chunk)
        found = drain(stage, total, bench)
        rows = sum(stage.rows().values())
    return {
        "drain_one": found.rate,
        "connections_one": found.connections,
        "memory_end": found.memory,
        "rows_left": rows / total,
    }


def drain_two(bench: Bench, name: str) -> Figures:
    total = int(bench.sizes.drain_jobs[name] * 1.4)
    with Stage.opened(bench.place, bench.system(name)) as stage:
        stage.fill(total, chunk=bench.sizes.chunk)
        found = drain(stage, total, bench, workers=2)
    return {"drain_two": found.rate, "connections_two": found.connections}


def drain_threads(bench: Bench, name: str) -> Figures:
    total = bench.sizes.thread_jobs
    with Stage.opened(bench.place, bench.system(name, task="count_in_thread")) as stage:
        stage.fill(total, chunk=bench.sizes.chunk)
        return {"drain_threads": drain(stage, total, bench).rate}


def latency(bench: Bench, name: str) -> Figures:
    sizes = bench.sizes
    with Stage.opened(bench.place, bench.system(name)) as stage:
        stage.fill(1)
        stage.settle()
        stage.start()
        if not stage.wait_handled(1, timeout=START_SECONDS):
            raise OncewardError(f"the worker did not start within {START_SECONDS:g} s")
        time.sleep(sizes.latency_rest)
        idle = {"memory_idle": stage.memory(), "connections_idle": stage.connections()}
        stage.ask("paced", count=sizes.latency_jobs, gap=sizes.latency_gap)
        if not stage.wait_handled(sizes.latency_jobs + 11, timeout=30):
            raise OncewardError("not all jobs were handled")
        time.sleep(0.05)
        found = stage.delays()
    return {
        **idle,
        "start_p50": percentile(found, 0.5),
        "start_p99": percentile(found, 0.99),
        "start_max": found[-1],
    }


def growth(bench: Bench, name: str) -> Figures:
    shallow = shallow_rate(bench, name)
    ready = deep_rate(bench, name, scheduled=0)
    figures = {"growth_shallow": shallow, "growth_ready": ready, "growth_ready_kept": ready / shallow}
    if name == "onceward":
        both = deep_rate(bench, name, scheduled=bench.sizes.deep_scheduled)
        figures |= {"growth_both": both, "growth_both_kept": both / shallow}
    return figures


def shallow_rate(bench: Bench, name: str) -> float:
    """The rate while at most so many jobs are ready: bursts onto an idle worker, seen from 10 % handled."""
    sizes = bench.sizes
    rates = []
    with Stage.opened(bench.place, bench.system(name)) as stage:
        # Warm: the worker has its plans, and the tables their statistics.
        stage.fill(sizes.shallow, chunk=sizes.chunk)
        stage.settle()
        stage.start()
        before = sizes.shallow
        if not stage.wait_handled(before, timeout=START_SECONDS):
            raise OncewardError("the first jobs were not handled")
        for _ in range(sizes.bursts):
            stage.wait_finished(timeout=30)
            asked, before = time.monotonic(), before + sizes.shallow
            stage.ask("burst", total=sizes.shallow, chunk=min(sizes.chunk, sizes.shallow))
            stage.wait_handled(before - sizes.shallow * 9 // 10, timeout=START_SECONDS, step=0.0005)
            began, seen = time.monotonic(), stage.handled()
            if not stage.wait_handled(before, timeout=sizes.cap_seconds, step=0.0005):
                raise OncewardError("a burst was not handled")
            if seen >= before - sizes.shallow / 2:
                # Gone with the first batch.  Count from the enqueue, which is too low.
                bench.notes.append("too few jobs for a rate")
                began, seen = asked, before - sizes.shallow
            rates.append((before - seen) / (time.monotonic() - began))
    return statistics.median(rates)


def deep_rate(bench: Bench, name: str, *, scheduled: int) -> float:
    sizes = bench.sizes
    with Stage.opened(bench.place, bench.system(name)) as stage:
        if scheduled:
            stage.fill(scheduled, chunk=sizes.chunk, later=True)
        stage.fill(sizes.deep, chunk=sizes.chunk)
        stage.settle()
        stage.start()
        began = time.monotonic()
        if not stage.wait_handled(1, timeout=START_SECONDS):
            raise OncewardError("no job was handled")
        stage.wait_handled(sizes.deep, timeout=sizes.window_delay)
        found = steady_rate(stage, windows=sizes.windows, seconds=sizes.window_seconds, total=sizes.deep)
        if found:
            return statistics.median(found)
        # All gone before the first window was over.
        bench.notes.append("too few jobs for a rate")
        return stage.handled() / (time.monotonic() - began)


def horizon(bench: Bench, name: str) -> Figures:
    """The same churn without and with a session that holds a snapshot from before the first job."""
    total = bench.sizes.horizon_jobs
    with Stage.opened(bench.place, bench.system(name)) as stage:
        stage.fill(total, chunk=bench.sizes.chunk)
        free = drain(stage, total, bench).rate
    with Stage.opened(bench.place, bench.system(name)) as stage, stage.held_snapshot():
        stage.fill(total, chunk=bench.sizes.chunk)
        pinned = drain(stage, total, bench).rate
    return {"horizon_free": free, "horizon_pinned": pinned, "horizon_kept": pinned / free}


def keys(bench: Bench, name: str) -> Figures:
    """Jobs with a concurrency key of limit 1, in two orders; and jobs without, beside as many that stay blocked.

    In turn is how work of many users comes in: a batch of finishes lets in jobs that were enqueued side by side.  With all
    jobs of a key one after another, each of those lies on a page of its own, which is harder for a database.
    """
    sizes = bench.sizes
    total = sizes.keys_jobs
    with Stage.opened(bench.place, bench.system(name)) as stage:
        stage.fill(total, chunk=sizes.chunk)
        plain = drain(stage, total, bench).rate
    with Stage.opened(bench.place, bench.system(name)) as stage:
        stage.fill(total, chunk=sizes.chunk, keys_in_turn=sizes.keys)
        keyed = drain(stage, total, bench).rate
    with Stage.opened(bench.place, bench.system(name)) as stage:
        stage.fill(total, chunk=max(1, total // sizes.keys), concurrency_keys=sizes.keys)
        apart = drain(stage, total, bench).rate
    with Stage.opened(bench.place, bench.system(name, task="hold")) as stage:
        stage.fill(total, chunk=sizes.chunk, concurrency_keys=1)
        stage.settle()
        plain_stage = replace_producer(stage, bench.system(name))
        plain_stage.fill(total, chunk=sizes.chunk)
        beside = drain(plain_stage, total, bench, extra=total).rate
    return {
        "keys_without": plain,
        "keys_with": keyed,
        "keys_kept": keyed / plain,
        "keys_apart": apart,
        "keys_apart_kept": apart / plain,
        "keys_beside": beside,
        "keys_beside_kept": beside / plain,
    }


def replace_producer(stage: Stage, system: System) -> Stage:
    stage.system = system
    return stage


def limits(bench: Bench, name: str) -> Figures:
    """Jobs under a limit that always has room."""
    total = bench.sizes.limits_jobs
    with Stage.opened(bench.place, bench.system(name)) as stage:
        stage.fill(total, chunk=bench.sizes.chunk)
        plain = drain(stage, total, bench).rate
    with Stage.opened(bench.place, bench.system(name, task="count_limited")) as stage:
        stage.fill(total, chunk=bench.sizes.chunk)
        limited = drain(stage, total, bench).rate
    return {"limits_without": plain, "limits_with": limited, "limits_kept": limited / plain}


def fairness(bench: Bench, name: str) -> Figures:
    """How long a tenant's jobs of 0.1 s take, from the enqueue to their end: alone, and beside a tenant with a backlog."""
    alone = quiet_tenant(bench, name, noise=0)
    beside = quiet_tenant(bench, name, noise=bench.sizes.noise_jobs)
    return {"fairness_alone": alone, "fairness_beside": beside, "fairness_times": beside / alone}


def quiet_tenant(bench: Bench, name: str, *, noise: int) -> float:
    """The 95th of a hundred, in milliseconds."""
    sizes = bench.sizes
    with Stage.opened(bench.place, bench.system(name, task="work", tenant="noisy")) as stage:
        if noise:
            stage.fill(noise, chunk=sizes.chunk)
        stage.fill(1)
        stage.settle()
        replace_producer(stage, bench.system(name, task="work", tenant="quiet"))
        stage.start()
        if not stage.wait_handled(1, timeout=START_SECONDS):
            raise OncewardError(f"the worker did not start within {START_SECONDS:g} s")
        stage.ask("paced", count=sizes.quiet_jobs, gap=0.05)
        if not wait_until(lambda: len(stage.delays()) >= sizes.quiet_jobs, timeout=30, step=0.01):
            raise OncewardError("not all jobs of the quiet tenant were handled")
        return percentile(stage.delays(), 0.95)


def steps(bench: Bench, name: str) -> Figures:
    """Jobs of five steps, beside as many without: the rate, and what each job sends to the server."""
    total = bench.sizes.steps_jobs
    plain, plain_calls = _drain_counted(bench, name, total, task="count")
    stepped, stepped_calls = _drain_counted(bench, name, total, task="stepped")
    return {
        "steps_without": plain,
        "steps_with": stepped,
        "steps_statements": stepped_calls - plain_calls,
    }


def _drain_counted(bench: Bench, name: str, total: int, *, task: str) -> tuple[float, float]:
    """The rate, and how many statements the worker has sent for each job."""
    with Stage.opened(bench.place, bench.system(name, task=task)) as stage:
        stage.fill(total, chunk=bench.sizes.chunk)
        stage.settle()
        before = stage.transactions()
        rate = drain(stage, total, bench).rate
        handled = stage.handled()
        stage.stop()
        return rate, (stage.transactions() - before) / handled


def log(bench: Bench, name: str) -> Figures:
    """Write-ahead log per job with payloads of about 100 bytes: enqueued, worked off, together."""
    total = bench.sizes.log_jobs
    with Stage.opened(bench.place, bench.system(name)) as stage:
        start = stage.log_position()
        stage.fill(total, chunk=bench.sizes.chunk, filling=80)
        filled = stage.log_position()
        drain(stage, total, bench)
        end = stage.log_position()
    return {
        "log_enqueue": (filled - start) / total,
        "log_work": (end - filled) / total,
        "log": (end - start) / total,
    }


def audit(bench: Bench, name: str) -> Figures:
    """The same jobs in a lane of which the audit log has the ends, and in one of which it has every transition."""
    total = bench.sizes.audit_jobs
    rates = []
    for mode in ("ends", "all"):
        with Stage.opened(bench.place, bench.system(name)) as stage:
            stage.query(f"select onceward.audit_lane('default', '{mode}')")
            stage.fill(total, chunk=bench.sizes.chunk)
            rates.append(drain(stage, total, bench).rate)
    ends, everything = rates
    return {"audit_ends": ends, "audit_all": everything, "audit_kept": everything / ends}


def imports(bench: Bench, name: str) -> Figures:
    statement = "import onceward; onceward.Client"
    import_milliseconds(statement)  # The first one compiles.
    times = [import_milliseconds(statement) for _ in range(bench.sizes.imports)]
    return {"import": statistics.median(times)}


def percentile(rising: list[float], share: float) -> float:
    return rising[min(len(rising) - 1, int(share * len(rising)))]


GROUPS = (
    Group("single", ("raw", "raw_psycopg", "pgqueuer", "onceward", "onceward_sync"), single),
    Group("bulk", ("raw_unnest", "raw_copy", "pgqueuer", "onceward", "onceward_keys"), bulk),
    Group("transaction", ("raw", "pgqueuer", "onceward", "onceward_sync"), transaction),
    Group("drain", ("raw_200", "raw_1000", "pgqueuer", "onceward"), drain_one),
    Group("drain-two", ("raw_200", "raw_1000", "pgqueuer", "onceward"), drain_two),
    Group("drain-threads", ("onceward",), drain_threads),
    Group("latency", ("raw", "pgqueuer", "onceward"), latency),
    Group("growth", ("raw_1000", "pgqueuer", "onceward"), growth),
    Group("horizon", ("raw_200", "raw_1000", "pgqueuer", "onceward"), horizon),
    Group("keys", ("onceward",), keys),
    Group("limits", ("onceward",), limits),
    Group("fairness", ("onceward",), fairness),
    Group("steps", ("onceward",), steps),
    Group("log", ("raw_200", "pgqueuer", "onceward"), log),
    Group("audit", ("onceward",), audit),
    Group("web", ("onceward",), pages),
    Group("import", ("onceward",), imports),
)
