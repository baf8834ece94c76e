"""Two companies to look at: five weeks of metrics, what the rules found in them, and decisions in every state.

The alerts are found by the rules themselves, day by day, as they would have been.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from onceward_apps.alerts.functions import Functions
from onceward_apps.alerts.sync import sample as orders

Connection = psycopg.Connection[Any]
DAYS = 36
STEP = timedelta(hours=2)
PEOPLE = ("Maria Lopez", "Tom Becker", "Aroha Ngata", "Wei Chen")


@dataclass(frozen=True, slots=True)
class Series:
    """One metric of one object.  `troubles` are (days ago, days it lasted, factor)."""

    metric: str
    of: str
    base: float
    swing: float = 0.25
    troubles: tuple[tuple[float, float, float], ...] = ()
    # No values since so many days.
    silent_for: float = 0.0


@dataclass(frozen=True, slots=True)
class Company:
    slug: str
    name: str
    zone: str
    notify: tuple[str, ...]
    # code, title, unit, better
    metrics: tuple[tuple[str, str, str, str], ...]
    series: tuple[Series, ...]
    # metric, title, kind, aggregate, comparison, threshold, period in hours, periods, severity
    rules: tuple[tuple[str, str, str, str, str, float | None, int, int, str], ...]


COMPANIES = (
    Company(
        "northwind", "Northwind Coffee", "America/Los_Angeles", ("ops@northwind.example", "maria@northwind.example"),
        (("revenue", "Revenue", "$", "up"), ("conversion", "Conversion rate", "%", "up"), ("returns", "Return rate", "%", "down")),
        (
            Series("revenue", "Seattle", 1850, troubles=((20, 2, 0.45), (2.2, 1.2, 0.5))),
            Series("revenue", "Portland", 1240, troubles=((12, 1.5, 0.5),)),
            Series("revenue", "Oakland", 1520, troubles=((0.9, 2, 0.42),)),
            Series("conversion", "web shop", 3.4, 0.08, ((16, 9, 0.72), (1.2, 2, 0.7))),
            # Long enough ago to be decided, too recent to be measured: at any hour.
            Series("conversion", "app", 4.6, 0.06, ((6, 2.5, 0.58),)),
            Series("returns", "beans", 2.1, 0.1, ((9, 2.5, 2.6),)),
            Series("returns", "machines", 4.0, 0.1, ((0.6, 1, 2.2),)),
        ),
        (
            ("revenue", "Revenue fell", "change", "sum", "below", 30, 24, 1, "critical"),
            ("conversion", "Conversion is low", "threshold", "avg", "below", 2.9, 24, 1, "warning"),
            ("returns", "Many returns", "threshold", "avg", "above", 4.9, 24, 1, "warning"),
            ("revenue", "Revenue goes down", "trend", "last", "below", 6, 24, 6, "info"),
            ("revenue", "No sales data", "missing", "last", "above", None, 12, 1, "critical"),
        ),
    ),
    Company(
        "kiwi", "Kiwi Outfitters", "Pacific/Auckland", ("team@kiwi.example",),
        (("orders", "Orders", "", "up"), ("delivery", "Delivery time", "h", "down"), ("stock", "Stock cover", "days", "up")),
        (
            Series("orders", "Auckland", 64, troubles=((15, 2, 0.4),)),
            Series("orders", "Wellington", 41, troubles=((1.1, 2, 0.45),)),
            Series("delivery", "north island", 31, 0.1, ((11, 3, 1.9),)),
            Series("delivery", "south island", 44, 0.1, ((0.8, 2, 1.7),)),
            Series("stock", "tents", 28, 0.05, ((14, 6, 0.35),)),
            Series("stock", "boots", 35, 0.05, silent_for=1.4),
        ),
        (
            ("orders", "Orders fell", "change", "sum", "below", 30, 24, 1, "critical"),
            ("delivery", "Deliveries are slow", "threshold", "avg", "above", 55, 24, 1, "warning"),
            ("stock", "Stock runs out", "threshold", "last", "below", 14, 24, 1, "critical"),
            ("stock", "No stock data", "missing", "last", "above", None, 24, 1, "warning"),
        ),
    ),
)  # fmt: skip


def fill(dsn: str, functions: Functions) -> int:
    """The companies that are not there yet; how many.  Needs the rights of an owner."""
    new = 0
    with psycopg.connect(dsn) as connection:
        connection.execute("set local role onceward_owner")
        for company in COMPANIES:
            if (
                connection.execute("select from alerts.tenants where slug = %s", [company.slug]).fetchone()
                is None
            ):
                new += 1
                _fill(connection, company, functions)
    return new


def _fill(connection: Connection, company: Company, functions: Functions) -> None:
    ((now,),) = connection.execute("select onceward.now()").fetchall()
    connection.execute("select set_config('onceward.tenant', %s, true)", [company.slug])
    ((tenant,),) = connection.execute(
        "select alerts.add_tenant(%s, %s, %s, %s)",
        [company.slug, company.name, company.zone, list(company.notify)],
    ).fetchall()
    with connection.cursor() as cursor:
        cursor.executemany(
            "insert into alerts.metric_definitions (tenant_id, metric_code, title, unit, better) values (%s, %s, %s, %s, %s)",
            [(tenant, *metric) for metric in company.metrics],
        )
        cursor.executemany(
            "insert into alerts.alert_configs (tenant_id, metric_code, title, kind, aggregate, comparison, threshold, period, periods, severity) "
            "values (%s, %s, %s, %s, %s, %s, %s, make_interval(hours => %s), %s, %s)",
            [(tenant, *rule) for rule in company.rules],
        )
    for series in company.series:
        values = list(_values(series, now))
        connection.execute(
            "insert into alerts.metric_values (tenant_id, metric_code, observed_at, external_object_id, value) "
            "select %s, %s, v.at, %s, v.value from unnest(%s::timestamptz[], %s::double precision[]) as v (at, value)",
            [tenant, series.metric, series.of, [at for at, _ in values], [value for _, value in values]],
        )
    # Day by day, as it would have been: at seven in the evening of the company.
    for ago in range(DAYS - 8, -1, -1):
        connection.execute(
            "select alerts.detect(e.at, (e.at at time zone t.time_zone)::date) from alerts.acting_tenant() as t, "
            "lateral (select least(onceward.now(), ((onceward.now() at time zone t.time_zone)::date - %s::integer + time '19:00') "
            "at time zone t.time_zone) as at) as e",
            [ago],
        )
    _decide(connection)
    orders.fill(connection, company.slug, now, "NZD" if company.zone.startswith("Pacific/") else "USD")
    # What the worker does first, and what waits for a person: a call for an alert that does not exist.
    for function in functions.values():
        connection.execute(
            "select alerts.begin_function(%s, %s, null, null, %s, 'sample')",
            [function.name, function.window, functions.chain(function)],
        )
    ghost = Jsonb({"alert_id": "00000000-0000-4000-8000-000000000000"})
    connection.execute(
        "select alerts.begin_function('process-alert-notifications', '5m', %s, null, '{}', 'sample')", [ghost]
    )


def _decide(connection: Connection) -> None:
    """People have worked: old alerts are decided and measured, some are in progress, the latest wait."""
    connection.execute("select alerts.make_cards()")
    connection.execute(
        "update alerts.decision_cards as k set created_at = a.triggered_at, updated_at = a.triggered_at "
        "  from alerts.alert_instances as a where a.id = k.alert_instance_id and k.tenant_id = alerts.tenant_id(); "
        "update alerts.alert_instances as a set created_at = a.triggered_at where a.tenant_id = alerts.tenant_id()"
    )
    connection.execute(
        "update alerts.decision_cards as k "
        "   set status = 'DECIDED', owner = (%(people)s::text[])[1 + n.n %% 4], decided_by = (%(people)s::text[])[1 + n.n %% 4], "
        "       decision = k.options -> (n.n %% 3)::integer ->> 'code', decided_at = k.created_at + interval '20 hours', "
        "       updated_at = k.created_at + interval '20 hours' "
        "  from (select i.id, row_number() over (order by i.created_at, i.id) as n from alerts.decision_cards as i "
        "         where i.tenant_id = alerts.tenant_id()) as n "
        " where n.id = k.id and k.created_at < onceward.now() - interval '3 days'",
        {"people": list(PEOPLE)},
    )
    # One was decided so lately that nobody can know yet what came of it.
    connection.execute(
        "update alerts.decision_cards as k set decided_at = onceward.now() - interval '30 hours', updated_at = onceward.now() - interval '30 hours' "
        " where k.id = (select i.id from alerts.decision_cards as i where i.tenant_id = alerts.tenant_id() and i.status = 'DECIDED' "
        "                order by i.created_at desc, i.id limit 1)"
    )
    connection.execute(
        "update alerts.alert_instances as a set status = 'resolved', acknowledged_at = k.decided_at, acknowledged_by = k.decided_by, "
        "       resolved_at = k.decided_at, resolved_by = k.decided_by "
        "  from alerts.decision_cards as k where k.alert_instance_id = a.id and k.status = 'DECIDED' and a.tenant_id = alerts.tenant_id()"
    )
    connection.execute(
        "select alerts.measure_outcomes((onceward.now() at time zone t.time_zone)::date) from alerts.acting_tenant() as t"
    )
    # One of three that are left is in somebody's hands.
    connection.execute(
        "with taken as (update alerts.decision_cards as k set status = 'IN_PROGRESS', owner = %(owner)s, updated_at = onceward.now() "
        "  where k.id in (select i.id from (select o.id, row_number() over (order by o.created_at, o.id) as n from alerts.decision_cards as o "
        "                  where o.status = 'OPEN' and o.tenant_id = alerts.tenant_id()) as i where i.n %% 3 = 1) returning k.alert_instance_id) "
        "update alerts.alert_instances as a set status = 'acknowledged', acknowledged_at = onceward.now(), acknowledged_by = %(owner)s "
        "  from taken where a.id = taken.alert_instance_id",
        {"owner": PEOPLE[0]},
    )


def _values(series: Series, now: datetime) -> Iterator[tuple[datetime, float]]:
    dice = random.Random(f"{series.metric}/{series.of}")  # noqa: S311 - the weather of a sample
    at = now - timedelta(days=DAYS)
    while at < now - timedelta(days=series.silent_for):
        ago = (now - at) / timedelta(days=1)
        hour = at.hour + at.minute / 60
        value = series.base * (
            1
            + series.swing * math.sin((hour - 6) / 24 * math.tau)
            + series.swing / 3 * math.sin(ago / 7 * math.tau)
        )
        value *= dice.gauss(1, 0.03)
        for since, lasted, factor in series.troubles:
            if since - lasted < ago <= since:
                value *= factor
        yield at, round(value, 2)
        at += STEP
