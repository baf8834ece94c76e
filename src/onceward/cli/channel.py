"""`onceward channel`: whom alerts are told."""

from __future__ import annotations

from typing import Annotated

import typer

from onceward import calls
from onceward.cli import output, values
from onceward.cli.framework import AsJson, Noun
from onceward.cli.output import Column
from onceward.cli.session import session_of
from onceward.cli.values import UsageProblem
from onceward.errors import InvalidArgument
from onceward.model import DELIVERY_KINDS, Json
from onceward.model_monitors import CHANNEL_ADDRESS, SEVERITIES, address_rule

app = Noun(help="Add, list, test and drop channels that alerts are told through.")
Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the channel.", show_default=False)]


@app.command("list")
def list_(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List channels, without their addresses."""
    session = session_of(ctx)
    found = session.run(calls.channels())
    if not found:
        session.explain_empty()
    if as_json:
        output.print_json(found)
        return
    if not found:
        output.note("no channels: alerts are recorded, and nobody is told")
        return
    output.print_table(
        [
            Column("CHANNEL"),
            Column("KIND"),
            Column("FROM SEVERITY"),
            Column("TENANT"),
            Column("BY", optional=True),
        ],
        [(info.name, info.kind, info.severity, info.tenant or "all", info.created_by) for info in found],
    )


@app.command("add")
def add(
    ctx: typer.Context,
    name: Name,
    kind: Annotated[
        str, typer.Argument(metavar="KIND", help="email, slack, telegram or webhook.", show_default=False)
    ],
    address: Annotated[
        str | None,
        typer.Argument(
            metavar="[ADDRESS]",
            help="Email address, Slack target, Telegram chat id, or URL. Slack needs none when it has one target.",
            show_default=False,
        ),
    ] = None,
    severity: Annotated[
        str, typer.Option(metavar="SEVERITY", help="Tell from this severity on: info, warning or critical.")
    ] = "warning",
    target: Annotated[
        str | None,
        typer.Option(metavar="JSON", help='More fields of the delivery, as {"from": …}: JSON, @file or -.'),
    ] = None,
) -> None:  # fmt: skip
    """Add a channel, or change one. With --tenant, it is told of that tenant's alerts only."""
    session = session_of(ctx)
    values.one_of("KIND", kind, DELIVERY_KINDS)
    fields: dict[str, Json] = {}
    if target is not None:
        read = values.payload("--target", target)
        if not isinstance(read, dict):
            raise UsageProblem(f"--target must be a JSON object, not {values.kind_of(read)}")
        fields = read
    if address is not None:
        fields[CHANNEL_ADDRESS[kind]] = address
    tenant = None if session.tenant == "*" else session.tenant
    severity = values.one_of("--severity", severity, SEVERITIES)
    try:
        new = session.run(calls.add_channel(name, kind, fields, severity=severity, tenant=tenant))
    except InvalidArgument as error:
        rule = address_rule(kind, error.message)
        if rule is None or target is not None:
            raise
        raise InvalidArgument(f"ADDRESS {rule}", detail=error.detail) from None
    output.note(f'channel "{name}" is {"added" if new else "changed"}')
    if new:
        output.note(f'hint: Try it with "onceward channel test {name}".')


@app.command("test")
def try_out(ctx: typer.Context, name: Name, as_json: AsJson = False) -> None:
    """Send a test message through a channel, and print the id of its delivery."""
    session = session_of(ctx)
    delivery = session.run(calls.test_channel(name))
    if as_json:
        output.print_json({"id": delivery})
    else:
        print(delivery)
        output.note(f'hint: "onceward delivery show {delivery}" tells what became of it.')
        kind = next((info.kind for info in session.run(calls.channels()) if info.name == name), None)
        for unsent in session.run(calls.unsent_kinds()):
            if unsent.kind == kind:
                output.note(
                    f"warning: {output.counted(unsent.waiting, 'message')} of this kind wait: {unsent.why}"
                )


@app.command("drop")
def drop(ctx: typer.Context, name: Name) -> None:
    """Remove a channel."""
    session_of(ctx).run(calls.drop_channel(name))
    output.note(f'channel "{name}" is gone')
