"""What staff read: the views of monitoring and of customers, with the rights of meals_staff."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, LiteralString, TypeVar
from uuid import UUID

from psycopg.rows import class_row

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onceward_apps.meals.store import Connection
    from onceward_apps.meals.system import Meals

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CustomerLine:
    id: UUID
    name: str
    email: str
    telegram_handle: str | None
    linked_at: datetime | None
    created_at: datetime
    status: str
    today: str
    used_at: datetime | None
    kiosk: str | None


@dataclass(frozen=True, slots=True)
class Subscription:
    stripe_subscription_id: str
    status: str
    status_at: datetime
    created_at: datetime


@dataclass(frozen=True, slots=True)
class SentLink:
    kind: str
    created_at: datetime
    expires_at: datetime
    used_at: datetime | None


@dataclass(frozen=True, slots=True)
class CustomerDay:
    service_date: date
    is_open: bool
    reason: str
    skipped: bool
    issued_at: datetime | None
    used_at: datetime | None
    kiosk: str | None


@dataclass(frozen=True, slots=True)
class ServiceDay:
    service_date: date
    is_open: bool
    is_exception: bool
    reason: str
    skips: int
    issued: int
    redeemed: int


@dataclass(frozen=True, slots=True)
class LedgerLine:
    """One email to a customer, whatever became of it."""

    id: UUID
    template_type: str
    tries: int
    state: str
    created_at: datetime
    next_try_at: datetime | None
    sent_at: datetime | None
    message: str | None


@dataclass(frozen=True, slots=True)
class Retried:
    """A line of meals.email_retry, without the text of the email."""

    id: UUID
    customer_id: UUID | None
    name: str | None
    email_to: str | None
    template_type: str
    attempts: int
    max_attempts: int
    next_attempt_at: datetime
    last_attempt_at: datetime | None
    last_error: str | None
    status: str
    created_at: datetime
    sent_at: datetime | None
    delivery_state: str


@dataclass(frozen=True, slots=True)
class Metric:
    metric: str
    value: Decimal | None
    threshold: Decimal | None
    unit: str
    breached: bool


@dataclass(frozen=True, slots=True)
class Depth:
    status: str
    count: int
    oldest: datetime
    newest: datetime


@dataclass(frozen=True, slots=True)
class Success:
    template_type: str
    sent: int
    abandoned: int
    success_rate_pct: Decimal | None
    avg_minutes: Decimal | None


@dataclass(frozen=True, slots=True)
class Day:
    """How a service day stands."""

    service_date: date
    is_open: bool
    issued: int
    redeemed: int
    missing: int
    duplicates: int
    stripe_trouble: int


@contextmanager
def reading(meals: Meals) -> Iterator[Connection]:
    """A transaction that only reads, with the rights of staff: a page that forgets something cannot change it."""
    with meals.transaction() as connection:
        connection.execute("set transaction read only")
        connection.execute("set local role meals_staff")
        yield connection


def day(connection: Connection) -> Day:
    return _rows(
        connection,
        Day,
        "select meals.service_date() as service_date, meals.is_service_day(meals.service_date()) as is_open, "
        "       q.total_qr_tokens as issued, r.redeemed, (select count(*) from meals.qr_missing) as missing, "
        "       (select count(*) from meals.qr_duplicates) as duplicates, "
        "       (select count(*) from meals.stripe_trouble) as stripe_trouble "
        "  from meals.qr_today as q, meals.qr_redemption_rate as r",
    )[0]


def redemptions_of(connection: Connection, service_date: date) -> dict[int, int]:
    found = connection.execute("select hour, redemptions from meals.redemptions_of(%s)", [service_date])
    return dict(found.fetchall())


def service_days(connection: Connection, first: date, days: int) -> list[ServiceDay]:
    return _rows(
        connection,
        ServiceDay,
        "select service_date, is_open, is_exception, reason, skips, issued, redeemed from meals.service_days(%s, %s)",
        first,
        days,
    )


def weekdays(connection: Connection) -> dict[int, bool]:
    found = connection.execute("select weekday, is_open from meals.weekdays()")
    return dict(found.fetchall())


def metrics(connection: Connection) -> list[Metric]:
    return _rows(
        connection, Metric, "select metric, value, threshold, unit, breached from meals.email_thresholds"
    )


def depths(connection: Connection) -> list[Depth]:
    return _rows(
        connection,
        Depth,
        "select status, count, oldest, newest from meals.email_queue_health order by status",
    )


def successes(connection: Connection) -> list[Success]:
    return _rows(
        connection,
        Success,
        "select coalesce(s.template_type, t.template_type) as template_type, coalesce(s.sent, 0) as sent, "
        "       coalesce(s.abandoned, 0) as abandoned, s.success_rate_pct, t.avg_minutes "
        "  from meals.email_success_rate as s full join meals.email_delivery_times as t using (template_type) order by 1",
    )


def retried(
    connection: Connection, statuses: Sequence[str], limit: int, *, only_stuck: bool = False
) -> list[Retried]:
    """Those that wait for a person first, then those that wait, each the newest first."""
    return _rows(
        connection,
        Retried,
        "select r.id, r.customer_id, c.name, r.email_to, r.template_type, r.attempts, r.max_attempts, r.next_attempt_at, "
        "       r.last_attempt_at, r.last_error, r.status, r.created_at, r.sent_at, r.delivery_state "
        "  from meals.email_retry as r left join meals.customer_list as c on c.id = r.customer_id "
        " where r.status = any (%s) and (not %s or r.id in (select s.id from meals.stuck_emails as s)) "
        " order by array_position(array['abandoned', 'pending', 'sent'], r.status), r.created_at desc, r.id limit %s",
        list(statuses),
        only_stuck,
        limit,
    )


def customers(
    connection: Connection, part: str, statuses: Sequence[str], limit: int, offset: int = 0
) -> list[CustomerLine]:
    return _rows(
        connection,
        CustomerLine,
        "select id, name, email, telegram_handle, linked_at, created_at, status, today, used_at, kiosk from meals.customer_list "
        " where (%s = '' or strpos(lower(name || ' ' || email || ' ' || coalesce(telegram_handle, '')), lower(%s)) > 0) "
        "   and (cardinality(%s::text[]) = 0 or status = any (%s)) "
        " order by lower(name), id limit %s offset %s",
        part,
        part,
        list(statuses),
        list(statuses),
        limit,
        offset,
    )


def customer_counts(connection: Connection, part: str) -> dict[str, int]:
    """How many customers have this in name, email or handle, by the status of their subscription."""
    found = connection.execute(
        "select status, count(*) from meals.customer_list "
        " where (%s = '' or strpos(lower(name || ' ' || email || ' ' || coalesce(telegram_handle, '')), lower(%s)) > 0) "
        " group by status order by 1",
        [part, part],
    )
    return dict(found.fetchall())


def customer(connection: Connection, customer_id: UUID) -> CustomerLine | None:
    found = _rows(
        connection,
        CustomerLine,
        "select id, name, email, telegram_handle, linked_at, created_at, status, today, used_at, kiosk from meals.customer_list "
        " where id = %s",
        customer_id,
    )
    return found[0] if found else None


def subscriptions(connection: Connection, customer_id: UUID) -> list[Subscription]:
    return _rows(
        connection,
        Subscription,
        "select stripe_subscription_id, status, status_at, created_at from meals.subscription_list "
        " where customer_id = %s order by created_at desc",
        customer_id,
    )


def links(connection: Connection, customer_id: UUID) -> list[SentLink]:
    return _rows(
        connection,
        SentLink,
        "select kind, created_at, expires_at, used_at from meals.link_list where customer_id = %s order by created_at desc limit 20",
        customer_id,
    )


def emails(connection: Connection, customer_id: UUID) -> list[LedgerLine]:
    return _rows(
        connection,
        LedgerLine,
        "select id, template_type, tries, state, created_at, next_try_at, sent_at, message from meals.email_ledger "
        " where customer_id = %s order by created_at desc, id limit 20",
        customer_id,
    )


def calendar(connection: Connection, customer_id: UUID, first: date, days: int) -> list[CustomerDay]:
    return _rows(
        connection,
        CustomerDay,
        "select service_date, is_open, reason, skipped, issued_at, used_at, kiosk from meals.customer_calendar(%s, %s, %s)",
        customer_id,
        first,
        days,
    )


def monday_of(day: date) -> date:
    return day - timedelta(days=day.weekday())


def _rows(connection: Connection, kind: type[T], statement: LiteralString, *parameters: Any) -> list[T]:
    with connection.cursor(row_factory=class_row(kind)) as cursor:
        return cursor.execute(statement, parameters or None).fetchall()
