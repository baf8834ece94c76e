"""`onceward metrics`: the gauges of the database, for a person or a collector that reads files."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from onceward import calls
from onceward.cli import output, values
from onceward.cli.framework import AsJson
from onceward.cli.session import session_of
from onceward.metrics import exposition


def metrics(
    ctx: typer.Context,
    most: Annotated[
        int, typer.Option(metavar="N", help="Where counts stop: higher is exact for longer, and dearer.")
    ] = 100_000,
    as_json: AsJson = False,
) -> None:
    """Print gauges of the database as Prometheus reads them."""
    session = session_of(ctx)
    samples = session.run(calls.metrics(values.whole("--most", most, least=1, most=100_000_000)))
    if as_json:
        output.print_json(samples)
    else:
        sys.stdout.write(exposition(samples).decode())
