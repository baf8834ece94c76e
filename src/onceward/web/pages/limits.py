"""Limits: what is left of each, who waits for it, and changing them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from itertools import groupby
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from onceward import calls
from onceward.calls import browsing
from onceward.errors import InvalidArgument, OncewardError, UnknownLimit, shown
from onceward.model_audit import AuditFilter
from onceward.model_limits import Limit, LimitInfo, LimitLevel
from onceward.model_web import LimitQueues
from onceward.web import layout, reading, tables, words
from onceward.web.charts import LevelPoint
from onceward.web.context import identity_of, web_of
from onceward.web.database import Acting
from onceward.web.filling import Filling, changed_since, mark_of
from onceward.web.forms import Form, read_form
from onceward.web.layout import Flash
from onceward.web.query import PAGE, query_of
from onceward.web.sorting import Columns, sorting

STATES = ("open", "waiting", "paused")
OVER = ("accept", "defer")
CHANGES = 20
# Of what is kept minute by minute: shown for one limit, and beside each in the list.
DAY, HOUR = timedelta(days=1), timedelta(hours=1)
# Points of the chart of a day: the lowest level and the longest line of each.
POINTS = 96


@dataclass(frozen=True, slots=True)
class Line:
    """One limit of the list, with all its keys."""

    limit: LimitInfo
    state: str
    keys: int
    # Keys that have no room now.
    without_room: int
    waiting: int


COLUMNS: Columns[Line] = {
    "name": lambda line: line.limit.name,
    "state": lambda line: STATES.index(line.state),
    "waiting": lambda line: line.waiting,
}


def state_of(info: LimitInfo, now: datetime) -> str:
    if info.paused_until is not None and info.paused_until > now:
        return "paused"
    return "open" if info.reason is None else "waiting"


def lines_of(found: Sequence[LimitInfo], queues: LimitQueues, now: datetime) -> list[Line]:
    """`found` is in the order of names."""
    lines = []
    for name, group in groupby(found, key=lambda info: info.name):
        buckets = list(group)
        states = [state_of(info, now) for info in buckets]
        # The whole is as its worst key.
        state = max(states, key=STATES.index)
        shut = sum(each != "open" for each in states)
        used = [info for info in buckets if info.key is not None]
        lines.append(Line(buckets[states.index(state)], state, len(used), shut, queues.of(name)))
    return lines


def address(name: str, action: str = "of") -> str:
    """The action comes first: a name may contain a slash."""
    return f"/limits/{action}/{quote(name)}"


async def limits(request: Request) -> Response:
    query = query_of(request)
    wanted, part, after = query.many("state", STATES), query.text("name"), query.text("after")
    async with web_of(request).database.acting(identity_of(request)) as db:
        shown_ = await layout.frame(db)
        found = await db.run(calls.limits())
        queues = await db.run(browsing.limit_queues())
        history = await db.run(calls.limit_history(shown_.now - HOUR))
    levels: dict[str, list[LimitLevel]] = defaultdict(list)
    for each in history:
        levels[each.name].append(each)
    lines = [
        line
        for line in lines_of(found, queues, shown_.now)
        if (not wanted or line.state in wanted) and (not part or part.lower() in line.limit.name.lower())
    ]
    order = sorting(query, COLUMNS, "name")
    lines = order.sorted(lines)
    # After the one that the page before has ended with; if that is gone, from the beginning.
    names = [line.limit.name for line in lines]
    rest = lines[names.index(after) + 1 :] if after in names else lines
    return layout.render(
        request, "pages/limits.html", shown_,
        query=query, lines=rest[:PAGE], count=len(lines), states=STATES, chosen=wanted, part=part or "", address=address,
        following=rest[PAGE - 1].limit.name if len(rest) > PAGE else None, is_part=queues.is_part, levels=levels, sorting=order,
    )  # fmt: skip


async def as_csv(request: Request) -> Response:
    """One line per key; of one limit, when the address names it."""
    call = calls.limits(query_of(request).text("limit"))
    found = await web_of(request).database.run(identity_of(request), call)
    return tables.csv_of("limits", LimitInfo, found)


async def history_csv(request: Request) -> Response:
    name = request.path_params["name"]
    async with web_of(request).database.acting(identity_of(request)) as db:
        now = await db.run(calls.now())
        found = await db.run(calls.limit_history(now - timedelta(days=30), name))
    return tables.csv_of("limit-history", LimitLevel, found[-tables.MOST_ROWS :])


async def _found(db: Acting, request: Request) -> list[LimitInfo]:
    name = request.path_params["name"]
    found = await db.run(calls.limits(name))
    if not found:
        raise UnknownLimit(f'limit "{shown(name)}" does not exist', hint="Look for it in the list of limits.")
    return found


async def show(request: Request) -> Response:
    query, who = query_of(request), identity_of(request)
    part, after = query.text("key"), query.text("after")
    async with web_of(request).database.acting(who) as db:
        shown_ = await layout.frame(db)
        found = await _found(db, request)
        name = found[0].name
        queues = await db.run(browsing.limit_queues())
        history = await db.run(calls.limit_history(shown_.now - DAY, name))
        # What was done to it is about what all tenants share.
        changes = []
        if who.tenant is None:
            wanted = AuditFilter(entity_type="limit", entity_id=name, limit=CHANGES)
            changes = await db.run(browsing.find_entries(wanted))
    keys = [info for info in found if info.key and (not part or part.lower() in info.key.lower())]
    rest = [info for info in keys if after is None or (info.key or "") > after]
    line = lines_of(found, queues, shown_.now)[0]
    return layout.render(
        request, "pages/limit.html", shown_,
        query=query, limit=found[0], line=line, keys=rest[:PAGE], count=len(keys), part=part or "", queues=queues,
        sentence=sentence_of(line, queues, shown_.now), changes=changes, address=address, state_of=state_of,
        following=rest[PAGE - 1].key if len(rest) > PAGE else None, history=series(history),
    )  # fmt: skip


def series(history: Sequence[LimitLevel]) -> list[LevelPoint]:
    """The minutes in groups, each as bad as its worst."""
    size = max(1, -(-len(history) // POINTS))
    groups = [history[i : i + size] for i in range(0, len(history), size)]
    return [
        LevelPoint(
            f"{group[0].at:%H:%M}",
            min(each.level for each in group),
            max(each.waiting for each in group),
            any(each.paused for each in group),
        )
        for group in groups
    ]


def sentence_of(line: Line, queues: LimitQueues, now: datetime) -> str:
    info = line.limit
    jobs = words.counted(line.waiting, "ready job")
    waiting = f"; {'at least ' if queues.is_part else ''}{jobs} use it" if line.waiting else ""
    if info.per_key and line.keys:
        open_ = f"{words.counted(line.keys, 'key')}, {line.without_room or 'none'} without room"
        return f"{open_}{waiting}."
    if line.state == "open":
        return f"There is room{waiting}."
    when = f", until {words.ago(info.next_room_at, now)}" if info.next_room_at else ""
    reason = info.reason or "no room"
    return f"{reason[0].upper()}{reason[1:]}{when.replace('until in', 'for another')}{waiting}."


# ---------------------------------------------------------------- changing


@dataclass(frozen=True, slots=True)
class Draft:
    """The form as it was filled in."""

    name: str = ""
    requests: str = ""
    per: str = "1m"
    tokens: str = ""
    tokens_per: str = ""
    slots: str = ""
    burst: str = ""
    tokens_burst: str = ""
    allowance: str = ""
    per_key: str = ""
    threshold: str = "80%"
    over: str = "accept"

    @staticmethod
    def of(form: Form) -> Draft:
        return Draft(**{name: form.text(name) for name in Draft.__slots__})

    @staticmethod
    def from_limit(info: LimitInfo) -> Draft:
        def number(value: float | None) -> str:
            return "" if value is None else f"{value:.0f}"

        def given(burst: float | None) -> str:
            # One that is no whole number was computed, and is computed again.
            return number(burst) if burst is not None and burst == int(burst) else ""

        return Draft(
            info.name, number(info.requests), words.compact(info.period) or "1m", number(info.weight),
            words.compact(info.weight_period), number(info.slots), given(info.burst), given(info.weight_burst),
            words.compact(info.allowance), "1" if info.per_key else "", words.measure(info.threshold, "share"), info.over,
        )  # fmt: skip


# What messages call each field.  First where an error stands that names none of them.
_WORDS = {
    "requests": "the number of requests",
    "name": "the name",
    "per": "the period",
    "tokens": "the weight",
    "tokens_per": "the period of the weight",
    "slots": "the number of slots",
    "burst": "the number of requests at once",
    "tokens_burst": "the weight at once",
    "allowance": "the time within which a job begins",
    "threshold": "the share that may wait",
    "over": "what happens to new work",
}
_ENGINE = {
    "weight": "tokens",
    "weight_period": "tokens_per",
    "weight_burst": "tokens_burst",
    "period": "per",
    "limit": "name",
}
_number = partial(reading.whole_or_none, least=1, most=2**53)
_span = partial(reading.duration_or_none, zero=False)


def _share(name: str, text: str) -> float:
    found = reading.threshold(name, text or "80%", "share")
    if not isinstance(found, (int, float)):
        raise InvalidArgument(f"{name} must be a share, as 80%")
    return float(found)


def _read(filling: Filling, draft: Draft) -> Limit:
    """The limit, as far as the fields are good."""
    filling.need("name")
    share, period = filling.read("threshold", _share), filling.read("per", _span)
    if not (draft.requests or draft.tokens or draft.slots):
        filling.blame("requests", "a limit needs a number of requests, a weight or slots")
    return Limit(
        draft.name, requests=filling.read("requests", _number), per=period or timedelta(minutes=1),
        tokens=filling.read("tokens", _number), tokens_per=filling.read("tokens_per", _span), slots=filling.read("slots", _number),
        burst=filling.read("burst", _number), tokens_burst=filling.read("tokens_burst", _number),
        allowance=filling.read("allowance", partial(reading.duration_or_none, zero=True)), per_key=bool(draft.per_key),
        threshold=0.8 if share is None else share, over="defer" if draft.over == "defer" else "accept",
    )  # fmt: skip


def _check_shared(request: Request) -> None:
    if not identity_of(request).acts_for_all:
        raise HTTPException(403, "limits are shared by all tenants, and you are bound to one")


async def edit(request: Request) -> Response:
    """A new one, or one that exists."""
    info = None
    if "name" in request.path_params:
        async with web_of(request).database.acting(identity_of(request)) as db:
            info = (await _found(db, request))[0]
    return await _editor(request, Draft.from_limit(info) if info else Draft(), info, {})


async def _editor(
    request: Request, draft: Draft, info: LimitInfo | None, problems: Mapping[str, str]
) -> Response:
    return await layout.page(
        request, "pages/limit_edit.html", 409 if "" in problems else 400 if problems else 200,
        draft=draft, limit=info, problems=problems, over=OVER, address=address,
        seen=mark_of(Draft.from_limit(info)) if info else "",
    )  # fmt: skip


async def save(request: Request) -> Response:
    _check_shared(request)
    form, info = await read_form(request), None
    web, who = web_of(request), identity_of(request)
    if "name" in request.path_params:
        async with web.database.acting(who) as db:
            info = (await _found(db, request))[0]
    draft, filling = Draft.of(form), Filling(form, words=_WORDS, engine=_ENGINE)
    limit, changed = _read(filling, draft), False
    if filling.is_good:
        try:
            async with web.database.acting(who, writes=True) as db:
                await _check_way(db, filling, draft, form.text("seen") if info else None)
                changed = filling.is_good and await db.run(calls.set_limit(limit))
        except OncewardError as error:
            filling.blame_for(error)
    if filling.is_good:
        said = f"Limit {limit.name} is set" if changed else f"Limit {limit.name} was so already"
        return layout.back(request, address(limit.name), Flash(said))
    if "" in filling.problems and info is not None:
        # Shown with the mark of what is there now.
        async with web.database.acting(who) as db:
            info = (await _found(db, request))[0]
    return await _editor(request, draft, info, filling.problems)


async def _check_way(db: Acting, filling: Filling, draft: Draft, seen: str | None) -> None:
    """A form for a new limit changes none that is there; one that edits it, only what it was filled in from."""
    found = await db.run(calls.limits(draft.name))
    if not found:
        return
    kept = Draft.from_limit(found[0])
    if seen is None:
        filling.blame("name", f"Limit {draft.name} is there already")
    elif seen and seen != mark_of(kept):
        filling.blame("", changed_since(kept, draft))


async def pause(request: Request) -> Response:
    _check_shared(request)
    form, name = await read_form(request), request.path_params["name"]
    span = reading.duration("duration", form.text("duration") or "5m", zero=False)
    call = calls.pause_limit(name, span, form.text("key"), form.text("reason") or None)
    await web_of(request).database.run(identity_of(request), call, writes=True)
    said = f"Limit {name} is paused for {words.span(span)}"
    undo = None if form.text("key") else address(name, "resume")
    return layout.back(request, address(name), Flash(said, undo=undo))


async def resume(request: Request) -> Response:
    _check_shared(request)
    form, name = await read_form(request), request.path_params["name"]
    call = calls.resume_limit(name, form.text("key"))
    changed = await web_of(request).database.run(identity_of(request), call, writes=True)
    said = f"Limit {name} is open" if changed else f"Limit {name} was not paused"
    return layout.back(request, address(name), Flash(said))


async def drop(request: Request) -> Response:
    _check_shared(request)
    name = request.path_params["name"]
    await web_of(request).database.run(identity_of(request), calls.drop_limit(name), writes=True)
    return layout.back(request, "/limits", Flash(f"Limit {name} is gone"))


ROUTES = [
    Route("/limits", limits),
    Route("/limits.csv", as_csv),
    Route("/limits/history.csv/{name:path}", history_csv),
    Route("/limits/new", edit),
    Route("/limits/new", save, methods=["POST"]),
    Route("/limits/of/{name:path}", show),
    Route("/limits/edit/{name:path}", edit),
    Route("/limits/edit/{name:path}", save, methods=["POST"]),
    Route("/limits/pause/{name:path}", pause, methods=["POST"]),
    Route("/limits/resume/{name:path}", resume, methods=["POST"]),
    Route("/limits/drop/{name:path}", drop, methods=["POST"]),
]
