"""The four functions of the core: detect, decide, measure, tell.  The work is done in SQL, over all that a tenant has."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from onceward.errors import PermanentFailure
from onceward_apps.alerts import store
from onceward_apps.alerts.functions import Connection, Context, Result, Tenant, Window, function

# Tells are reserved and handed to the ledger in transactions of this many.
PAGE = 500


@function("detect-alerts", every="5m", then="generate-decision-cards")
async def detect_alerts(context: Context, _tenant: Tenant, window: Window) -> Result:
    """Evaluate every rule; each condition makes one alert per day."""

    async def detect(connection: Connection) -> Result:
        # As of now while the window lasts, as of its end afterwards: a late try sees what a timely one would have seen.
        return await store.one_result(
            connection,
            "select * from alerts.detect(least(%(end)s, onceward.now()), %(day)s, %(job)s)",
            end=window.ends_at, day=window.grain_date, job=context.job.id,
        )  # fmt: skip

    result: Result = await context.transaction("detected", detect)
    return result


@function("generate-decision-cards", every="15m", then="process-alert-notifications")
async def generate_decision_cards(context: Context, _tenant: Tenant, _window: Window) -> Result:
    """Give each alert its decision card, once."""

    async def make(connection: Connection) -> Result:
        return await store.one_result(
            connection, "select * from alerts.make_cards(%(job)s)", job=context.job.id
        )

    result: Result = await context.transaction("made", make)
    return result


@function("auto-measure-outcomes", every="day")
async def auto_measure_outcomes(context: Context, _tenant: Tenant, window: Window) -> Result:
    """See whether the metric moved in the week after a decision."""

    async def measure(connection: Connection) -> Result:
        return await store.one_result(
            connection,
            "select * from alerts.measure_outcomes(%(day)s, %(job)s)",
            day=window.grain_date,
            job=context.job.id,
        )

    async def tidy(connection: Connection) -> Result:
        return await store.one_result(connection, "select alerts.tidy_runs() as removed")

    result: Result = await context.transaction("measured", measure)
    await context.transaction("tidied", tidy)
    return result


@function("process-alert-notifications", every=None, window="5m", entity=("alert_id",))
async def process_alert_notifications(context: Context, tenant: Tenant, _window: Window) -> Result:
    """Tell everybody who should know of a new alert, once."""
    alert_id: str | None = context.entity.get("alert_id")

    async def tell(connection: Connection) -> int:
        if alert_id is not None and not await store.alert_exists(connection, alert_id):
            raise PermanentFailure(f"alert {alert_id} does not exist")
        sent: list[tuple[UUID, UUID]] = []
        for told in await store.reserve_notifications(connection, alert_id):
            # In the ledger with the row that says so, or neither.
            delivery = await context.client.deliveries.email(
                connection=connection, **email_of(told, tenant, context.settings.base_url)
            )
            sent.append((told.id, delivery.id))
        await store.note_deliveries(connection, sent)
        return len(sent)

    total, page = 0, 0
    while True:
        page += 1
        sent: int = await context.transaction(f"told {page}", tell)
        total += sent
        if sent < PAGE:
            return {"notifications": total}


def email_of(told: store.Told, tenant: Tenant, base_url: str) -> dict[str, Any]:
    """The email of one alert to one recipient; the key makes it one, whoever asks."""
    link = f"{base_url}/alerting/alerts/{told.alert_id}"
    return {
        "key": f"alert:{told.alert_id}:{told.recipient}",
        "to": told.recipient,
        "subject": f"[{told.severity}] {told.title}",
        "text": f"{told.message}\n\n{tenant.name}, {told.alert_date:%-d %B %Y}\n{link}\n",
    }
