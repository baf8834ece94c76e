"""`onceward demo`: twenty seconds in the life of a shop, on a real PostgreSQL, with real worker processes.

`tasks` is what the worker runs; `story` enqueues, watches, kills and mends; `stage` shows it; `workers` are the processes.
"""

from __future__ import annotations

from onceward.demo.tasks import app

__all__ = ["app", "run"]


def run() -> int:
    """Tell the story; returns the exit status.  Ends every process it started, also on Ctrl-C."""
    # The worker imports this package, too, and needs its tasks only.
    from onceward.demo.story import run as tell

    return tell()
