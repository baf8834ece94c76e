"""`onceward bench`: measure on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onceward.cli.framework import AsJson
from onceward.cli.values import UsageProblem
from onceward.errors import InvalidArgument


def bench(
    as_json: AsJson = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Less of everything, for a first impression.")
    ] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="NAMES", help="Only these measurements; repeat it or use commas."),
    ] = None,
    repeats: Annotated[
        int | None, typer.Option(metavar="N", help="How often each is measured: 3, with --quick 1.")
    ] = None,
    result_file: Annotated[
        str | None,
        typer.Option("--output", metavar="FILE", help="Also write the results to this file, as JSON."),
    ] = None,
    no_peers: Annotated[bool, typer.Option("--no-peers", help="Only Onceward and the raw limit.")] = False,
) -> None:
    """Measure this machine: Onceward beside the raw limit and a peer."""
    from onceward.bench import main as bench_main

    names = [part.strip() for value in only or () for part in value.split(",") if part.strip()]
    try:
        status = bench_main(
            as_json=as_json,
            quick=quick,
            only=names or None,
            repeats=repeats,
            output=Path(result_file) if result_file else None,
            peers=not no_peers,
        )
    except InvalidArgument as error:
        raise UsageProblem(error.message, hint=error.hint) from None
    raise typer.Exit(status)
