"""Orders to look at: four months of a shop, as the files that it exports.

All but those of the last two days are in the database already; these are what the first run reads.
"""

from __future__ import annotations

import csv
import io
import os
import random
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from onceward import logs
from onceward_apps.alerts.sync.access import Access

log = logs.get("onceward_apps.alerts.sync")
FUNCTION, SOURCE = "sync-ecommerce-data", "shop export"
DAYS, CUSTOMERS = 240, (130, 190)
FIRST = (
    "Amelia", "Noah", "Isla", "Mateo", "Aroha", "Liam", "Zoë", "Søren", "Mei", "Oliver", "Priya", "Lucas", "Hana", "Tāne",
    "Chloe", "Diego", "Freya", "Kenji", "Ruby", "Emil", "Nadia", "Theo", "Anahera", "Jack",
)  # fmt: skip
LAST = (
    "Nguyễn", "O'Connor", "Müller", "García", "Parata", "Smith", "Kowalska", "Tanaka", "Patel", "Brown", "Rossi", "Wihongi",
    "Johansson", "Silva", "Walker", "Chen", "Haddad", "Taylor", "Ngata", "Lindqvist",
)  # fmt: skip
COLUMNS = (
    "order_id",
    "customer_id",
    "email",
    "name",
    "ordered_at",
    "updated_at",
    "amount",
    "currency",
    "status",
)


def fill(connection: psycopg.Connection[Any], tenant: str, now: datetime, currency: str = "USD") -> None:
    """Files, the source that reads them, and the orders that earlier runs have read.  In the caller's transaction."""
    orders = sample_orders(tenant, now, currency)
    _write(tenant, orders)
    ((source_id,),) = connection.execute(
        "select alerts.add_sync_source(%s, %s, 'csv', 'orders', %s)",
        [FUNCTION, SOURCE, Jsonb({"path": "orders-*.csv"})],
    ).fetchall()
    known = [order for order in orders if order["ordered_at"] < (now - timedelta(days=2)).isoformat()]
    connection.execute(
        "select alerts.write_page(%s, null, null, %s, %s, null)",
        [source_id, Jsonb(dict.fromkeys(COLUMNS, "text")), Jsonb(known)],
    )


def sample_orders(tenant: str, now: datetime, currency: str) -> list[dict[str, str]]:
    """The same for the same tenant and day: regulars, people who came once, people who stayed away."""
    dice = random.Random(f"orders of {tenant}")  # noqa: S311 - samples
    orders: list[tuple[datetime, dict[str, str]]] = []
    for number in range(1, dice.randint(*CUSTOMERS) + 1):
        name = f"{dice.choice(FIRST)} {dice.choice(LAST)}"
        customer = {
            "customer_id": f"C{number:04}",
            "email": f"customer{number}@{tenant}.example",
            "name": name,
        }
        # Days between two orders, and for how many days they have stayed away.
        pace = dice.choice((9, 21, 40, 75, 400))
        at = now - timedelta(days=dice.uniform(1, DAYS))
        gone = now - timedelta(days=dice.choice((0, 0, 0, 0, 100, 190)))
        while at < gone:
            amount = round(max(6.5, dice.gauss(38, 22)) * (4 if dice.random() < 0.04 else 1), 2)
            status = "refunded" if dice.random() < 0.03 else "paid"
            when = at.replace(microsecond=0).isoformat()
            orders.append((at, {**customer, "ordered_at": when, "updated_at": when, "amount": f"{amount:.2f}",
                                "currency": currency, "status": status}))  # fmt: skip
            at += timedelta(days=dice.expovariate(1 / pace) + 0.2)
    orders.sort(key=lambda order: (order[0], order[1]["customer_id"]))
    return [{"order_id": f"{10_000 + index}", **order} for index, (_, order) in enumerate(orders)]


def _write(tenant: str, orders: Sequence[dict[str, str]]) -> None:
    """A file for each month.  Without a place for them, there is nothing new to read, and all else works."""
    months: dict[str, list[dict[str, str]]] = defaultdict(list)
    for order in orders:
        months[order["ordered_at"][:7]].append(order)
    folder = Access.from_environ(os.environ).files / tenant
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for month, found in months.items():
            text = io.StringIO()
            writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(found)
            (folder / f"orders-{month}.csv").write_text(text.getvalue(), encoding="utf-8")
    except OSError as error:
        log.warning("could_not_write_sample_files", folder=str(folder), error=type(error).__name__)
