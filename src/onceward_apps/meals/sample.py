"""People to look at: forty customers, two weeks of meals, and a morning on which the mail provider had trouble.

What is past is written into our own tables, with the owner's rights; what is of today goes the way that everything goes,
and its emails are really sent.  A second call changes nothing.
"""

from __future__ import annotations

import hashlib
import hmac
import random
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import TYPE_CHECKING
from uuid import UUID
from zoneinfo import ZoneInfo

from onceward_apps.kit import tokens
from onceward_apps.meals import store
from onceward_apps.meals.system import DELIVERIES, TENANT

if TYPE_CHECKING:
    from onceward_apps.meals.store import Connection
    from onceward_apps.meals.system import Meals

NAMES = (
    "Ada Okafor", "Ben Castillo", "Carla Nguyen", "Daniel Ferreira", "Elena Petrova", "Farid Haddad", "Grace Kim", "Hugo Lindqvist",
    "Imani Brooks", "Jonas Weber", "Keiko Tanaka", "Leo Marchetti", "Maya Patel", "Noah Goldstein", "Olivia Reyes", "Paul Dubois",
    "Quinn Harper", "Rosa Jimenez", "Samir Khan", "Tess Oakley", "Uma Krishnan", "Viktor Novak", "Wendy Zhao", "Xavier Lopez",
    "Yara Mansour", "Zoe Fitzgerald", "Amir Rahimi", "Bianca Rossi", "Caleb Foster", "Dina Sorensen", "Emeka Obi", "Fiona Walsh",
    "Gabriel Santos", "Hannah Schultz", "Ivan Morales", "Julia Bergström", "Kofi Mensah", "Lucia Romano", "Marcus Lee", "Nadia Farouk",
)  # fmt: skip
# By their place in the list; all others are active and connected.
PAST_DUE, CANCELED, TRIALING = {7, 21}, {12}, {38, 39}
NOT_CONNECTED = {4, 17, 29, 39}
FAILS_FOR_GOOD, WAITS, SENT_FOR_REAL = 11, (19, 26), 8
DAYS = 14
KIOSKS = ("counter-1", "counter-2")
CALIFORNIA = ZoneInfo("America/Los_Angeles")
# When people eat: hours, and how many of a hundred come then.
HOURS = {8: 6, 9: 4, 11: 12, 12: 34, 13: 18, 14: 4, 17: 5, 18: 11, 19: 6}


@dataclass(frozen=True, slots=True)
class Person:
    place: int
    id: UUID


def fill(meals: Meals) -> int:
    """How many customers are new: all of them, or none."""
    with meals.transaction() as connection:
        # Two starts at once go one after the other.
        connection.execute("select pg_advisory_xact_lock(hashtext('meals sample'))")
        if store.customer_of_stripe(connection, _stripe(0)):
            return 0
        connection.execute("set local role onceward_owner")
        chance = random.Random(16)  # noqa: S311 - the same people eat at the same hours everywhere
        now, today = store.now(connection), store.service_date(connection)
        people = [_person(connection, place, now, chance) for place in range(len(NAMES))]
        _history(connection, people, today, chance)
        _links(connection, meals, people)
        connection.execute("reset role")
        _today(connection, meals, people, today)
        connection.execute("set local role onceward_owner")
        emails = _emails(connection)
        connection.execute("reset role")
        _trouble(connection, emails)
        connection.execute("set local role onceward_owner")
        _eaten_today(connection, now, today, chance)
    return len(people)


def link_of(meals: Meals, name: str) -> str:
    """A correction link of a sample customer: open, used or expired.  Nobody can guess it who has not the key."""
    secret = meals.settings.seal_keys[0].encode()
    return hmac.new(secret, f"meals sample {name}".encode(), hashlib.sha256).hexdigest()


def _stripe(place: int) -> str:
    return f"cus_sample_{place:02d}"


def _person(connection: Connection, place: int, now: datetime, chance: random.Random) -> Person:
    name = NAMES[place]
    plain = name.lower().replace(" ", ".").replace("ö", "o")
    customer = store.register_customer(
        connection,
        _stripe(place),
        email=f"{plain}@example.com",
        name=name,
        handle=f"@{plain.replace('.', '_')}",
    )
    status = (
        "past_due" if place in PAST_DUE else "canceled" if place in CANCELED
        else "trialing" if place in TRIALING else "active"
    )  # fmt: skip
    since = now - timedelta(
        days=3 if place in TRIALING else chance.randint(20, 300), hours=chance.randint(0, 23)
    )
    store.set_subscription(
        connection, f"sub_sample_{place:02d}", status, now - timedelta(days=2), customer.id
    )
    connection.execute(
        "with c as (update meals.customers set created_at = %(since)s where id = %(id)s) "
        "update meals.subscriptions set created_at = %(since)s where customer_id = %(id)s",
        {"since": since, "id": customer.id},
    )
    if place not in NOT_CONNECTED:
        connection.execute(
            "insert into meals.telegram_links (customer_id, chat_id, linked_at) values (%s, %s, %s)",
            [customer.id, 7_000_000 + place, since + timedelta(minutes=9)],
        )
    return Person(place, customer.id)


def _history(connection: Connection, people: list[Person], today: date, chance: random.Random) -> None:
    """Codes and meals of the days before; some forget to eat, some skip."""
    days = [today - timedelta(days=back) for back in range(DAYS - 1, 0, -1)]
    for day in days:
        if day.isoweekday() > 5:
            continue
        for person in people:
            if person.place in CANCELED or (person.place in TRIALING and (today - day).days > 3):
                continue
            if chance.random() < 0.05:
                connection.execute(
                    "insert into meals.skips (customer_id, service_date) values (%s, %s)", [person.id, day]
                )
                continue
            _code(connection, person, day, _hour(day, chance) if chance.random() < 0.9 else None, chance)
    later = (today + timedelta(days=days) for days in range(1, 16))
    ahead = [day for day in later if day.isoweekday() <= 5]
    for person, day in zip(chance.sample(people, 6), chance.sample(ahead, 6), strict=True):
        connection.execute(
            "insert into meals.skips (customer_id, service_date) values (%s, %s)", [person.id, day]
        )
    # Thanksgiving is the fourth Thursday of November.
    for year in (today.year, today.year + 1):
        first = date(year, 11, 1)
        holiday = first + timedelta(days=(3 - first.weekday()) % 7 + 21)
        connection.execute(
            "insert into meals.service_calendar (service_date, is_open, reason) values (%s, false, 'Thanksgiving') "
            "on conflict do nothing",
            [holiday],
        )


def _code(
    connection: Connection, person: Person, day: date, used_at: datetime | None, chance: random.Random
) -> None:
    jti = UUID(int=chance.getrandbits(128), version=4)
    connection.execute(
        "insert into meals.qr_tokens (jti, customer_id, service_date, issued_at, expires_at, used_at) "
        "values (%s, %s, %s, %s, meals.service_day_ends(%s), %s)",
        [jti, person.id, day, _at(day, time(6)), day, used_at],
    )
    if used_at is not None:
        _redeemed(connection, jti, used_at, chance)


def _redeemed(connection: Connection, jti: UUID, used_at: datetime, chance: random.Random) -> None:
    connection.execute(
        "insert into meals.redemptions (jti, customer_id, service_date, redeemed_at, kiosk) "
        "select q.jti, q.customer_id, q.service_date, %s, %s from meals.qr_tokens as q where q.jti = %s",
        [used_at, chance.choice(KIOSKS), jti],
    )


def _links(connection: Connection, meals: Meals, people: list[Person]) -> None:
    """Three correction links whose texts are known: one that works, one used, one expired."""
    for name, person, age, used in (
        ("open", people[4], 0, False),
        ("used", people[17], 2, True),
        ("expired", people[29], 9, False),
    ):
        digest = tokens.digest(link_of(meals, name))
        connection.execute(
            "insert into meals.handle_update_tokens (customer_id, token_hash, created_at, expires_at, used_at) "
            "values (%(id)s, %(digest)s, onceward.now() - %(age)s, onceward.now() - %(age)s + meals.link_lifetime(), "
            "        case when %(used)s then onceward.now() - %(age)s + interval '20 minutes' end)",
            {"id": person.id, "digest": digest, "age": timedelta(days=age), "used": used},
        )


def _today(connection: Connection, meals: Meals, people: list[Person], today: date) -> None:
    """Codes and emails as on any day; should it be a Sunday, it is one on which we cook."""
    if connection.execute("select meals.is_service_day(%s)", [today]).fetchone() != (True,):
        store.set_service_day(connection, today, True, "Open for a look around")
    for person in people:
        jti = UUID(bytes=hashlib.sha256(f"{person.id}{today}".encode()).digest()[:16], version=4)
        issued = store.issue_qr_token(connection, person.id, today, jti)
        if issued.outcome == "ISSUED":
            assert issued.token is not None
            assert issued.customer is not None
            meals.messages.qr(connection, issued.customer, issued.token)


def _emails(connection: Connection) -> dict[UUID, int]:
    """Emails to sample customers, and to which of them."""
    found = connection.execute(
        "select e.id, right(c.stripe_customer_id, 2)::integer from meals.emails as e "
        "  join meals.customers as c on c.id = e.customer_id where starts_with(c.stripe_customer_id, 'cus_sample_')"
    )
    return dict(found.fetchall())


def _trouble(connection: Connection, emails: dict[UUID, int]) -> None:
    """The provider did not answer for a while: one try of each email of the morning failed, and one address does not exist.

    A worker of our own does it before anybody else sees these emails: they are not committed yet.
    """
    connection.execute("select set_config('onceward.tenant', %s, true)", [TENANT])
    registered = connection.execute(
        "select onceward.register_worker('sample morning', array[%s])", [DELIVERIES]
    ).fetchone()
    worker = registered[0] if registered else None
    for last in (False, True):
        claimed = connection.execute(
            "select job_id, epoch from onceward.claim(%s, array[%s], 100)", [worker, DELIVERIES]
        ).fetchall()
        for job, epoch in claimed:
            place = emails.get(job)
            # Left to the real worker: these are in its outbox.
            if place is None or (last and place < SENT_FOR_REAL):
                continue
            connection.execute("select onceward.begin_delivery(%s, %s, 'outbox')", [job, epoch])
            if last:
                outcome, category, message, wait = "sent", None, None, None
            elif place == FAILS_FOR_GOOD:
                outcome, category, message, wait = (
                    "abandoned",
                    "refused",
                    "the server answered 550 5.1.1 to the recipient",
                    None,
                )
            else:
                outcome, category, message = "retry", "server", "the server answered 503"
                wait = None if place in WAITS else timedelta(0)
            connection.execute(
                "select onceward.settle_delivery(%s, %s, %s, p_category => %s, p_message => %s, p_retry_after => %s)",
                [job, epoch, outcome, category, message, wait],
            )
        if not last:
            connection.execute("select onceward.promote()")
    connection.execute("select onceward.retire_worker(%s)", [worker])


def _eaten_today(connection: Connection, now: datetime, today: date, chance: random.Random) -> None:
    connection.execute(
        "update meals.qr_tokens set issued_at = least(issued_at, %s) where service_date = %s",
        [_at(today, time(6)), today],
    )
    for (jti,) in connection.execute(
        "select jti from meals.qr_tokens where service_date = %s order by customer_id", [today]
    ).fetchall():
        used_at = _hour(today, chance)
        # Some are left for the visitor to redeem.
        if used_at < now and chance.random() < 0.7:
            connection.execute("update meals.qr_tokens set used_at = %s where jti = %s", [used_at, jti])
            _redeemed(connection, jti, used_at, chance)


def _hour(day: date, chance: random.Random) -> datetime:
    hour = chance.choices(list(HOURS), list(HOURS.values()))[0]
    return _at(day, time(hour, chance.randint(0, 59), chance.randint(0, 59)))


def _at(day: date, moment: time) -> datetime:
    return datetime.combine(day, moment, CALIFORNIA)
