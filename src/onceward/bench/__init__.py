"""Benchmarks: Onceward beside the raw limit and a peer, in one run on one machine."""

from __future__ import annotations

from pathlib import Path

__all__ = ["main"]


def main(
    *,
    as_json: bool,
    quick: bool,
    only: list[str] | None = None,
    repeats: int | None = None,
    output: Path | None = None,
    peers: bool = True,
) -> int:
    """`onceward bench`.  Returns the exit code: 1 when something could not be measured, 130 when interrupted.

    Raises InvalidArgument when `only` names an unknown measurement.
    """
    # The programs of peers live in this package and run where Onceward's dependencies are missing.
    from onceward.bench.command import run

    return run(as_json=as_json, quick=quick, only=only, repeats=repeats, output=output, peers=peers)
