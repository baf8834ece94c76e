"""What an evaluation reads: the end of each metric's history, once, however many rules and however long the history."""

from __future__ import annotations

import psycopg
import pytest

from onceward_apps.alerts import store
from tests.apps.alerts import load

pytestmark = pytest.mark.slow
# Not a multiple of the number of kinds: each metric has rules of every kind.
METRICS, OBJECTS = 5, 10


def rows_read(connection: psycopg.Connection) -> int:
    """How many rows of metric_values one evaluation reads, by the database's own count."""

    def count() -> tuple[int, int]:
        connection.execute("select pg_stat_force_next_flush()")
        with psycopg.connect(connection.info.dsn, autocommit=True) as other:
            return other.execute(
                "select seq_tup_read, (select sum(idx_tup_read)::bigint from pg_stat_user_indexes where relid = t.relid) "
                "from pg_stat_user_tables as t where relid = 'alerts.metric_values'::regclass"
            ).fetchone()

    before = count()
    connection.execute("select alerts.detect(%s, '2026-02-06')", [load.NOW])
    after = count()
    # Never the whole table.
    assert after[0] == before[0]
    return after[1] - before[1]


def test_a_longer_history_and_more_rules_read_nothing_more(onceward_kit):
    onceward_kit.clock.pin(load.NOW)
    store.install(onceward_kit.dsn)
    connection = onceward_kit.connect()
    load.fill(connection, rules=40, objects=OBJECTS, days=10, metrics=METRICS)
    connection.execute("select set_config('onceward.tenant', 'load', false)")
    short = rows_read(connection)
    # One day for thresholds, two for changes, five for trends, of which each metric has some.
    assert short <= METRICS * OBJECTS * 4 * (1 + 2 + 5)
    assert short > 0

    connection.execute(
        "insert into alerts.metric_values select tenant_id, metric_code, observed_at - interval '10 days' * n, external_object_id, value "
        "from alerts.metric_values, generate_series(1, 9) as n on conflict do nothing; analyze alerts.metric_values"
    )
    connection.execute(
        "insert into alerts.alert_configs (tenant_id, metric_code, title, kind, threshold) "
        "select tenant_id, metric_code, 'More ' || n, 'threshold', 1000 from alerts.metric_definitions, generate_series(1, 200) as n"
    )

    assert rows_read(connection) == short


def test_a_small_load(onceward_kit):
    onceward_kit.clock.pin(load.NOW)
    store.install(onceward_kit.dsn)
    found = load.measure(onceward_kit.connect(), rules=200, objects=10, days=8, metrics=10)
    assert (found.rules, found.comparisons) == (200, 1500)
    assert found.created > 0
