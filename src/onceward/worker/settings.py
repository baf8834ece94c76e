"""How a worker runs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from onceward.logs import LogFormat

LEASE = timedelta(seconds=30)
GRACE = timedelta(seconds=30)
POLL = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """Options of `onceward worker`."""

    dsn: str | None = None
    # Lane → how many of its jobs may run here at once; None: no bound of its own.  None for all lanes of the app.
    lanes: dict[str, int | None] | None = None
    concurrency: int = 50
    processes: int = 1
    lease: timedelta = LEASE
    grace: timedelta = GRACE
    poll: timedelta = POLL
    health_port: int | None = None
    health_host: str = "127.0.0.1"
    log_format: LogFormat = "text"
    name: str | None = None
