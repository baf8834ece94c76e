"""The system over HTTP, without a framework: `Routes(meals).answer(Request(…))` gives an `Answer`.

A web layer hands over method, path, headers (names in lower case) and body, and sends back status, headers and JSON.  GET changes
nothing; secrets are compared in constant time; no answer and no log line repeats what was sent.
"""

from __future__ import annotations

import asyncio
import re
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar
from uuid import UUID

import psycopg

from onceward import OncewardError, jsonsafe, logs
from onceward.errors import is_connection_trouble
from onceward.worker import Worker
from onceward_apps.kit import qr, tokens
from onceward_apps.meals import jobs, outside, store
from onceward_apps.meals.domain import HANDLE_RULE, BadQr, QrExpired, QrToken, parse_handle
from onceward_apps.meals.pictures import NoPicture, read_picture
from onceward_apps.meals.store import Connection
from onceward_apps.meals.stripe import apply_event
from onceward_apps.meals.system import DELIVERIES, Meals
from onceward_apps.meals.telegram import answer_update

log = logs.get("onceward_apps.meals")
T = TypeVar("T")
MOST_BODY = 256 * 1024
# A run of the retry cron ends in time for whoever waits for its answer; what is left is the next run's.
CRON_SECONDS = 25.0


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    # Not in representations: they hold tokens and secrets.
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: bytes = field(default=b"", repr=False)

    def object(self) -> dict[str, Any]:
        """The body as a JSON object; empty when it is none."""
        try:
            found = jsonsafe.loads(self.body.decode())
        except (ValueError, OncewardError):
            return {}
        return found if isinstance(found, dict) else {}


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: dict[str, Any]
    headers: Mapping[str, str] = field(default_factory=lambda: {"cache-control": "no-store"})


def refused(status: int, code: str, error: str, **more: Any) -> Answer:
    return Answer(status, {"error": error, "code": code, **more})


USED = "This link has already been used"
LINK_REFUSALS = {
    "ALREADY_USED": USED,
    "EXPIRED": "This link has expired",
    "INVALID": "This link is not valid",
}


class Routes:
    """Every route of the system.  Threads may share one."""

    def __init__(self, meals: Meals) -> None:
        self._meals = meals
        self._routes: list[tuple[str, re.Pattern[str], Callable[..., Answer]]] = [
            ("GET", re.compile(r"/api/health"), self.health),
            ("POST", re.compile(r"/api/stripe/webhook"), self.stripe),
            ("POST", re.compile(r"/api/telegram/webhook"), self.telegram),
            ("GET", re.compile(r"/handle/update/([^/]+)"), self.handle_page),
            ("POST", re.compile(r"/api/handle/consume"), self.consume_handle),
            ("GET", re.compile(r"/today/([^/]+)"), self.today),
            ("POST", re.compile(r"/api/qr/redeem"), self.redeem),
            ("POST", re.compile(r"/api/qr/read"), self.read),
            ("POST", re.compile(r"/api/cron/issue-qr"), self.issue_qr),
            ("POST", re.compile(r"/api/cron/process-email-retry"), self.process_email_retry),
        ]

    def answer(self, request: Request) -> Answer:
        """Find the route and call it.  Never raises: what goes wrong is an answer."""
        if len(request.body) > MOST_BODY:
            return refused(413, "TOO_LARGE", "The request is too large")
        allowed = []
        for method, path, handler in self._routes:
            found = path.fullmatch(request.path)
            if found is None:
                continue
            if request.method == method or (method == "GET" and request.method == "HEAD"):
                return self._call(handler, request, *found.groups())
            allowed.append(method)
        if allowed:
            return Answer(
                405,
                {"error": "Method not allowed", "code": "METHOD_NOT_ALLOWED"},
                {"cache-control": "no-store", "allow": ", ".join(allowed)},
            )
        return refused(404, "NOT_FOUND", "Not found")

    def _call(self, handler: Callable[..., Answer], request: Request, *found: str) -> Answer:
        try:
            return handler(request, *found)
        except (psycopg.Error, OncewardError) as error:
            # Its text may hold a value; its kind does not.
            log.error("database_error", path=handler.__name__, error=type(error).__name__,
                      sqlstate=getattr(error, "sqlstate", None))  # fmt: skip
            return refused(500, "DATABASE_ERROR", "Database error")
        except Exception as error:
            # The place, and not the values that a traceback would show.
            last = traceback.extract_tb(error.__traceback__)[-1]
            log.error(
                "internal_error",
                path=handler.__name__,
                error=type(error).__name__,
                at=f"{last.filename}:{last.lineno}",
            )
            return refused(500, "INTERNAL_ERROR", "Internal error")

    def _transaction(self, work: Callable[[Connection], T]) -> T:
        """One transaction, tried again on a new connection when the first is lost: everything called here may be repeated."""
        try:
            with self._meals.transaction() as connection:
                return work(connection)
        except (psycopg.Error, OncewardError) as error:
            if not is_connection_trouble(error):
                raise
            log.warning("transaction_repeated", error=type(error).__name__)
        with self._meals.transaction() as connection:
            return work(connection)

    # ------------------------------------------------------------ anybody

    def health(self, request: Request) -> Answer:
        try:
            with self._meals.transaction() as connection:
                found = store.health(connection)
        except (psycopg.Error, OncewardError):
            return Answer(503, {"status": "down", "database": "unreachable"})
        return Answer(
            200, {"status": found.status, "database": "ok", "service_date": found.service_date.isoformat()}
        )

    # ------------------------------------------------------------ customers

    def handle_page(self, request: Request, token: str) -> Answer:
        """What the page of a correction link shows.  Uses nothing up: mail programs fetch links by themselves."""
        outcome, handle = self._transaction(
            lambda connection: store.handle_token_state(connection, tokens.digest(token))
        )
        if outcome != "VALID":
            return refused(400, outcome, LINK_REFUSALS[outcome])
        return Answer(200, {"valid": True, "telegram_handle": handle})

    def consume_handle(self, request: Request) -> Answer:
        given = request.object()
        if not given:
            return refused(400, "INVALID", "The body must be a JSON object with token and newHandle")
        handle = parse_handle(given.get("newHandle"))
        # Before the link is used: a typing error must not cost it.
        if handle is None:
            return refused(400, "INVALID_HANDLE_FORMAT", "Invalid handle format", details=HANDLE_RULE)
        token = given.get("token")
        if not isinstance(token, str) or not token:
            return refused(400, "INVALID", LINK_REFUSALS["INVALID"])
        digest = tokens.digest(token)
        link = tokens.new()

        def consume(connection: Connection) -> store.Consumed:
            done = store.consume_handle_token(connection, digest, handle, link.digest)
            if done.outcome == "OK":
                assert done.customer is not None
                self._meals.messages.handle_updated(
                    connection, done.customer, cause=digest.hex()[:16], handle=handle, deep=link.text
                )
            return done

        done = self._transaction(consume)
        if done.outcome not in {"OK", "REPEATED"}:
            return refused(400, done.outcome, LINK_REFUSALS[done.outcome])
        assert done.expires_at is not None
        return Answer(
            200,
            {
                "success": True,
                "telegram_link": self._meals.messages.deep_link(link.text),
                "expires_at": iso(done.expires_at),
            },
        )

    def today(self, request: Request, text: str) -> Answer:
        """The customer's page of the day: the code as a picture, and whether it was used."""
        try:
            scan = self._transaction(lambda connection: self._read(connection, text)[1])
        except BadQr as error:
            return _unreadable(error)
        if scan.outcome in {"INVALID", "EXPIRED"}:
            return refused(400, scan.outcome, SCAN_REFUSALS[scan.outcome])
        return Answer(200, {**_scan(scan), "svg": qr.svg(text)})

    def _read(self, connection: Connection, text: str) -> tuple[QrToken, store.Scan]:
        token = self._meals.keys.read(text, now=store.now(connection))
        return token, store.qr_state(connection, token.jti)

    # ------------------------------------------------------------ the counter

    def kiosk_of(self, request: Request) -> str | None:
        """The name of the kiosk that asks, by its secret."""
        secret = outside.bearer(request.headers)
        # Every secret is compared, so that the time tells nothing.
        names = [
            name for name, known in self._meals.settings.kiosks.items() if outside.is_secret(secret, known)
        ]
        return names[0] if names else None

    def read(self, request: Request) -> Answer:
        """What a picture says, for a kiosk whose browser cannot read QR codes.  Redeems nothing."""
        if self.kiosk_of(request) is None:
            return refused(401, "UNAUTHORIZED", "Unauthorized")
        try:
            text = read_picture(request.body)
        except NoPicture:
            return refused(400, "NO_PICTURE", "This is no JPEG or PNG picture")
        if text is None:
            return refused(400, "NO_CODE", "There is no QR code in this picture")
        return Answer(200, {"token": text})

    def redeem(self, request: Request) -> Answer:
        kiosk = self.kiosk_of(request)
        if kiosk is None:
            return refused(401, "UNAUTHORIZED", "Unauthorized")
        given = request.object()
        text = given.get("token")
        if not isinstance(text, str):
            return refused(400, "INVALID", SCAN_REFUSALS["INVALID"])
        # Somebody may show the address of the page instead of the code on it.
        text = text.strip().rpartition("/")[2]
        scan_id = _uuid(given.get("scan_id"))

        def redeem(connection: Connection) -> tuple[store.Scan, str]:
            token, _ = self._read(connection, text)
            scan = store.redeem_qr(connection, token.jti, kiosk, scan_id)
            return scan, store.local_time(connection, scan.used_at) if scan.used_at else ""

        try:
            scan, at = self._transaction(redeem)
        except BadQr as error:
            return _unreadable(error)
        if scan.outcome == "REDEEMED":
            log.info("qr_redeemed", kiosk=kiosk)
            return Answer(200, {"success": True, **_scan(scan)})
        log.info("qr_refused", kiosk=kiosk, reason=scan.outcome)
        words = SCAN_REFUSALS[scan.outcome]
        if scan.outcome == "ALREADY_USED":
            words = f"This code was used at {at} at {scan.kiosk}"
        return refused(400, scan.outcome, words, **_scan(scan))

    # ------------------------------------------------------------ cron

    def issue_qr(self, request: Request) -> Answer:
        if not self._is_cron(request):
            return refused(401, "UNAUTHORIZED", "Unauthorized")
        return Answer(200, jobs.issue_due(self._meals).answer())

    def process_email_retry(self, request: Request) -> Answer:
        """Send what is due, with leases, so that any number of these and of workers send each email once."""
        if not self._is_cron(request):
            return refused(401, "UNAUTHORIZED", "Unauthorized")
        tried: set[UUID] = set()
        worker = Worker(
            self._meals.app(watch=tried.add), dsn=self._meals.dsn, lanes=[DELIVERIES], concurrency=20
        )

        async def work() -> None:
            asyncio.get_running_loop().call_later(CRON_SECONDS, worker.stop)
            await worker.drain()

        asyncio.run(work())
        with self._meals.transaction() as connection:
            states = list(store.email_states(connection, sorted(tried)).values())
        sent = states.count("sent")
        failed = states.count("pending") + states.count("sending")
        return Answer(
            200,
            {
                "processed": len(states),
                "sent": sent,
                "failed": failed,
                "abandoned": len(states) - sent - failed,
            },
        )

    def _is_cron(self, request: Request) -> bool:
        return outside.is_secret(outside.bearer(request.headers), self._meals.settings.cron_secret)

    # ------------------------------------------------------------ other services

    def stripe(self, request: Request) -> Answer:
        signed = outside.signed_at(
            request.body, request.headers.get("stripe-signature", ""), self._meals.settings.stripe_secret
        )
        if signed is None:
            return refused(400, "INVALID_SIGNATURE", "Invalid signature")
        try:
            event = outside.StripeEvent.parse(request.body)
        except (ValueError, OncewardError):
            return refused(400, "INVALID_EVENT", "Invalid event")

        def apply(connection: Connection) -> str:
            if abs(store.now(connection) - signed) > outside.TOLERANCE:
                return "stale"
            return apply_event(connection, self._meals.messages, event)

        outcome = self._transaction(apply)
        if outcome == "stale":
            return refused(400, "INVALID_SIGNATURE", "Invalid signature")
        log.info("stripe_event", id=event.id, type=event.type, outcome=outcome)
        return Answer(200, {"received": True, "outcome": outcome})

    def telegram(self, request: Request) -> Answer:
        given = request.headers.get("x-telegram-bot-api-secret-token")
        if not outside.is_secret(given, self._meals.settings.telegram_secret):
            return refused(401, "UNAUTHORIZED", "Unauthorized")
        try:
            update = outside.TelegramUpdate.parse(request.body)
        except (ValueError, OncewardError):
            return refused(400, "INVALID", "Invalid update")
        outcome = self._transaction(
            lambda connection: answer_update(connection, self._meals.messages, update)
        )
        log.info("telegram_update", update=update.update_id, outcome=outcome)
        return Answer(200, {"ok": True})


SCAN_REFUSALS = {
    "ALREADY_USED": "This code was used",
    "EXPIRED": "This code has expired",
    "NOT_YET": "This code is for a later day",
    "INVALID": "This is not a code of ours",
}


def _unreadable(error: BadQr) -> Answer:
    code = "EXPIRED" if isinstance(error, QrExpired) else "INVALID"
    return refused(400, code, SCAN_REFUSALS[code])


def _scan(scan: store.Scan) -> dict[str, Any]:
    return {
        "name": scan.name,
        "service_date": scan.service_date.isoformat() if scan.service_date else None,
        "used_at": iso(scan.used_at) if scan.used_at else None,
        "kiosk": scan.kiosk,
    }


def _uuid(given: object) -> UUID | None:
    try:
        return UUID(str(given)) if given is not None else None
    except ValueError:
        return None


def iso(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
