"""`onceward run`: what runs once per key, and who holds it."""

from __future__ import annotations

from typing import Annotated

import typer

from onceward import calls
from onceward.cli import output, values
from onceward.cli.framework import AsJson, Noun
from onceward.cli.output import Column
from onceward.cli.session import session_of
from onceward.cli.values import UsageProblem
from onceward.errors import OncewardError, shown
from onceward.model_schedules import RunInfo

app = Noun(help="List and show runs by their keys.")
STATES = ("running", "completed", "failed")


class UnknownRun(OncewardError):
    """There is no run of this key."""


@app.command("list")
def list_(
    ctx: typer.Context,
    prefix: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Only keys that begin so, as detect-alerts:acme.")
    ] = None,
    state: Annotated[
        str | None,
        typer.Option(
            metavar="STATE", help="running, completed or failed.", autocompletion=lambda: list(STATES)
        ),
    ] = None,
    limit: Annotated[int, typer.Option(metavar="N", help="At most so many, the latest first.")] = 50,
    as_json: AsJson = False,
) -> None:
    """List runs, the latest first."""
    session = session_of(ctx)
    values.whole("--limit", limit, least=1, most=10_000)
    if state is not None:
        values.one_of("--state", state, STATES)
    tenant = None if session.tenant == "*" else session.tenant
    found = session.run(calls.runs(prefix=prefix, state=state, tenant=tenant, limit=limit))
    if as_json:
        output.print_json(found)
    if not found:
        session.explain_empty()
        if not as_json:
            output.note("no runs")
    if as_json or not found:
        return
    now = session.run(calls.now())
    output.print_table(
        [
            Column("KEY"),
            Column("STATE"),
            Column("HOLDER"),
            Column("SINCE"),
            Column("ENDED"),
            Column("ATTEMPT", right=True),
            Column("ERROR", optional=True, flexible=20),
            Column("TENANT", optional=True),
        ],
        [
            (
                info.key,
                output.styled(_state(info)),
                info.holder,
                output.ago(info.since, now),
                output.ago(info.finished_at, now),
                info.attempt,
                info.error or "-",
                info.tenant,
            )
            for info in found
        ],
    )


def _state(info: RunInfo) -> str:
    return "abandoned" if info.abandoned else info.state


@app.command("show")
def show(
    ctx: typer.Context,
    key: Annotated[str, typer.Argument(metavar="KEY", help="The run's key.", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """Show one run: who holds it since when, its result or its error."""
    session = session_of(ctx)
    tenant = None if session.tenant == "*" else session.tenant
    found = session.run(calls.runs(key=key, tenant=tenant))
    if not found:
        session.explain_empty()
        raise UnknownRun(f'run "{shown(key)}" does not exist', hint='Keys are listed by "onceward run list".')
    if len(found) > 1:
        raise UsageProblem(
            f'run "{shown(key)}" exists for {len(found)} tenants', hint="Name one with --tenant."
        )
    info = found[0]
    if as_json:
        output.print_json(info)
        return
    now = session.run(calls.now())
    output.print_fields(
        [
            ("run", info.key),
            ("state", output.styled(_state(info))),
            ("holder", info.holder),
            ("since", output.when_and_ago(info.since, now)),
            ("lease ends", output.when_and_ago(info.expires_at, now) if info.expires_at else None),
            ("ended", output.when_and_ago(info.finished_at, now) if info.finished_at else None),
            ("attempt", info.attempt),
            ("result", None if info.result is None else output.compact_json(info.result)),
            ("error", info.error),
            ("tenant", info.tenant),
        ]
    )
