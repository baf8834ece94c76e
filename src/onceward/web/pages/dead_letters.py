"""Dead letters as an inbox: kinds of failure on the left, the story of one on the right, looked after and decided there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from urllib.parse import urlencode
from uuid import UUID

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from onceward import calls
from onceward.calls import browsing
from onceward.errors import UnknownJob
from onceward.model import DeadLetterGroup, DeadLetterInfo, JobFilter
from onceward.web import bulk, layout, reading, tables
from onceward.web.care import assigning, care_of, people_for
from onceward.web.context import identity_of, web_of
from onceward.web.database import Acting
from onceward.web.filling import Filling
from onceward.web.forms import read_form
from onceward.web.layout import Flash
from onceward.web.query import Query, query_of

MOST_GROUPS, SAMPLE = 100, 20
# Whose kinds of failure are listed.
WHOSE = {"mine": "mine", "nobody": "nobody's"}
Kind = tuple[str, str | None]


def _wanted(query: Query, *, limit: int) -> JobFilter:
    return JobFilter(
        lane=query.text("lane"),
        task=query.text("task"),
        tenant=query.text("tenant"),
        error=query.text("error"),
        fingerprint=query.text("fingerprint"),
        limit=limit,
    )


def address(group: DeadLetterGroup, action: str = "") -> str:
    return kind_address(group.task, group.fingerprint, action)


def kind_address(task: str, fingerprint: str | None, action: str = "") -> str:
    pairs = {"task": task, **({"fingerprint": fingerprint} if fingerprint else {})}
    return f"/dead-letters{action}?{urlencode(pairs)}"


async def inbox(request: Request) -> Response:
    query, who = query_of(request), identity_of(request)
    whose = query.many("whose", tuple(WHOSE))
    people = await people_for(request)
    async with web_of(request).database.acting(who) as db:
        shown = await layout.frame(db)
        groups = await db.run(calls.dead_letter_groups(JobFilter(limit=MOST_GROUPS)))
        assignees = await _assignees(db)
        found = bool(groups)
        groups = [group for group in groups if _is_wanted(group, whose, assignees, who.name)]
        total = sum(group.count for group in groups)
        chosen = next(
            (g for g in groups if (g.task, g.fingerprint) == (query.text("task"), query.text("fingerprint"))),
            None,
        )
        was_chosen = chosen is not None
        chosen = chosen or (groups[0] if groups and not query.text("task") else None)
        letters: list[DeadLetterInfo] = []
        attempts, care = [], None
        if chosen is not None:
            letters = await db.run(calls.dead_letters(_of(chosen, SAMPLE)))
            attempts = await db.run(calls.attempts(chosen.id))
            care = await care_of(db, chosen.task, chosen.fingerprint, people)
    following = groups[(groups.index(chosen) + 1) % len(groups)] if chosen else None
    return layout.render(
        request, "pages/dead_letters.html", shown,
        groups=groups, chosen=chosen, was_chosen=was_chosen, letters=letters, address=address, following=following,
        trace=next((attempt.traceback for attempt in reversed(attempts) if attempt.traceback), None),
        total=total, found=found, gone=bool(query.text("task")) and chosen is None, care=care, query=query, assignees=assignees,
        whose=whose, all_whose=WHOSE, these=query.with_(task=None, fingerprint=None).removeprefix(query.path),
    )  # fmt: skip


async def _assignees(db: Acting) -> dict[Kind, str]:
    found: dict[Kind, str] = {}
    for each in await db.run(calls.assignments()):
        found.setdefault((each.task, each.fingerprint), each.assigned_to)
    return found


def _is_wanted(group: DeadLetterGroup, whose: list[str], assignees: Mapping[Kind, str], me: str) -> bool:
    assignee = assignees.get((group.task, group.fingerprint))
    return not whose or ("mine" in whose and assignee == me) or ("nobody" in whose and assignee is None)


def _of(group: DeadLetterGroup, limit: int) -> JobFilter:
    return JobFilter(task=group.task, fingerprint=group.fingerprint, limit=limit)


async def as_csv(request: Request) -> Response:
    wanted = _wanted(query_of(request), limit=tables.MOST_ROWS)
    found = await web_of(request).database.run(identity_of(request), calls.dead_letters(wanted))
    return tables.csv_of("dead-letters", DeadLetterInfo, found, without=("payload",))


async def ask(request: Request) -> Response:
    """How many, and which, before anything is done."""
    return await _asked(request, Filling())


async def _asked(request: Request, filling: Filling, ids: Sequence[UUID] | None = None) -> Response:
    """The page that asks; when its form comes back with a problem, about the same jobs as before."""
    query = query_of(request, "/dead-letters")
    verb = request.url.path.rpartition("/")[2]
    async with web_of(request).database.acting(identity_of(request)) as db:
        shown = await layout.frame(db)
        groups = await _groups(db, query, identity_of(request).name)
        if ids is None:
            ids = await _ids(db, query, groups)
    return layout.render(
        request, "pages/dead_letters_ask.html", shown, 200 if filling.is_good else 400,
        verb=verb, count=sum(group.count for group in groups), groups=groups[:10], more=len(groups) > 10,
        meant=len(ids), ids=bulk.packed(ids), suffix=query.suffix, back=f"/dead-letters{query.suffix}", filling=filling,
    )  # fmt: skip


async def _groups(db: Acting, query: Query, me: str) -> list[DeadLetterGroup]:
    """The kinds of failure that the address means."""
    groups = await db.run(calls.dead_letter_groups(_wanted(query, limit=MOST_GROUPS)))
    whose = query.many("whose", tuple(WHOSE))
    assignees = await _assignees(db) if whose else {}
    return [group for group in groups if _is_wanted(group, whose, assignees, me)]


async def _ids(db: Acting, query: Query, groups: Sequence[DeadLetterGroup]) -> list[UUID]:
    """Oldest first: the order in which they would have run."""
    wanted = _wanted(query, limit=bulk.MOST)
    if not query.many("whose", tuple(WHOSE)):
        return await db.run(calls.dead_letter_ids(wanted))
    found: list[UUID] = []
    for group in groups:
        of_kind = replace(wanted, task=group.task, fingerprint=group.fingerprint)
        ids = await db.run(calls.dead_letter_ids(of_kind))
        found += ids
    # An id begins with the time when the job was made.
    return sorted(found)[: bulk.MOST]


async def act(request: Request) -> Response:
    form = await read_form(request)
    verb = request.url.path.rpartition("/")[2]
    web, who = web_of(request), identity_of(request)
    seen = bulk.unpacked(form.raw("ids"))
    filling = Filling(form, "", {"rate": "the number of jobs a minute", "note": "the note"})
    rate = filling.read("rate", partial(reading.whole_or_none, least=1, most=100_000))
    note = form.text("note")
    if verb == "resolve" and not note:
        filling.blame(
            "note", "the note is missing", "Say how they were settled; it is kept with each of them."
        )
    if not filling.is_good:
        return await _asked(request, filling, seen)
    async with web.database.acting(who) as db:
        ids = await db.run(browsing.still_in(seen, ["dead_letter"]))
        now = await db.run(calls.now())

    def requeue(position: int, job: UUID) -> calls.Call[str]:
        return calls.requeue(
            job, run_at=now + timedelta(minutes=position / rate) if rate and position else None
        )

    def resolve(_: int, job: UUID) -> calls.Call[None]:
        return calls.resolve(job, note)

    outcome = await bulk.act_on_each(web.database, who, ids, resolve if verb == "resolve" else requeue)
    outcome.gone += len(seen) - len(ids)
    said = outcome.said("Resolved" if verb == "resolve" else "Requeued", "dead letter")
    spread = f", at most {rate} a minute" if rate and verb == "requeue" else ""
    return layout.back(request, "/dead-letters", Flash(said + spread))


def _kind(request: Request) -> Kind:
    query = query_of(request, "/dead-letters")
    task = query.text("task")
    if task is None:
        raise UnknownJob("no kind of failure is named", hint="Choose one in the list of dead letters.")
    return task, query.text("fingerprint")


async def assign(request: Request) -> Response:
    form, (task, fingerprint) = await read_form(request), _kind(request)
    call, said = assigning(form, task, fingerprint, me=identity_of(request).name)
    await web_of(request).database.run(identity_of(request), call, writes=True)
    return layout.back(request, kind_address(task, fingerprint), Flash(said))


async def comment(request: Request) -> Response:
    form, (task, fingerprint) = await read_form(request), _kind(request)
    call = calls.comment_dead_letters(task, fingerprint, form.raw("comment"))
    await web_of(request).database.run(identity_of(request), call, writes=True)
    return layout.back(request, kind_address(task, fingerprint), Flash("Said"))


ROUTES = [
    Route("/dead-letters", inbox),
    Route("/dead-letters.csv", as_csv),
    Route("/dead-letters/assign", assign, methods=["POST"]),
    Route("/dead-letters/comment", comment, methods=["POST"]),
    Route("/dead-letters/requeue", ask),
    Route("/dead-letters/requeue", act, methods=["POST"]),
    Route("/dead-letters/resolve", ask),
    Route("/dead-letters/resolve", act, methods=["POST"]),
]
