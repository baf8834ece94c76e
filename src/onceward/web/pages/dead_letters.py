"""Dead letters as an inbox: kinds of failure on the left, the story of one on the right, looked after and decided there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from onceward import calls
from onceward.errors import InvalidArgument, UnknownJob
from onceward.model import DeadLetterGroup, DeadLetterInfo, JobFilter
from onceward.web import bulk, layout, tables
from onceward.web.care import assigning, care_of, people_for
from onceward.web.context import identity_of, web_of
from onceward.web.forms import Form, read_form
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
        assignees: dict[Kind, str] = {}
        for each in await db.run(calls.assignments()):
            assignees.setdefault((each.task, each.fingerprint), each.assigned_to)
        found = bool(groups)
        total = sum(group.count for group in groups)
        groups = [group for group in groups if _is_wanted(group, whose, assignees, who.name)]
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
        whose=whose, all_whose=WHOSE,
    )  # fmt: skip


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
    query = query_of(request)
    verb = request.url.path.rpartition("/")[2]
    async with web_of(request).database.acting(identity_of(request)) as db:
        shown = await layout.frame(db)
        wanted = _wanted(query, limit=11)
        count = await db.run(calls.count_dead_letters(wanted))
        groups = await db.run(calls.dead_letter_groups(wanted))
    return layout.render(
        request, "pages/dead_letters_ask.html", shown,
        verb=verb, count=count, groups=groups[:10], more=len(groups) > 10, most=bulk.MOST, suffix=query.suffix,
        back=f"/dead-letters{query.suffix}", problem=None,
    )  # fmt: skip


async def act(request: Request) -> Response:
    form, query = await read_form(request), query_of(request, "/dead-letters")
    verb = request.url.path.rpartition("/")[2]
    web, who = web_of(request), identity_of(request)
    rate, note = _rate(form), form.text("note")
    if verb == "resolve" and not note:
        raise InvalidArgument(
            "the note is missing", hint="Say how they were settled; it is kept with each of them."
        )
    async with web.database.acting(who) as db:
        # Oldest first: the order in which they would have run.
        ids = await db.run(calls.dead_letter_ids(replace(_wanted(query, limit=bulk.MOST))))
        now = await db.run(calls.now())
    if verb == "resolve":
        outcome = await bulk.act_on_each(web.database, who, ids, lambda _, job: calls.resolve(job, note))
        return layout.back(request, "/dead-letters", Flash(outcome.said("Resolved", "dead letter")))

    def requeue(position: int, job: object) -> calls.Call[str]:
        when = now + timedelta(minutes=position / rate) if rate and position else None
        return calls.requeue(ids[position], run_at=when)

    outcome = await bulk.act_on_each(web.database, who, ids, requeue)
    spread = f", at most {rate} a minute" if rate else ""
    return layout.back(request, "/dead-letters", Flash(outcome.said("Requeued", "dead letter") + spread))


def _kind(request: Request) -> Kind:
    query = query_of(request, "/dead-letters")
    task = query.text("task")
    if task is None:
        raise UnknownJob("no kind of failure is named", hint="Choose one in the list of dead letters.")
    return task, query.text("fingerprint")


async def assign(request: Request) -> Response:
    form, (task, fingerprint) = await read_form(request), _kind(request)
    call, said = assigning(form, task, fingerprint)
    await web_of(request).database.run(identity_of(request), call, writes=True)
    return layout.back(request, kind_address(task, fingerprint), Flash(said))


async def comment(request: Request) -> Response:
    form, (task, fingerprint) = await read_form(request), _kind(request)
    call = calls.comment_dead_letters(task, fingerprint, form.raw("comment"))
    await web_of(request).database.run(identity_of(request), call, writes=True)
    return layout.back(request, kind_address(task, fingerprint), Flash("Said"))


def _rate(form: Form) -> int | None:
    text = form.text("rate")
    if not text:
        return None
    if not text.isdecimal() or not 1 <= int(text) <= 100_000:
        raise InvalidArgument(f"the rate must be a whole number from 1 to 100000, got {text[:20]!r}")
    return int(text)


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
