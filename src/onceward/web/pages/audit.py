"""Audit: who did what, whether the log still says so, and what proves it."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime
from typing import Any
from uuid import UUID

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from onceward import calls
from onceward.audit.checkpoints import Checkpoint, checkpoint_at, make_checkpoint, parse_checkpoint
from onceward.audit.proofs import make_proof
from onceward.calls import browsing
from onceward.errors import InvalidArgument, UnknownEntry, WrongState
from onceward.model_audit import AuditEntry, AuditFilter
from onceward.model_web import Count
from onceward.web import layout, tables, verifying
from onceward.web.context import identity_of, web_of
from onceward.web.database import Acting
from onceward.web.forms import read_form
from onceward.web.identity import Identity
from onceward.web.looking import looking
from onceward.web.query import PAGE, Query, query_of

FIELDS = ("kind", "actor", "job", "entity", "id", "tenant", "since", "until")
PLACES = (("/audit", "Entries"), ("/audit/verify", "Verify"), ("/retention", "Retention and holds"))
# What people look for, as the beginning of a kind.
KINDS = (
    "job.", "lane.", "schedule.", "limit.", "delivery.", "monitor.", "alert.", "channel.", "tenant.", "operator.", "token.", "audit.",
)  # fmt: skip


def _wanted(query: Query, now: datetime, *, limit: int) -> AuditFilter:
    return AuditFilter(
        kind=query.text("kind"), actor=query.text("actor"), entity_type=query.text("entity"), entity_id=query.text("id"),
        tenant=query.text("tenant"), since=query.moment("since", now), until=query.moment("until", now),
        before=query.whole("before"), limit=limit,
    )  # fmt: skip


async def _find(
    db: Acting, query: Query, wanted: AuditFilter, job: UUID | None
) -> tuple[list[AuditEntry], Count, int | None]:
    """The entries, how many there are, and where the search has stopped."""
    if job is None:
        rows = await db.run(browsing.find_entries(wanted))
        count, stopped_at = await db.run(browsing.count_entries(wanted))
        return rows, count, stopped_at
    # Those of one job are few, and found by its id, in batches too.
    found = [entry for entry in await db.run(calls.audit_of(job)) if _matches(entry, wanted)]
    rest = [entry for entry in reversed(found) if wanted.before is None or entry.seq < wanted.before]
    return rest[: wanted.limit], Count(len(found)), None


def _matches(entry: AuditEntry, wanted: AuditFilter) -> bool:
    kind = wanted.kind
    return (
        (kind is None or entry.kind == kind or (kind.endswith(".") and entry.kind.startswith(kind)))
        and wanted.actor in {None, entry.actor}
        and wanted.entity_type in {None, entry.entity_type}
        and wanted.entity_id in {None, entry.entity_id}
        and wanted.tenant in {None, entry.tenant}
        and (wanted.since is None or entry.at >= wanted.since)
        and (wanted.until is None or entry.at < wanted.until)
    )


async def entries(request: Request) -> Response:
    query, who = query_of(request), identity_of(request)
    async with web_of(request).database.acting(who) as db:
        shown = await layout.frame(db)
        wanted = _wanted(query, shown.now, limit=PAGE + 1)
        rows, count, stopped_at = await _find(db, query, wanted, query.uuid("job"))
        # Who sees one tenant sees its entries, and not the seals, which hold those of all.
        status = None
        if who.tenant is None:
            status = await db.run(calls.audit_status())
    full = len(rows) > PAGE
    return layout.render(
        request, "pages/audit.html", shown,
        query=query, rows=rows[:PAGE], count=count, fields={name: query.text(name) or "" for name in FIELDS}, kinds=KINDS,
        kind=wanted.kind or "", following=rows[PAGE - 1].seq if full else stopped_at, looked_on=not full and stopped_at is not None,
        log=status, places=places(who), can_checkpoint=status is not None and who.acts_for_all,
    )  # fmt: skip


def places(who: Identity) -> tuple[tuple[str, str], ...]:
    return PLACES if who.tenant is None else PLACES[:1]


async def as_csv(request: Request) -> Response:
    query = query_of(request)
    async with web_of(request).database.acting(identity_of(request)) as db:
        wanted = _wanted(query, await db.run(calls.now()), limit=tables.MOST_ROWS)
        rows, _, _ = await _find(db, query, wanted, query.uuid("job"))
    return tables.csv_of("audit", AuditEntry, rows, without=("before", "after", "meta"))


def _seq_of(request: Request) -> int:
    text: str = request.path_params["seq"]
    if not text.isascii() or not text.isdecimal() or len(text) > 18:
        raise UnknownEntry("no such entry", hint="Look for it in the audit log.")
    return int(text)


async def show(request: Request) -> Response:
    seq, who = _seq_of(request), identity_of(request)
    async with web_of(request).database.acting(who) as db:
        shown = await layout.frame(db)
        entry = await db.run(calls.audit_entry(seq))
        if entry is None:
            raise UnknownEntry(
                f"audit entry {seq} does not exist",
                detail="It never did, its day was dropped, or it belongs to another tenant.",
            )
        sealed = seal = status = None
        if who.tenant is None:
            status = await db.run(calls.audit_status())
            sealed = await db.run(calls.seal_of(seq))
            if sealed.number is not None:
                (seal,) = await db.run(calls.seal_page(sealed.number - 1, 1))
    return layout.render(
        request, "pages/audit_entry.html", shown,
        entry=entry, seal=seal, place=sealed.place if sealed else None, log=status,
    )  # fmt: skip


# ---------------------------------------------------------------- proofs and checkpoints


def _check_sees_all(request: Request) -> Identity:
    who = identity_of(request)
    if who.tenant is not None:
        raise HTTPException(403, "the log is sealed as a whole, and you are bound to one tenant")
    return who


def _file(name: str, content: dict[str, Any]) -> Response:
    return Response(
        json.dumps(content, indent=2, ensure_ascii=False) + "\n",
        media_type="application/json",
        headers={"content-disposition": f'attachment; filename="{name}.json"'},
    )


async def proof(request: Request) -> Response:
    """For the checkpoint of so many seals; without a number, of those there are."""
    seq, who = _seq_of(request), _check_sees_all(request)
    seals, dsn = query_of(request).whole("seals"), web_of(request).database.dsn

    def make() -> dict[str, Any]:
        with looking(dsn, who) as look:
            return make_proof(look.run, seq, checkpoint_at(look.run, seals))

    return _file(f"proof-{seq}", await asyncio.to_thread(make))


async def checkpoint(request: Request) -> Response:
    """As the log was after so many seals: what a proof is checked against.  Nothing is sealed, nothing is recorded."""
    who, seals, dsn = _check_sees_all(request), query_of(request).whole("seals"), web_of(request).database.dsn

    def make() -> dict[str, Any]:
        with looking(dsn, who) as look:
            return checkpoint_at(look.run, seals)

    made = await asyncio.to_thread(make)
    return _file(f"checkpoint-{made['seals']}", made)


async def take_checkpoint(request: Request) -> Response:
    """Seal what is complete, and hand out the head of the log; the log says to whom."""
    who = _check_sees_all(request)
    # Each part in a transaction of its own, as workers do it.
    while (await web_of(request).database.run(who, calls.seal(), writes=True)).more:
        pass
    async with web_of(request).database.acting(who, writes=True) as db:
        status, now = await db.run(calls.audit_status()), await db.run(calls.now())
        made = make_checkpoint(status, at=now)
        if not made["seals"]:
            raise WrongState(
                "nothing is sealed yet", hint="An entry can be sealed when older transactions have ended."
            )
        head = bytes.fromhex(made["head"])
        await db.run(calls.record_checkpoint(made["seals"], head, f"download by {who.name}"))
    return _file(f"checkpoint-{made['seals']}", made)


# ---------------------------------------------------------------- verifying


async def ask_verify(request: Request) -> Response:
    who = _check_sees_all(request)
    async with web_of(request).database.acting(who) as db:
        shown = await layout.frame(db)
        status = await db.run(calls.audit_status())
    return layout.render(
        request, "pages/audit_verify.html", shown,
        log=status, news=None, problem=None, text="", places=PLACES,
    )  # fmt: skip


async def verify(request: Request) -> Response:
    """The page is sent while the log is read: it says how far, and at the end what was found."""
    who, web = _check_sees_all(request), web_of(request)
    text = (await read_form(request)).raw("checkpoint")
    problem: str | None = None
    kept: list[Checkpoint] = []
    try:
        kept = [parse_checkpoint(text, "what you have pasted")] if text.strip() else []
    except InvalidArgument as error:
        problem = error.message
    async with web.database.acting(who) as db:
        shown = await layout.frame(db)
        status = await db.run(calls.audit_status())
    context = {"log": status, "problem": problem, "text": text, "places": PLACES}
    if problem:
        return layout.render(request, "pages/audit_verify.html", shown, 400, news=None, **context)
    news = verifying.verify(web.database.dsn, who, kept, web.verifying)
    return layout.stream(request, "pages/audit_verify.html", shown, news=news, **context)


ROUTES = [
    Route("/audit", entries),
    Route("/audit.csv", as_csv),
    Route("/audit/verify", ask_verify),
    Route("/audit/verify", verify, methods=["POST"]),
    Route("/audit/checkpoint.json", checkpoint),
    Route("/audit/checkpoint", take_checkpoint, methods=["POST"]),
    Route("/audit/{seq}", show),
    Route("/audit/{seq}/proof.json", proof),
]
