"""The functions of this package, in the registry: both synchronisations, and the customer profiles."""

from __future__ import annotations

from typing import Any

from onceward_apps.alerts.functions import Context, Result, Tenant, Window, function
from onceward_apps.alerts.sync import store
from onceward_apps.alerts.sync.connector import sync
from onceward_apps.alerts.sync.store import Connection


@function("sync-bigquery", every="hour")
async def sync_bigquery(context: Context, tenant: Tenant, window: Window) -> Result:
    """Read what is new in the tenant's tables of BigQuery."""
    return await sync(context, tenant, "sync-bigquery")


@function("sync-ecommerce-data", every="hour")
async def sync_ecommerce_data(context: Context, tenant: Tenant, window: Window) -> Result:
    """Read what is new in the tenant's shop: from its API, or from the files that it exports."""
    return await sync(context, tenant, "sync-ecommerce-data")


@function("scheduled-cdp-build", every="day")
async def scheduled_cdp_build(context: Context, tenant: Tenant, window: Window) -> Result:
    """Build the customer profiles of the day: orders, totals, first and last, segment."""

    async def build(connection: Connection) -> dict[str, Any]:
        # Until the day began: however often the day is built, it says the same.
        return await store.build_profiles(connection, window.grain_date, window.starts_at)

    result: Result = await context.transaction("profiles", build)
    return result
