"""`onceward schedule add`."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import typer

from onceward import calls, jsonsafe
from onceward.cli import output, values
from onceward.cli.framework import AsJson
from onceward.cli.session import session_of
from onceward.model import Json

MISSED = ("none", "latest", "all")
OVERLAP = ("skip", "queue", "allow")


def add(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the schedule.", show_default=False)],
    task: Annotated[str, typer.Argument(metavar="TASK", help="Name of the task.", show_default=False)],
    spec: Annotated[
        str,
        typer.Argument(
            metavar="SPEC",
            help="When: '0 7 * * mon-fri', '07:00 mon-fri' or '30 seconds'.",
            show_default=False,
        ),
    ],
    payload: Annotated[
        str, typer.Argument(metavar="PAYLOAD", help="JSON object, @file, or - for standard input.")
    ] = "{}",
    zone: Annotated[
        str | None, typer.Option(metavar="ZONE", help="Time zone, as Europe/Berlin. Without it: UTC.")
    ] = None,
    missed: Annotated[
        str,
        typer.Option(
            metavar="POLICY",
            help="Moments that passed unseen: none, latest or all.",
            autocompletion=lambda: list(MISSED),
        ),
    ] = "latest",
    catch_up: Annotated[int, typer.Option(metavar="N", help="With --missed all: at most so many.")] = 1000,
    grace: Annotated[
        str, typer.Option(metavar="DURATION", help="With --missed none: how late is not too late.")
    ] = "60s",
    overlap: Annotated[
        str,
        typer.Option(
            metavar="POLICY",
            help="While its last job has not ended: skip, queue or allow.",
            autocompletion=lambda: list(OVERLAP),
        ),
    ] = "skip",
    jitter: Annotated[
        str, typer.Option(metavar="DURATION", help="Start up to this much later, spread by the slot.")
    ] = "0s",
    lane: Annotated[str, typer.Option(metavar="NAME", help="Lane to wait in.")] = "default",
    priority: Annotated[int, typer.Option(metavar="N", help="Higher runs first, -1000 to 1000.")] = 0,
    max_attempts: Annotated[
        int, typer.Option(metavar="N", help="Attempts before a job is a dead letter.")
    ] = 8,
    timeout: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Longest time one attempt may take.")
    ] = None,
    expires_in: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Never start a job later than this after its time.")
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(
            "--app", metavar="APP", help="Check task and payload by this application: package.module:app."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Create a schedule, or change the one of this name. Code that declares it leaves it alone from then on."""
    session = session_of(ctx)
    values.one_of("--missed", missed, MISSED)
    values.one_of("--overlap", overlap, OVERLAP)
    values.whole("--catch-up", catch_up, least=1, most=100_000)
    change = session.run_in_lane(
        lane,
        calls.add_schedule(
            name,
            task=task,
            spec=spec,
            payload=_checked(task, values.payload("payload", payload), target),
            zone=zone,
            lane=lane,
            priority=priority,
            max_attempts=max_attempts,
            timeout=values.duration("--timeout", timeout, zero=False),
            expires_in=values.duration("--expires-in", expires_in, zero=False),
            missed=missed,
            catch_up=catch_up,
            grace=values.duration("--grace", grace, zero=False) or timedelta(seconds=60),
            overlap=overlap,
            jitter=values.duration("--jitter", jitter) or timedelta(0),
            tenant=None if session.tenant == "*" else session.tenant,
        ),
    )
    if as_json:
        output.print_json(change)
        return
    output.note(f'schedule "{name}" is {change.outcome}; next at {output.when(change.next_at)}')
    if task not in session.run(calls.task_names()):
        output.note(f'hint: No worker has announced task "{task}" yet.')


def _checked(task: str, payload: Json, target: str | None) -> str:
    """The payload as JSON text, checked as far as the task is known here."""
    if target is None:
        return jsonsafe.dumps(payload)
    from onceward.cli.target import load

    return load(target).tasks.find(task).dump(payload)
