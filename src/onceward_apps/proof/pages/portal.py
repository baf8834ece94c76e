"""What the pages of the portal share: who looks, with which rights, and how a refusal is told."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from onceward.web import layout
from onceward.web.context import identity_of, web_of
from onceward.web.identity import Identity
from onceward_apps.proof import store
from onceward_apps.proof.domain import STEPS
from onceward_apps.proof.pages.serving import static

# Words and shapes of the engine's chips for the states of the contract.
JOB_CHIPS = {
    "queued": "ready", "claimed": "running", "done": "done", "failed": "scheduled", "dead_letter": "dead_letter",
    "resolved_manual": "resolved",
}  # fmt: skip
STATUS_CHIPS = {"QA_HOLD": "blocked", "RELEASED": "done", "REJECTED": "dead_letter"}
STATUS_WORDS = {"QA_HOLD": "QA hold", "RELEASED": "released", "REJECTED": "rejected"}
RECALLED = "recalled"
STEP_WORDS = dict(
    zip(STEPS, ("QR code drawn", "QR code stored", "Label drawn", "Label stored", "Email sent"), strict=True)
)


@dataclass(frozen=True, slots=True)
class Look:
    """A transaction that only reads, and the frame around the page."""

    request: Request
    connection: store.Connection
    frame: layout.Frame

    def show(self, template: str, status: int = 200, **context: Any) -> Response:
        return layout.render(
            self.request, f"proof/{template}", self.frame, status,
            static=static, job_chips=JOB_CHIPS, status_chips=STATUS_CHIPS, status_word=status_word, steps=STEP_WORDS, **context,
        )  # fmt: skip


@contextlib.asynccontextmanager
async def looking(request: Request) -> AsyncIterator[Look]:
    """For everybody who belongs to the company: the proof system is the tenant `default`."""
    who = _insider(request)
    async with web_of(request).database.acting(who) as db:
        # Compiling the view of jobs takes longer than running it.
        await store.call(db.connection, "select set_config('jit', 'off', true)")
        yield Look(request, db.connection, await layout.frame(db))


@contextlib.asynccontextmanager
async def changing(request: Request) -> AsyncIterator[store.Connection]:
    """One transaction in the name of who pressed the button.  The gate has checked role and form."""
    async with web_of(request).database.acting(_insider(request), writes=True) as db:
        yield db.connection


def _insider(request: Request) -> Identity:
    who = identity_of(request)
    if who.tenant not in {None, "default"}:
        raise HTTPException(404)
    return who


def status_word(status: str, *, recalled: bool = False) -> str:
    """A recalled batch has the status of a rejected one, and was on sale."""
    return RECALLED if recalled else STATUS_WORDS[status]


def id_of(request: Request, name: str = "id") -> UUID:
    try:
        return UUID(request.path_params[name])
    except ValueError:
        raise HTTPException(404) from None


async def get_batch(connection: store.Connection, batch_id: UUID) -> dict[str, Any]:
    """Raises HTTPException when there is none."""
    found: dict[str, Any] | None = await store.call(
        connection, "select raw_ops.fn_get_portal_batch_v1(%s)", batch_id
    )
    if found is None:
        raise HTTPException(404)
    return found
