"""How much is measured.  Counts are fixed, times are capped: a run on a slow machine ends, too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sizes:
    repeats: int
    # Single enqueue, for so many seconds.
    single_seconds: float
    bulk_jobs: int
    transactions: int
    # Jobs to drain, by system; sized to some seconds each.
    drain_jobs: Mapping[str, int]
    thread_jobs: int
    # Start latency: so many jobs, one every so many seconds, after so many seconds of idleness.
    latency_jobs: int
    latency_gap: float
    latency_rest: float
    # Growth: bursts onto an empty queue, and a deep queue seen through windows.
    shallow: int
    bursts: int
    deep: int
    deep_scheduled: int
    windows: int
    window_seconds: float
    window_delay: float
    horizon_jobs: int
    keys_jobs: int
    keys: int
    limits_jobs: int
    # Fairness: the backlog of one tenant, and the jobs of the other, one every 50 ms.
    noise_jobs: int
    quiet_jobs: int
    steps_jobs: int
    log_jobs: int
    audit_jobs: int
    # Pages and reads of the API: so many times each, beside so many jobs.
    archived_jobs: int
    live_jobs: int
    page_reads: int
    imports: int
    # Longest time for one drain; then the rate is that of what was handled.
    cap_seconds: float

    @property
    def chunk(self) -> int:
        """Jobs per bulk call."""
        return 1000


FULL = Sizes(
    repeats=3,
    single_seconds=2.5,
    bulk_jobs=200_000,
    transactions=1000,
    drain_jobs={"raw_200": 200_000, "raw_1000": 300_000, "pgqueuer": 80_000, "onceward": 250_000},
    thread_jobs=80_000,
    latency_jobs=200,
    latency_gap=0.05,
    latency_rest=1.5,
    shallow=10_000,
    bursts=8,
    deep=1_000_000,
    deep_scheduled=1_000_000,
    windows=3,
    window_seconds=3.0,
    window_delay=2.0,
    horizon_jobs=200_000,
    keys_jobs=100_000,
    keys=1000,
    limits_jobs=100_000,
    noise_jobs=200_000,
    quiet_jobs=100,
    steps_jobs=10_000,
    log_jobs=50_000,
    audit_jobs=150_000,
    archived_jobs=1_000_000,
    live_jobs=100_000,
    page_reads=40,
    imports=7,
    cap_seconds=60.0,
)

# A tenth of the work, for a first impression: the windows are too short for more than that.
QUICK = Sizes(
    repeats=1,
    single_seconds=0.7,
    bulk_jobs=30_000,
    transactions=200,
    drain_jobs={"raw_200": 40_000, "raw_1000": 60_000, "pgqueuer": 15_000, "onceward": 50_000},
    thread_jobs=10_000,
    latency_jobs=60,
    latency_gap=0.05,
    latency_rest=0.5,
    shallow=10_000,
    bursts=3,
    deep=100_000,
    deep_scheduled=100_000,
    windows=2,
    window_seconds=0.5,
    window_delay=0.3,
    horizon_jobs=40_000,
    keys_jobs=10_000,
    keys=100,
    limits_jobs=20_000,
    noise_jobs=20_000,
    quiet_jobs=40,
    steps_jobs=1_000,
    log_jobs=10_000,
    audit_jobs=40_000,
    archived_jobs=100_000,
    live_jobs=10_000,
    page_reads=20,
    imports=3,
    cap_seconds=20.0,
)

# For tests: does it work, not how fast.
TINY = Sizes(
    repeats=1,
    single_seconds=0.05,
    bulk_jobs=300,
    transactions=10,
    drain_jobs={"raw_200": 500, "raw_1000": 500, "pgqueuer": 500, "onceward": 500},
    thread_jobs=200,
    latency_jobs=5,
    latency_gap=0.02,
    latency_rest=0.0,
    shallow=200,
    bursts=1,
    deep=500,
    deep_scheduled=300,
    windows=1,
    window_seconds=0.2,
    window_delay=0.0,
    horizon_jobs=300,
    keys_jobs=200,
    keys=10,
    limits_jobs=300,
    noise_jobs=300,
    quiet_jobs=5,
    steps_jobs=100,
    log_jobs=200,
    audit_jobs=300,
    archived_jobs=2_000,
    live_jobs=1_000,
    page_reads=2,
    imports=1,
    cap_seconds=20.0,
)
