"""Many rules over much history: `python -m tests.apps.alerts.load --rules 10000 --objects 100 --days 30`.

Prints the time per rule, and with several `--days` whether it grows with the history.  Needs a PostgreSQL in ONCEWARD_DSN that may be
filled, or starts the embedded one; makes a database of its own and drops it afterwards.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from onceward.dsn import resolve_dsn
from onceward.install import upgrade
from onceward_apps.alerts import store

NOW = datetime(2026, 2, 7, 1, 30, tzinfo=UTC)
METRICS = 100


@dataclass(frozen=True, slots=True)
class Measured:
    rules: int
    objects: int
    days: int
    values: int
    comparisons: int
    created: int
    # Of the first evaluation, which writes its alerts, and of the second, which finds them there.
    first_seconds: float
    again_seconds: float
    microseconds_per_rule: float


def fill(
    connection: psycopg.Connection[Any], *, rules: int, objects: int, days: int, metrics: int = METRICS
) -> int:
    """One value per metric, object and six hours; a quarter of the rules of each kind.  Returns how many values."""
    connection.execute("select alerts.add_tenant('load', 'Load', 'America/Los_Angeles')")
    connection.execute(
        "insert into alerts.metric_definitions (tenant_id, metric_code, title) "
        "select t.id, 'm' || n, 'Metric ' || n from alerts.tenants as t, generate_series(1, %s) as n",
        [metrics],
    )
    written = connection.execute(
        "insert into alerts.metric_values (tenant_id, metric_code, observed_at, external_object_id, value) "
        "select t.id, 'm' || m, %s - h * interval '6 hours' - interval '1 minute', 'o' || o, 100 + 10 * sin(h + o + m) "
        "  from alerts.tenants as t, generate_series(0, %s * 4 - 1) as h, generate_series(1, %s) as m, generate_series(1, %s) as o",
        [NOW, days, metrics, objects],
    ).rowcount
    # Thresholds that almost nothing crosses: what is measured is the evaluation.
    connection.execute(
        "insert into alerts.alert_configs (tenant_id, metric_code, title, kind, aggregate, comparison, threshold, period, periods) "
        "select t.id, 'm' || 1 + n %% %s, 'Rule ' || n, k.kind, (array['last', 'avg', 'sum', 'max'])[1 + n / 7 %% 4], 'above', "
        "       case k.kind when 'missing' then null when 'threshold' then 109.9 + 400 * (n / 7 %% 4 = 2)::integer else 21 end, interval '1 day', "
        "       case k.kind when 'trend' then 5 else 1 end "
        "  from alerts.tenants as t, generate_series(1, %s) as n, "
        "       lateral (select (array['threshold', 'change', 'missing', 'trend'])[1 + n %% 4] as kind) as k",
        [metrics, rules],
    )
    return written


def measure(
    connection: psycopg.Connection[Any], *, rules: int, objects: int, days: int, metrics: int = METRICS
) -> Measured:
    written = fill(connection, rules=rules, objects=objects, days=days, metrics=metrics)
    connection.execute("analyze")
    connection.execute("select set_config('onceward.tenant', 'load', false)")
    took, created = [], 0
    for _ in range(2):
        began = time.monotonic()
        found = connection.execute(
            "select rules, evaluated, created from alerts.detect(%s, '2026-02-06')", [NOW]
        ).fetchone()
        took.append(time.monotonic() - began)
        created += found[2]
    return Measured(
        found[0], objects, days, written, found[1], created, round(took[0], 3), round(took[1], 3),
        round(took[1] / rules * 1e6, 1),
    )  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rules", type=int, default=10_000)
    parser.add_argument("--objects", type=int, default=100)
    parser.add_argument("--days", type=int, nargs="+", default=[30, 90])
    given = parser.parse_args()
    dsn = resolve_dsn(None)
    for days in given.days:
        name = f"alerts_load_{int(time.time())}_{days}"
        with psycopg.connect(dsn, autocommit=True) as admin:
            admin.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
            try:
                own = make_conninfo(dsn, dbname=name)
                upgrade(own)
                store.install(own)
                with psycopg.connect(own, autocommit=True) as connection:
                    found = measure(connection, rules=given.rules, objects=given.objects, days=days)
                sys.stdout.write(json.dumps(asdict(found)) + "\n")
            finally:
                admin.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
