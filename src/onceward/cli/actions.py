"""Doing one thing to several jobs: each in its own transaction, each reported, a failure stops none of the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

import typer

from onceward.calls import Call
from onceward.cli import output
from onceward.cli.session import Session
from onceward.errors import OncewardError, UnknownJob, WrongState


def act_on_each(
    session: Session,
    ids: Sequence[UUID],
    make: Callable[[UUID], Call[Any]],
    *,
    state: str | None = None,
    as_json: bool = False,
) -> None:
    """Prints `id state` per job; `state` is for calls that answer nothing.  Ends with 1 if any failed."""
    done: list[dict[str, object]] = []
    failed = 0
    for job in ids:
        try:
            answer = session.run(make(job))
        except OncewardError as error:
            failed += 1
            output.print_onceward_error(error)
        else:
            done.append({"id": job, "state": state or answer})
    if as_json:
        output.print_json(done)
    else:
        for item in done:
            print(item["id"], item["state"])
    if failed:
        if len(ids) > 1:
            output.note(f"{len(done)} of {len(ids)} done, {failed} failed")
        raise typer.Exit(1)


def act_on_many(
    session: Session, ids: Sequence[UUID], make: Callable[[UUID], Call[Any]], *, verb: str, done_word: str
) -> None:
    """For many jobs chosen by a filter: only sums are printed, with the first errors."""
    done, gone, failed = 0, 0, 0
    for job in output.progress_total(ids, verb):
        try:
            session.run(make(job))
            done += 1
        except (WrongState, UnknownJob):
            # Somebody else has dealt with it since the preview.
            gone += 1
        except OncewardError as error:
            failed += 1
            if failed <= 5:
                output.print_onceward_error(error)
    parts = [f"{output.counted(done, 'dead letter')} {done_word}"]
    parts += [f"{gone} no longer dead letters"] if gone else []
    parts += [f"{failed} failed"] if failed else []
    output.note(", ".join(parts))
    if failed:
        raise typer.Exit(1)
