"""Dead letters as an inbox: kinds of failure on the left, the story of one on the right, decided there."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from onceward import calls
from onceward.errors import InvalidArgument
from onceward.model import DeadLetterGroup, DeadLetterInfo, JobFilter
from onceward.web import bulk, layout, tables
from onceward.web.context import identity_of, web_of
from onceward.web.forms import Form, read_form
from onceward.web.layout import Flash
from onceward.web.query import Query, query_of

MOST_GROUPS, SAMPLE = 100, 20


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
    pairs = {"task": group.task, **({"fingerprint": group.fingerprint} if group.fingerprint else {})}
    return f"/dead-letters{action}?{urlencode(pairs)}"


async def inbox(request: Request) -> Response:
    query = query_of(request)
    async with web_of(request).database.acting(identity_of(request)) as db:
        shown = await layout.frame(db)
        groups = await db.run(calls.dead_letter_groups(JobFilter(limit=MOST_GROUPS)))
        chosen = next(
            (g for g in groups if (g.task, g.fingerprint) == (query.text("task"), query.text("fingerprint"))),
            None,
        )
        was_chosen = chosen is not None
        chosen = chosen or (groups[0] if groups and not query.is_filtered else None)
        letters: list[DeadLetterInfo] = []
        attempts = []
        if chosen is not None:
            letters = await db.run(calls.dead_letters(_of(chosen, SAMPLE)))
            attempts = await db.run(calls.attempts(chosen.id))
    following = groups[(groups.index(chosen) + 1) % len(groups)] if chosen else None
    return layout.render(
        request, "pages/dead_letters.html", shown,
        groups=groups, chosen=chosen, was_chosen=was_chosen, letters=letters, address=address, following=following,
        trace=next((attempt.traceback for attempt in reversed(attempts) if attempt.traceback), None),
        total=sum(group.count for group in groups), gone=query.is_filtered and chosen is None,
    )  # fmt: skip


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
    Route("/dead-letters/requeue", ask),
    Route("/dead-letters/requeue", act, methods=["POST"]),
    Route("/dead-letters/resolve", ask),
    Route("/dead-letters/resolve", act, methods=["POST"]),
]
