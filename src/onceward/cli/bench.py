"""`onceward bench`: measure on this machine."""

from __future__ import annotations

from typing import Annotated

import typer

from onceward.cli.framework import AsJson


def bench(
    ctx: typer.Context,
    as_json: AsJson = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="A tenth of the work, for a first impression.")
    ] = False,
    only: Annotated[
        str | None, typer.Option(metavar="NAMES", help="Only these measurements, separated by commas.")
    ] = None,
    result_file: Annotated[
        str | None,
        typer.Option("--output", metavar="FILE", help="Also write the results to this file, as JSON."),
    ] = None,
) -> None:
    """Measure enqueue, drain and latency on this machine, beside the raw limit and a peer."""
    from onceward.bench import main as bench_main

    arguments = ["--json"] if as_json else []
    arguments += ["--quick"] if quick else []
    arguments += ["--only", only] if only else []
    arguments += ["--output", result_file] if result_file else []
    raise typer.Exit(bench_main(arguments) or 0)
