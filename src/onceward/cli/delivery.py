"""`onceward delivery`: outside effects, and those whose outcome a person has to decide."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

import typer
from rich.text import Text

from onceward import calls
from onceward.cli import output, values
from onceward.cli.actions import act_on_each
from onceward.cli.framework import AsJson, Noun
from onceward.cli.output import Column
from onceward.cli.session import Session, session_of
from onceward.errors import UnknownJob
from onceward.model import DELIVERY_KINDS, DELIVERY_STATES, DELIVERY_WAITS, DeliveryFilter, DeliveryInfo

app = Noun(help="List, show, decide and cancel deliveries.")
DECISIONS = ("sent", "send-again", "abandon")
Id = Annotated[str, typer.Argument(metavar="ID", help="Id of the delivery.", show_default=False)]
Ids = Annotated[list[str], typer.Argument(metavar="ID...", help="Ids of deliveries.", show_default=False)]


@app.command("list")
def list_(
    ctx: typer.Context,
    state: Annotated[
        list[str] | None,
        typer.Option(
            metavar="STATES",
            help="Only these states; repeat it or use commas.",
            autocompletion=lambda: list(DELIVERY_STATES),
        ),
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option(metavar="KIND", help="Only email, slack, telegram or webhook."),
    ] = None,
    key: Annotated[str | None, typer.Option(metavar="KEY", help="Only this key.")] = None,
    limit: Annotated[int, typer.Option(metavar="N", help="At most this many.")] = 50,
    before: Annotated[
        str | None, typer.Option(metavar="ID", help="Go on after this delivery of the previous page.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List deliveries, newest first."""
    session = session_of(ctx)
    wanted = DeliveryFilter(
        states=values.many_of("--state", state, DELIVERY_STATES),
        kind=values.one_of("--kind", kind, DELIVERY_KINDS) if kind is not None else None,
        key=key,
        tenant=None if session.tenant == "*" else session.tenant,
        limit=values.whole("--limit", limit, least=1, most=100_000),
        before=values.delivery_id(before) if before else None,
    )
    found = session.run(calls.deliveries(wanted))
    if not found:
        session.explain_empty()
    if as_json:
        output.print_json(found)
        return
    _print_list(session, found, limit)


def _print_list(session: Session, found: list[DeliveryInfo], limit: int) -> None:
    if not found:
        output.note("no deliveries")
        return
    now = session.run(calls.now())
    tenants = {delivery.tenant for delivery in found} != {"default"}
    output.print_table(
        [
            Column("ID"),
            Column("STATE"),
            Column("KIND"),
            Column("KEY", flexible=16),
            Column("TRIES", right=True),
            Column("CREATED"),
            *([Column("TENANT", optional=True)] if tenants else []),
            Column("NEXT TRY", optional=True),
            Column("ERROR", optional=True, flexible=24),
        ],
        [
            (
                delivery.id,
                output.styled(delivery.state),
                delivery.kind,
                delivery.key,
                delivery.tries,
                output.ago(delivery.created_at, now),
                *([delivery.tenant] if tenants else []),
                output.ago(delivery.next_try_at, now),
                delivery.message or "-",
            )
            for delivery in found
        ],
    )
    if len(found) == limit:
        output.note(f"there may be more: add --before {found[-1].id}")


@app.command("show")
def show(
    ctx: typer.Context,
    delivery: Id,
    content: Annotated[
        bool, typer.Option("--content", help="Also what is sent, and to whom; for operators.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show one delivery: where it stands, why, and what to do about it."""
    session = session_of(ctx)
    found = find(session, values.delivery_id(delivery))
    sent = session.run(calls.delivery_content(found.id)) if content else None
    if as_json:
        output.print_json({**output.to_json(found), **({"content": sent} if content else {})})
        return
    now = session.run(calls.now())
    title = Text(f"Delivery {found.id}  ", style="bold")
    title.append_text(output.styled(found.state))
    output.stdout().print(title)
    why = session.run(calls.explain(found.id))[0] if found.state == "pending" else None
    waits = [why.sentence] if why is not None and why.reason in DELIVERY_WAITS else None
    for sentence in waits or what_happened(found, now):
        output.print_wrapped(sentence, indent=2)
    output.stdout().print()
    output.print_fields(_facts(found, now))
    if content:
        output.heading("Content")
        output.print_json(sent)


def find(session: Session, delivery: UUID) -> DeliveryInfo:
    found = session.run(calls.delivery(delivery))
    # A role that sees every tenant was asked to look at one.
    if found is None or session.tenant not in {None, "*", found.tenant}:
        session.explain_empty()
        raise UnknownJob(
            f"delivery {delivery} does not exist", hint='Look for it with "onceward delivery list".'
        )
    return found


def what_happened(found: DeliveryInfo, now: datetime) -> list[str]:
    """Where the delivery stands and why, in a few sentences."""
    why = [f"{found.message}."] if found.message else []
    match found.state:
        case "pending" if found.next_try_at is not None and found.tries:
            return [f"Not sent yet; tried again {output.ago(found.next_try_at, now)}.", *why]
        case "pending":
            return ["Waits for a worker of the lane deliveries."]
        case "sending" if found.next_try_at is not None:
            again = output.ago(found.next_try_at, now)
            return [f"May have arrived; asked again {again}, with the same idempotency key.", *why]
        case "sending":
            return [f"Being sent since {output.when_and_ago(found.sending_at, now)}."]
        case "uncertain":
            return [
                "May have arrived, and nobody knows. A person decides.",
                *why,
                f'Next: "onceward delivery decide {found.id} sent|send-again|abandon --note …".',
            ]
        case "abandoned" if found.decided_by is not None:
            again = f'"onceward job requeue {found.id}" sends it all the same.'
            return [f"Given up, and left at that by {found.decided_by}.", *why, again]
        case "abandoned":
            return [
                f"Given up after {output.counted(found.tries, 'try', 'tries')}.",
                *why,
                f'Next: "onceward delivery decide {found.id} send-again --note …", or abandon to leave it.',
            ]
        case _:
            return [f"{found.state.capitalize()} {output.ago(found.ended_at, now)}."]


def _facts(found: DeliveryInfo, now: datetime) -> list[tuple[str, object]]:
    return [
        ("kind", found.kind),
        ("key", found.key),
        ("tenant", found.tenant),
        ("tries", found.tries),
        ("provider", found.provider),
        ("reference", found.provider_ref),
        ("created", output.when_and_ago(found.created_at, now)),
        ("first try", output.when_and_ago(found.first_try_at, now) if found.first_try_at else None),
        ("unclear since", output.when_and_ago(found.unclear_since, now) if found.unclear_since else None),
        ("ended", output.when_and_ago(found.ended_at, now) if found.ended_at else None),
        ("error", f"{found.category}: {found.message}" if found.message else None),
        ("decided by", found.decided_by),
        ("note", found.note),
        ("alert", "about another delivery" if found.is_alert else None),
    ]


@app.command("decide")
def decide(
    ctx: typer.Context,
    delivery: Id,
    decision: Annotated[
        str,
        typer.Argument(metavar="DECISION", help="sent, send-again or abandon.", show_default=False),
    ],
    note: Annotated[
        str, typer.Option(metavar="TEXT", help="How you know; kept with the delivery.", show_default=False)
    ],
    as_json: AsJson = False,
) -> None:
    """Settle an uncertain delivery: it arrived, is sent again, or is given up. One that was given up is sent again, or left."""
    chosen = values.one_of("decision", decision, DECISIONS).replace("-", "_")
    act_on_each(
        session_of(ctx),
        [values.delivery_id(delivery)],
        lambda which: calls.decide_delivery(which, chosen, note),
        as_json=as_json,
    )


@app.command("cancel")
def cancel(
    ctx: typer.Context,
    deliveries: Ids,
    reason: Annotated[str | None, typer.Option(metavar="TEXT", help="Why; kept with the job.")] = None,
    as_json: AsJson = False,
) -> None:
    """Cancel deliveries that wait; one that is being sent is brought to its end."""
    act_on_each(
        session_of(ctx),
        values.delivery_ids(deliveries),
        lambda which: calls.cancel(which, reason),
        as_json=as_json,
    )
