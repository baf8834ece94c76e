"""The day at a glance: codes, meals, emails that had trouble, and what needs a person."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta
from urllib.parse import quote

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from onceward.web import layout, web_of
from onceward.web.charts import Point
from onceward.web.forms import read_form
from onceward.web.layout import Flash
from onceward_apps.kit import tokens
from onceward_apps.meals import sample, staff, store
from onceward_apps.meals.messages import spoken
from onceward_apps.meals.pages.desk import Desk, check, render
from onceward_apps.meals.store import Connection

# The hours that the chart has even when nothing happened in them.
OPENS, CLOSES = 7, 20
DAYS = 14


@dataclass(frozen=True, slots=True)
class Standing:
    day: staff.Day
    hours: dict[int, int]
    days: list[staff.ServiceDay]
    metrics: list[staff.Metric]
    abandoned: list[staff.Retried]
    stuck: list[staff.Retried]


@dataclass(frozen=True, slots=True)
class Need:
    text: str
    link: str
    action: str
    tone: str = "attention"


@dataclass(frozen=True, slots=True)
class SampleLink:
    """The correction link of a sample customer."""

    who: str
    state: str
    path: str

    @property
    def words(self) -> str:
        return LINK_WORDS[self.state][0].format(who=self.who)

    @property
    def title(self) -> str:
        return LINK_WORDS[self.state][1].format(who=self.who)


# What is told of a link, and what its button says.
LINK_WORDS = {
    "VALID": ("{who} mistyped hers: her link works once.", "{who}’s link"),
    "ALREADY_USED": ("{who}’s link was used.", "{who}’s, used"),
    "EXPIRED": ("{who} waited too long.", "{who}’s, expired"),
}


def standing(connection: Connection, wanted: date | None) -> Standing:
    day = staff.day(connection)
    return Standing(
        day,
        staff.redemptions_of(connection, wanted or day.service_date),
        staff.service_days(connection, day.service_date - timedelta(days=DAYS - 1), DAYS),
        staff.metrics(connection),
        staff.retried(connection, ["abandoned"], 6),
        staff.retried(connection, ["pending"], 6, only_stuck=True),
    )


class Today:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def routes(self) -> list[BaseRoute]:
        return [
            Route("/", self.show),
            Route("/issue", self.issue, methods=["POST"]),
            Route("/kiosks/open", self.open_kiosk, methods=["POST"]),
            Route("/try", self.try_it),
        ]

    async def show(self, request: Request) -> Response:
        wanted = _day(request.query_params.get("day"))
        shown, found = await self._desk.read(request, lambda connection: standing(connection, wanted))
        chosen = wanted or found.day.service_date
        return render(
            request,
            "today_desk.html",
            shown,
            found=found,
            chosen=chosen,
            spoken=spoken,
            points=hourly(found.hours),
            daily=[
                Point(
                    f"{each.service_date:%a} {each.service_date.day}",
                    each.redeemed,
                    # Today is not over.
                    each.issued - each.redeemed if each.service_date < found.day.service_date else 0,
                )
                for each in found.days
                if each.issued
            ],
            needs=needs(found),
            sentence=sentence(found),
            kiosks=sorted(self._desk.meals.settings.kiosks),
        )

    async def try_it(self, request: Request) -> Response:
        """Where to click with the sample data; the links are those of sample customers, and only for those who act."""
        acts = check(request).acts
        shown, (waiting, depths) = await self._desk.read(
            request,
            lambda connection: (
                [line for line in staff.customers(connection, "", [], 200) if line.today == "issued"][:1],
                staff.depths(connection),
            ),
        )
        links = await run_in_threadpool(self._sample_links)
        return render(
            request, "try.html", shown, links=links, acts=acts, waiting=waiting, mails=mail_words(depths),
            kiosks=sorted(self._desk.meals.settings.kiosks),
        )  # fmt: skip

    def _sample_links(self) -> list[SampleLink]:
        """How each stands now: a visitor uses them, and time passes.  Those that are cleaned up are left out."""
        with self._desk.meals.transaction() as connection:
            found = []
            for name, who in (("open", "Elena"), ("used", "Rosa"), ("expired", "Dina")):
                token = sample.link_of(self._desk.meals, name)
                state, _ = store.handle_token_state(connection, tokens.digest(token))
                if state in LINK_WORDS:
                    found.append(SampleLink(who, state, f"/handle/update/{token}"))
        return found

    async def issue(self, request: Request) -> Response:
        """A job like that of the schedule: whoever has a code keeps it."""
        who = check(request)
        async with web_of(request).database.acting(who, writes=True) as db:
            job = await self._desk.client.enqueue("meals.issue_qr", {}, connection=db.connection)
            await self._desk.client.record_event(
                "meals.issue_asked",
                entity_type="job",
                entity_id=job.id,
                job_id=job.id,
                connection=db.connection,
            )
        return layout.back(request, "/meals/", Flash("Codes are being issued to everybody who has none"))

    async def open_kiosk(self, request: Request) -> Response:
        """This browser becomes a counter: its key goes behind the #, which stays in the browser."""
        name = (await read_form(request)).text("kiosk")
        secret = self._desk.meals.settings.kiosks.get(name)
        if secret is None:
            raise HTTPException(404)
        await self._desk.act(
            request, lambda connection: self._desk.record(connection, "meals.kiosk_opened", ("kiosk", name))
        )
        return layout.back(request, f"/kiosk#{quote(secret, safe='')}")


def mail_words(depths: list[staff.Depth]) -> str:
    """What became of the emails that had trouble."""
    count = {each.status: each.count for each in depths}
    waiting, abandoned = count.get("pending", 0), count.get("abandoned", 0)
    told = [
        f"{_count(waiting, 'email')} {'waits for its' if waiting == 1 else 'wait for their'} next try"
        if waiting
        else "",
        f"{_count(abandoned, 'email')} will not be sent unless you act" if abandoned else "",
    ]
    return f"{' and '.join(filter(None, told)) or 'By now every email got through'}."


def hourly(hours: dict[int, int]) -> list[Point]:
    first, last = min([OPENS, *hours]), max([CLOSES, *hours])
    return [Point(f"{hour}:00", hours.get(hour, 0)) for hour in range(first, last + 1)]


def needs(found: Standing) -> list[Need]:
    day, listed = found.day, []
    if day.duplicates:
        listed.append(Need(f"{day.duplicates} customers have two codes", "/meals/customers", "Look", "bad"))
    if day.missing:
        listed.append(
            Need(f"{_count(day.missing, 'customer')} without a code today", "/meals/customers", "Look", "bad")
        )
    if found.abandoned:
        listed.append(
            Need(f"{_many(found.abandoned)} that nobody will send unless you act", "/meals/emails?status=abandoned", "Review")
        )  # fmt: skip
    if found.stuck:
        listed.append(
            Need(
                f"{_many(found.stuck)} waiting for more than 6 hours", "/meals/emails?status=pending", "Look"
            )
        )
    if day.stripe_trouble:
        listed.append(
            Need(
                f"{_count(day.stripe_trouble, 'event')} of Stripe that could not be used: somebody may have paid without being served",
                "/monitors/of/meals_service", "Look", "bad",
            )
        )  # fmt: skip
    return listed


def sentence(found: Standing) -> tuple[str, str]:
    """How it stands, in one line, and its tone."""
    day, breached = found.day, [each.metric.lower() for each in found.metrics if each.breached]
    if not day.is_open:
        text, tone = _closed(found)
    elif day.missing:
        text = f"{_count(day.missing, 'customer')} who should eat today {'has' if day.missing == 1 else 'have'} no code yet."
        tone = "bad"
    else:
        text = f"{_count(day.issued, 'code')} {'is' if day.issued == 1 else 'are'} out, {_count(day.redeemed, 'meal')} redeemed."
        tone = "good"
    if breached:
        return f"{text} Emails need a look: {', '.join(breached)}.", "bad" if tone == "bad" else "attention"
    return text, tone


def _closed(found: Standing) -> tuple[str, str]:
    """Codes may have gone out before somebody closed the day: whoever has one may come."""
    day = found.day
    reason = next((each.reason for each in found.days if each.service_date == day.service_date), "")
    closed = f"Closed today ({reason})" if reason else "Closed today"
    if not day.issued:
        return f"{closed}: nobody gets a code.", "good"
    went = f"{_count(day.issued, 'code')} went out before, {_count(day.redeemed, 'meal')} redeemed"
    return f"{closed}: nobody else gets a code. {went}.", "attention"


def _day(text: str | None) -> date | None:
    try:
        return date.fromisoformat(text) if text else None
    except ValueError:
        return None


def _count(number: int, word: str) -> str:
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def _many(emails: list[staff.Retried]) -> str:
    return "More than 5 emails" if len(emails) > 5 else _count(len(emails), "email")
