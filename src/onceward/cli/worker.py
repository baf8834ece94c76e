"""`onceward worker` runs jobs; `onceward workers` shows who does."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal, cast

import typer

from onceward import calls
from onceward.cli import output, values
from onceward.cli.framework import AsJson
from onceward.cli.output import Column
from onceward.cli.session import session_of
from onceward.cli.values import UsageProblem

LOG_FORMATS = ("text", "json")


def worker(
    ctx: typer.Context,
    target: Annotated[
        str, typer.Argument(metavar="APP", help="The application, as package.module:app.", show_default=False)
    ],
    lanes: Annotated[
        str | None,
        typer.Option(
            metavar="LANES",
            help="Lanes to serve, in this order, each with a limit if wanted: mail,ocr=5. "
            "Without it: those that the tasks name.",
        ),
    ] = None,
    concurrency: Annotated[int, typer.Option(metavar="N", help="Jobs at once, per process.")] = 50,
    processes: Annotated[
        int,
        typer.Option(
            metavar="N", help="Worker processes, which need N + 1 connections; a single one needs 3."
        ),
    ] = 1,
    lease: Annotated[
        str,
        typer.Option(
            metavar="DURATION", help="How long a silent worker keeps its jobs before others take over."
        ),
    ] = "30s",
    grace: Annotated[
        str, typer.Option(metavar="DURATION", help="How long running jobs may go on after SIGTERM.")
    ] = "30s",
    health_port: Annotated[
        int | None,
        typer.Option(
            metavar="PORT",
            help="Serve /healthz, /readyz and /metrics on this port; further processes on the next ones.",
        ),
    ] = None,
    health_host: Annotated[
        str,
        typer.Option(metavar="ADDRESS", help="Address of the health port; 0.0.0.0 for probes from outside."),
    ] = "127.0.0.1",
    log_format: Annotated[
        str,
        typer.Option(metavar="FORMAT", help="text or json.", autocompletion=lambda: list(LOG_FORMATS)),
    ] = "text",
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name to show. Without it: host and process id.")
    ] = None,
) -> None:
    """Run the jobs of an application until stopped. The first SIGTERM drains, a second one stops at once."""
    from onceward.cli.target import load

    read_lease = values.duration("--lease", lease)
    assert read_lease is not None
    if not timedelta(seconds=1) <= read_lease <= timedelta(days=1):
        raise UsageProblem(f"--lease must be between 1s and 1d, got {lease}")
    read_grace = values.duration("--grace", grace)
    assert read_grace is not None
    served = values.lanes("--lanes", lanes)
    values.whole("--concurrency", concurrency, least=1, most=10_000)
    values.whole("--processes", processes, least=1, most=256)
    if health_port is not None:
        values.whole("--health-port", health_port, least=1, most=65_535)
    values.one_of("--log-format", log_format, LOG_FORMATS)
    # Loaded here as well: a slip in the name is answered at once, not by a process that dies.
    load(target)

    from onceward.worker import WorkerSettings, run_worker

    settings = WorkerSettings(
        dsn=session_of(ctx).dsn,
        lanes=served,
        concurrency=concurrency,
        processes=processes,
        lease=read_lease,
        grace=read_grace,
        health_port=health_port,
        health_host=health_host,
        log_format=cast("Literal['text', 'json']", log_format),
        name=name,
    )
    raise typer.Exit(run_worker(target, settings))


def workers(
    ctx: typer.Context,
    everyone: Annotated[bool, typer.Option("--all", help="Also those that have stopped.")] = False,
    as_json: AsJson = False,
) -> None:
    """List worker processes."""
    session = session_of(ctx)
    known = [info for info in session.run(calls.workers()) if everyone or info.state != "retired"]
    if as_json:
        output.print_json(known)
        return
    if not known:
        output.note("no worker is running" if not everyone else "no worker has run")
        return
    now = session.run(calls.now())
    output.print_table(
        [
            Column("WORKER"),
            Column("STATE"),
            Column("RUNNING", right=True),
            Column("LANES", flexible=16),
            Column("HEARTBEAT"),
            Column("STARTED"),
            Column("HOST", optional=True),
            Column("PID", right=True, optional=True),
            Column("LEASE", right=True, optional=True),
            Column("ID", optional=True, style="dim"),
        ],
        [
            (
                info.name,
                output.styled(info.state),
                f"{info.running}/{info.concurrency}",
                ",".join(info.lanes),
                output.ago(info.heartbeat_at, now),
                output.ago(info.started_at, now),
                info.host,
                info.pid if info.pid is not None else "-",
                output.short(info.lease),
                info.id,
            )
            for info in known
        ],
    )
