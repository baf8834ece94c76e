"""One function per SQL function.  Each takes a connection, so that the caller decides what is one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, LiteralString
from uuid import UUID

import psycopg
from psycopg.types.json import Jsonb

from onceward_apps.meals.domain import QrToken

Connection = psycopg.Connection[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Customer:
    id: UUID
    email: str
    name: str


@dataclass(frozen=True, slots=True)
class Consumed:
    """What became of a correction link."""

    outcome: str
    customer: Customer | None
    expires_at: datetime | None


@dataclass(frozen=True, slots=True)
class Issued:
    """A customer's code of a day: ISSUED now, or why not; without a token, there is none."""

    outcome: str
    token: QrToken | None
    customer: Customer | None
    used_at: datetime | None


@dataclass(frozen=True, slots=True)
class Scan:
    """What became of a QR code at the counter, or would."""

    outcome: str
    name: str | None = None
    service_date: date | None = None
    used_at: datetime | None = None
    kiosk: str | None = None


@dataclass(frozen=True, slots=True)
class Health:
    status: str
    checked_at: datetime
    service_date: date


def now(connection: Connection) -> datetime:
    moment: datetime = _value(connection, "select onceward.now()")
    return moment


def health(connection: Connection) -> Health:
    return Health(*_row(connection, "select status, checked_at, service_date from meals.health()"))


def declare_ops_channel(connection: Connection, chat: str) -> bool:
    """Tell this chat of alerts; False when people have made the channel something else."""
    is_ours: bool = _value(connection, "select meals.declare_ops_channel(%s)", chat)
    return is_ours


# ------------------------------------------------------------ links


def add_handle_update_token(connection: Connection, customer_id: UUID, token_hash: bytes) -> datetime:
    expires: datetime = _value(
        connection, "select meals.add_handle_update_token(%s, %s)", customer_id, token_hash
    )
    return expires


def add_deep_link_token(connection: Connection, customer_id: UUID, token_hash: bytes) -> datetime:
    expires: datetime = _value(
        connection, "select meals.add_deep_link_token(%s, %s)", customer_id, token_hash
    )
    return expires


def handle_token_state(connection: Connection, token_hash: bytes) -> tuple[str, str | None]:
    """VALID, ALREADY_USED, EXPIRED or INVALID, and the present handle."""
    found = connection.execute(
        "select outcome, telegram_handle from meals.handle_token_state(%s)", [token_hash]
    ).fetchone()
    return (found[0], found[1]) if found else ("INVALID", None)


def consume_handle_token(
    connection: Connection, token_hash: bytes, new_handle: str, link_hash: bytes
) -> Consumed:
    outcome, customer_id, email, name, expires_at = _row(
        connection,
        "select outcome, customer_id, email, name, expires_at from meals.consume_handle_token(%s, %s, %s)",
        token_hash,
        new_handle,
        link_hash,
    )
    return Consumed(outcome, Customer(customer_id, email, name) if customer_id else None, expires_at)


def link_telegram(connection: Connection, token_hash: bytes, chat_id: int) -> tuple[str, str | None]:
    outcome, name = _row(
        connection, "select outcome, name from meals.link_telegram(%s, %s)", token_hash, chat_id
    )
    return outcome, name


def note_telegram_update(connection: Connection, update_id: int) -> bool:
    return bool(_value(connection, "select meals.note_telegram_update(%s)", update_id))


# ------------------------------------------------------------ service days and QR codes


def service_date(connection: Connection) -> date:
    day: date = _value(connection, "select meals.service_date()")
    return day


def due_customers(connection: Connection, day: date, after: UUID | None, limit: int) -> list[UUID]:
    rows = connection.execute("select meals.due_customers(%s, %s, %s)", [day, after, limit]).fetchall()
    return [row[0] for row in rows]


def qr_count(connection: Connection, day: date) -> int:
    return int(_value(connection, "select meals.qr_count(%s)", day))


def issue_qr_token(connection: Connection, customer_id: UUID, day: date, jti: UUID) -> Issued:
    return _issued(
        _row(
            connection,
            "select outcome, jti, customer_id, service_date, issued_at, expires_at, used_at, email, name, %s::uuid "
            "from meals.issue_qr_token(%s, %s, %s)",
            customer_id,
            customer_id,
            day,
            jti,
        )
    )


def qr_of_chat(connection: Connection, chat_id: int) -> Issued | None:
    """None for a chat that is nobody's."""
    found = connection.execute(
        "select outcome, jti, customer_id, service_date, issued_at, expires_at, used_at, email, name, customer_id "
        "from meals.qr_of_chat(%s)",
        [chat_id],
    ).fetchone()
    return _issued(found) if found else None


def qr_of_customer(connection: Connection, customer_id: UUID) -> Issued | None:
    """None for a customer who does not exist."""
    found = connection.execute(
        "select outcome, jti, customer_id, service_date, issued_at, expires_at, used_at, email, name, customer_id "
        "from meals.qr_of_customer(%s)",
        [customer_id],
    ).fetchone()
    return _issued(found) if found else None


def qr_state(connection: Connection, jti: UUID) -> Scan:
    found = connection.execute(
        "select outcome, name, service_date, used_at, kiosk from meals.qr_state(%s)", [jti]
    ).fetchone()
    return Scan(*found) if found else Scan("INVALID")


def redeem_qr(connection: Connection, jti: UUID, kiosk: str, scan_id: UUID | None) -> Scan:
    return Scan(
        *_row(
            connection,
            "select outcome, name, service_date, used_at, kiosk from meals.redeem_qr(%s, %s, %s)",
            jti,
            kiosk,
            scan_id,
        )
    )


def local_time(connection: Connection, moment: datetime) -> str:
    return str(_value(connection, "select meals.local_time(%s)", moment))


# ------------------------------------------------------------ what staff change


def last_planned_day(connection: Connection) -> date:
    """The last day that can be skipped, opened or closed: a later one is a typing error."""
    day: date = _value(connection, "select meals.last_planned_day()")
    return day


def skip_day(connection: Connection, customer_id: UUID, day: date) -> bool:
    return bool(_value(connection, "select meals.skip_day(%s, %s)", customer_id, day))


def unskip_day(connection: Connection, customer_id: UUID, day: date) -> bool:
    return bool(_value(connection, "select meals.unskip_day(%s, %s)", customer_id, day))


def set_service_day(connection: Connection, day: date, is_open: bool, reason: str) -> bool:  # noqa: FBT001 - as in SQL
    return bool(_value(connection, "select meals.set_service_day(%s, %s, %s)", day, is_open, reason))


def clear_service_day(connection: Connection, day: date) -> bool:
    return bool(_value(connection, "select meals.clear_service_day(%s)", day))


def set_service_weekday(connection: Connection, weekday: int, is_open: bool) -> bool:  # noqa: FBT001 - as in SQL
    return bool(_value(connection, "select meals.set_service_weekday(%s, %s)", weekday, is_open))


def customer(connection: Connection, customer_id: UUID) -> Customer | None:
    found = connection.execute("select id, email, name from meals.customer(%s)", [customer_id]).fetchone()
    return Customer(*found) if found else None


def email_count(connection: Connection, customer_id: UUID, template: str, since: datetime) -> int:
    return int(_value(connection, "select meals.email_count(%s, %s, %s)", customer_id, template, since))


# ------------------------------------------------------------ Stripe


def note_stripe_event(
    connection: Connection, event_id: str, kind: str, outcome: str = "applied", reason: str | None = None
) -> bool:
    return bool(
        _value(connection, "select meals.note_stripe_event(%s, %s, %s, %s)", event_id, kind, outcome, reason)
    )


def register_customer(
    connection: Connection, stripe_customer_id: str, *, email: str, name: str, handle: str | None
) -> Customer:
    customer_id = _value(
        connection, "select meals.register_customer(%s, %s, %s, %s)", stripe_customer_id, email, name, handle
    )
    return Customer(customer_id, email, name)


def set_subscription(
    connection: Connection, stripe_id: str, status: str, at: datetime, customer_id: UUID | None = None
) -> None:
    connection.execute("select meals.set_subscription(%s, %s, %s, %s)", [stripe_id, status, at, customer_id])


def customer_of_stripe(connection: Connection, stripe_customer_id: str) -> Customer | None:
    found = connection.execute(
        "select id, email, name from meals.customer_of_stripe(%s)", [stripe_customer_id]
    ).fetchone()
    return Customer(*found) if found else None


# ------------------------------------------------------------ emails


def note_email(
    connection: Connection,
    delivery_id: UUID,
    customer_id: UUID,
    template: str,
    tags: Sequence[dict[str, str]],
) -> None:
    connection.execute(
        "select meals.note_email(%s, %s, %s, %s)", [delivery_id, customer_id, template, Jsonb(list(tags))]
    )


def email_states(connection: Connection, ids: Sequence[UUID]) -> dict[UUID, str]:
    rows = connection.execute("select id, state from meals.email_states(%s)", [list(ids)]).fetchall()
    return {row[0]: row[1] for row in rows}


def cleanup(connection: Connection, limit: int) -> dict[str, int]:
    rows = connection.execute("select kind, removed from meals.cleanup(%s)", [limit]).fetchall()
    return {row[0]: row[1] for row in rows}


# ------------------------------------------------------------ rows


def _row(connection: Connection, statement: LiteralString, *parameters: object) -> tuple[Any, ...]:
    found = connection.execute(statement, parameters).fetchone()
    assert found is not None
    return found


def _value(connection: Connection, statement: LiteralString, *parameters: object) -> Any:
    return _row(connection, statement, *parameters)[0]


def _issued(row: tuple[Any, ...]) -> Issued:
    outcome, jti, owner, day, issued_at, expires_at, used_at, email, name, customer_id = row
    token = QrToken(jti, owner, day, issued_at, expires_at) if jti else None
    return Issued(outcome, token, Customer(customer_id, email, name) if email else None, used_at)
