"""`onceward dead-letter assign`, `comment` and `comments`: who looks after a kind of failure, and what they say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated
from uuid import UUID

import typer

from onceward import calls
from onceward.cli import job as job_commands
from onceward.cli import output, values
from onceward.cli.framework import AsJson
from onceward.cli.session import Session, session_of
from onceward.cli.values import UsageProblem
from onceward.errors import WrongState

SomeId = Annotated[
    str | None,
    typer.Argument(
        metavar="[ID]",
        help="A dead letter; or name the kind of failure with --task and --fingerprint.",
        show_default=False,
    ),
]
Task = Annotated[str | None, typer.Option(metavar="NAME", help="The task that failed.")]
Fingerprint = Annotated[str | None, typer.Option(metavar="HEX", help="The fingerprint of its failures.")]


@dataclass(frozen=True)
class Kind:
    """A task and a fingerprint; with the job that stands for them, where one was named."""

    task: str
    fingerprint: str | None
    job: UUID | None


def _kind(session: Session, job: str | None, task: str | None, fingerprint: str | None) -> Kind:
    if job is not None and (task is not None or fingerprint is not None):
        raise UsageProblem(
            "an id and --task or --fingerprint cannot be given together", hint="Use one or the other."
        )
    if job is None:
        if task is None:
            raise UsageProblem(
                "no dead letter is named", hint="Give an id, or --task and --fingerprint of a group."
            )
        return Kind(task, fingerprint, None)
    found = job_commands.find(session, values.job_ids([job])[0])
    if found.state != "dead_letter":
        raise WrongState(f"job {found.id} is no dead letter", detail=f'It is in state "{found.state}".')
    error = found.last_error if isinstance(found.last_error, dict) else {}
    known = error.get("fingerprint")
    return Kind(found.task, known if isinstance(known, str) else None, found.id)


def assign(
    ctx: typer.Context,
    job: SomeId = None,
    task: Task = None,
    fingerprint: Fingerprint = None,
    to: Annotated[str | None, typer.Option(metavar="NAME", help="Who looks after them.")] = None,
    nobody: Annotated[bool, typer.Option("--nobody", help="Nobody looks after them any more.")] = False,
) -> None:
    """Say who looks after dead letters that fail alike, also those that come later."""
    if (to is None or not to.strip()) != nobody:
        raise UsageProblem(
            "--to or --nobody is missing" if not nobody else "--to and --nobody exclude each other"
        )
    session = session_of(ctx)
    kind = _kind(session, job, task, fingerprint)
    changed = session.run(calls.assign_dead_letters(kind.task, kind.fingerprint, to))
    who = f"{to} looks after them" if to else "nobody looks after them"
    output.note(who if changed else f"{who} already")


def comment(
    ctx: typer.Context,
    job: SomeId = None,
    task: Task = None,
    fingerprint: Fingerprint = None,
    text: Annotated[str | None, typer.Option(metavar="TEXT", help="What there is to say; required.")] = None,
) -> None:
    """Say something about dead letters that fail alike; it is kept with them and in the audit log."""
    if text is None or not text.strip():
        raise UsageProblem("--text is missing", hint='Say it: --text "the bank is down, we wait".')
    session = session_of(ctx)
    kind = _kind(session, job, task, fingerprint)
    session.run(calls.comment_dead_letters(kind.task, kind.fingerprint, text, kind.job))
    output.note("said")


def comments(
    ctx: typer.Context,
    job: SomeId = None,
    task: Task = None,
    fingerprint: Fingerprint = None,
    as_json: AsJson = False,
) -> None:
    """Show who looks after dead letters that fail alike, and what was said about them."""
    session = session_of(ctx)
    kind = _kind(session, job, task, fingerprint)
    assignments = session.run(calls.assignment_of(kind.task, kind.fingerprint))
    thread = session.run(calls.comments_of(kind.task, kind.fingerprint))
    if as_json:
        output.print_json({"assignments": assignments, "comments": thread})
        return
    now = session.run(calls.now())
    for each in assignments:
        of = f" for tenant {each.tenant}" if each.tenant else ""
        output.note(f"{each.assigned_to} looks after them{of}, since {output.ago(each.assigned_at, now)}")
    if not assignments:
        output.note("nobody looks after them yet")
    for said in thread:
        about = f" about {said.job_id}" if said.job_id else ""
        output.print_text(f"{output.one_line(said.author)}, {output.ago(said.said_at, now)}{about}:")
        output.print_text(f"  {said.body}")
