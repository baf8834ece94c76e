"""Jobs and schedules: issue the day's QR codes, forget what is old.

Retrying emails is no job of ours: the ledger keeps the waits of 5, 15, 60, 240 and 240 minutes, and any worker sends what is due.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import psycopg

from onceward import Job, Onceward, OncewardError, Retry, logs
from onceward.errors import CannotConnect, ConnectionLost
from onceward_apps.meals import store
from onceward_apps.meals.domain import Trouble, trouble_of
from onceward_apps.meals.system import LANE, TENANT

if TYPE_CHECKING:
    from onceward_apps.meals.system import Meals

log = logs.get("onceward_apps.meals")
PAGE = 500
# From the morning on, so that who subscribes during the day gets the day's code as well.
ISSUE_AT = "*/15 6-19 * * *"
CLEAN_AT = "03:30"
ZONE = "America/Los_Angeles"
MINUTE = timedelta(minutes=1)


class Incomplete(OncewardError):
    """Some customers have no code yet, for reasons that may pass: the job is to be tried again."""


@dataclass(slots=True)
class Run:
    """What one run of issuing did."""

    service_date: date
    issued: int = 0
    # Had their code already, from before or from somebody faster.
    skipped: int = 0
    # Without a code, for a reason that stays: bad data, a key that cannot sign.
    failed: int = 0
    # Without a code, for a reason that may pass.
    delayed: int = 0

    def answer(self) -> dict[str, Any]:
        return {**asdict(self), "service_date": self.service_date.isoformat()}


def issue_due(meals: Meals) -> Run:
    """Give everybody who eats today a code and an email, once.  Any number of these may run at the same time.

    Each customer is a transaction of its own, so that one who fails holds up nobody; a crash in the middle leaves the others
    for the next run.
    """
    with meals.transaction() as connection:
        run = Run(store.service_date(connection))
        run.skipped = store.qr_count(connection, run.service_date)
    if run.skipped:
        log.info("qr_already_issued_skipping", service_date=str(run.service_date), customers=run.skipped)
    after: UUID | None = None
    while True:
        with meals.transaction() as connection:
            page = store.due_customers(connection, run.service_date, after, PAGE)
        for customer_id in page:
            _issue(meals, run, customer_id)
        if len(page) < PAGE:
            break
        after = page[-1]
    log.info("qr_issued", **run.answer())
    return run


def _issue(meals: Meals, run: Run, customer_id: UUID) -> None:
    try:
        outcome = issue_one(meals, customer_id, run.service_date)
    except Exception as error:
        trouble = _trouble(error)
        # The error's text may hold the address, so only its kind is told.
        log.error(
            "qr_not_issued",
            customer=str(customer_id),
            trouble=trouble,
            error=type(error).__name__,
            sqlstate=getattr(error, "sqlstate", None),
        )
        if trouble == "connection":
            # Everybody after this one would fail as well.
            raise
        if trouble == "other":
            run.failed += 1
        else:
            run.delayed += 1
    else:
        if outcome == "ISSUED":
            run.issued += 1
        elif outcome in {"QR_EXISTS", "DUPLICATE"}:
            log.warning("qr_already_issued_skipping", customer=str(customer_id), reason=outcome)
            run.skipped += 1


def _trouble(error: Exception) -> Trouble:
    if isinstance(error, psycopg.Error):
        return trouble_of(error.sqlstate)
    # The engine's own name for a lost connection; all else is bad data of one customer, or a key that cannot sign.
    return "connection" if isinstance(error, (ConnectionLost, CannotConnect)) else "other"


def issue_one(meals: Meals, customer_id: UUID, day: date) -> str:
    """Token and email in one transaction, or neither.  ISSUED, QR_EXISTS, DUPLICATE or NOT_SERVED."""
    with meals.transaction() as connection:
        issued = store.issue_qr_token(connection, customer_id, day, uuid4())
        if issued.outcome == "ISSUED":
            assert issued.token is not None
            assert issued.customer is not None
            meals.messages.qr(connection, issued.customer, issued.token)
    return issued.outcome


def clean(meals: Meals, *, limit: int = 10_000) -> dict[str, int]:
    """Remove what is older than its retention, a bounded number of rows per transaction."""
    removed: dict[str, int] = {}
    while True:
        with meals.transaction() as connection:
            batch = store.cleanup(connection, limit)
        for kind, count in batch.items():
            removed[kind] = removed.get(kind, 0) + count
        if max(batch.values()) < limit:
            return removed


def register(app: Onceward, meals: Meals) -> Onceward:
    """Declare the tasks and schedules of the system."""

    @app.schedule(ISSUE_AT, name="meals-issue-qr", zone=ZONE, tenant=TENANT, overlap="skip")
    @app.task(name="meals.issue_qr", lane=LANE, retry=Retry(waits=[MINUTE, 5 * MINUTE]))
    def issue_qr(job: Job) -> dict[str, Any]:
        run = issue_due(meals)
        if run.delayed:
            raise Incomplete(
                f"{run.delayed} customers have no code yet", hint="The next run goes on with them."
            )
        return run.answer()

    @app.schedule(CLEAN_AT, name="meals-cleanup", zone=ZONE, tenant=TENANT)
    @app.task(name="meals.cleanup", lane=LANE, retry=Retry(waits=[10 * MINUTE, 60 * MINUTE]))
    def cleanup(job: Job) -> dict[str, int]:
        return clean(meals)

    return app
