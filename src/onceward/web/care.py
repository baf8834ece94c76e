"""Who looks after a kind of failure, and what was said about it: on its own page and on those of its jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from starlette.requests import Request

from onceward import calls
from onceward.calls import access
from onceward.model_care import AssignmentInfo, CommentInfo
from onceward.web.context import identity_of, web_of
from onceward.web.database import Acting
from onceward.web.forms import Form

# People that are offered by name; any other name can be typed.
MOST_PEOPLE = 100


@dataclass(frozen=True, slots=True)
class Care:
    """What a page shows of it.  `people` may be asked to look after it."""

    assignments: list[AssignmentInfo]
    comments: list[CommentInfo]
    people: Sequence[str]

    @property
    def assignee(self) -> str | None:
        """One who looks after it for all tenants comes before one who does for some."""
        return self.assignments[0].assigned_to if self.assignments else None


async def care_of(db: Acting, task: str, fingerprint: str | None, people: Sequence[str]) -> Care:
    return Care(
        await db.run(calls.assignment_of(task, fingerprint)),
        await db.run(calls.comments_of(task, fingerprint)),
        people,
    )


async def people_for(request: Request) -> list[str]:
    """Operators who see what this one sees.  Nobody, for who may not assign."""
    who = identity_of(request)
    if not who.acts:
        return []
    found = await web_of(request).database.serve(access.operators())
    names = [
        each.name
        for each in found
        if each.disabled_at is None and each.role != "viewer" and each.tenant in {None, who.tenant}
    ]
    return sorted({who.name, *names} if who.method != "token" else set(names))[:MOST_PEOPLE]


def assigning(form: Form, task: str, fingerprint: str | None, *, me: str) -> tuple[calls.Call[bool], str]:
    """The call, and what to say about it to whoever has sent the form."""
    to = form.text("to") or None
    if to is None:
        said = "Nobody looks after it any more"
    else:
        said = "You look after it" if to == me else f"{to} looks after it"
    return calls.assign_dead_letters(task, fingerprint, to), said
