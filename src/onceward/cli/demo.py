"""`onceward demo`: a first look."""

from __future__ import annotations


def demo() -> None:
    """Watch jobs run, fail, retry and come back. Uses the embedded PostgreSQL."""
    from onceward import demo as show

    show.run()
