"""BigQuery, by its own library against a server that speaks its REST API."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pytest

from tests.apps.alerts.sync.warehouse import BigQueryServer

FUNCTION = "sync-bigquery"
AT = datetime(2026, 2, 6, 10, 0, 0, 123456, tzinfo=UTC)
SCHEMA = {
    "id": "INTEGER",
    "customer": "STRING",
    "created": "TIMESTAMP",
    "updated": "TIMESTAMP",
    "total": "NUMERIC",
}
SETTINGS = {
    "project": "acme-data",
    "table": "sales.orders",
    "key": "id",
    "columns": {"order_id": "id", "customer_id": "customer", "ordered_at": "created", "updated_at": "updated", "amount": "total"},
}  # fmt: skip


def row(number, at=AT, total="12.345678901"):
    return {"id": number, "customer": f"c{number % 2}", "created": at, "updated": at, "total": total}


@pytest.fixture
def warehouse(monkeypatch):
    with BigQueryServer() as server:
        monkeypatch.setenv("BIGQUERY_EMULATOR_HOST", server.url)
        server.schema = dict(SCHEMA)
        yield server


def source(syncs, **settings):
    return syncs.source("warehouse", "bigquery", function=FUNCTION, **{**SETTINGS, **settings})


def run(syncs):
    return syncs.run(function=FUNCTION)["warehouse"]


def test_pages_go_by_time_and_key_so_that_no_row_of_one_moment_is_lost(syncs, warehouse):
    # Twelve rows of one moment, in pages of five; as texts, 10 comes before 2.
    warehouse.rows = [row(number) for number in range(12)]
    source(syncs, page_size=5)

    assert run(syncs) == {"pages": 3, "rows": 12, "written": 12, "deleted": 0}
    assert len(warehouse.queries) == 3
    assert syncs.orders("amount::text")[0] == ("12.345678901",)
    assert syncs.cursor("warehouse") == {"since": AT.isoformat()}


def test_the_next_pass_reads_the_overlap_and_writes_what_is_new(syncs, warehouse):
    warehouse.rows = [row(1), row(2, AT - timedelta(days=3))]
    source(syncs)
    run(syncs)
    # One of the future, one that became visible an hour late, and one that was changed.
    warehouse.rows += [row(3, AT + timedelta(hours=2)), row(4, AT - timedelta(hours=1))]
    warehouse.rows[0] = row(1, total="1")

    tally = run(syncs)
    assert (tally["rows"], tally["written"]) == (3, 3)
    assert run(syncs)["written"] == 0


def test_an_empty_table_is_no_error(syncs, warehouse):
    source(syncs)

    assert run(syncs) == {"pages": 1, "rows": 0, "written": 0, "deleted": 0}
    warehouse.rows = [row(1)]
    assert run(syncs)["written"] == 1


@pytest.mark.parametrize(
    ("kind", "at", "later"),
    [
        ("DATE", date(2026, 2, 1), date(2026, 2, 2)),
        ("DATETIME", datetime(2026, 2, 1, 12), datetime(2026, 2, 1, 12, 0, 1)),  # noqa: DTZ001 - this type has no zone
    ],
)
def test_other_types_of_time_are_compared_as_what_they_are(syncs, warehouse, kind, at, later):
    warehouse.schema |= {"created": kind, "updated": kind}
    warehouse.rows = [row(number, at) for number in range(3)] + [row(3, later)]
    source(syncs, page_size=2, changed_type=kind)

    assert run(syncs)["written"] == 4
    kinds = {one["name"]: one["parameterType"]["type"] for one in warehouse.queries[-1]["queryParameters"]}
    assert kinds["at"] == kind


def test_a_column_that_vanished_or_changed_its_type_is_refused(syncs, warehouse):
    warehouse.rows = [row(1)]
    source(syncs)
    run(syncs)
    warehouse.schema["total"] = "STRING"
    assert 'column "total" of source "warehouse" was number and is text now' in syncs.refused(
        function=FUNCTION
    )

    del warehouse.schema["total"]
    assert 'source "warehouse" has no column "total"' in syncs.refused(function=FUNCTION)


def failure(status, reason):
    body = {"error": {"code": status, "message": "no", "errors": [{"reason": reason, "message": "no"}]}}
    return status, {"content-type": "application/json"}, json.dumps(body).encode()


def test_a_quota_is_waited_for_without_using_up_an_attempt(syncs, warehouse):
    warehouse.rows = [row(1)]
    warehouse.trouble = lambda number: failure(403, "rateLimitExceeded") if number == 1 else None
    source(syncs)

    job_id = syncs.begin(function=FUNCTION)
    syncs.place.work()
    assert syncs.place.rows("select state, attempt from onceward.jobs where id = %s", job_id) == [
        ("scheduled", 0)
    ]
    syncs.place.clock.advance("30 s")
    syncs.place.work()
    assert syncs.result(job_id)["warehouse"]["written"] == 1


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (failure(503, "backendError"), "BigQuery does not answer: ServiceUnavailable"),
        (failure(400, "bytesBilledLimitExceeded"), "BigQuery refuses the query: "),
        (failure(403, "accessDenied"), "BigQuery refuses the query: "),
    ],
)
def test_what_bigquery_refuses_is_told_at_once(syncs, warehouse, answer, said):
    warehouse.trouble = lambda number: answer
    source(syncs)

    assert said in syncs.refused(function=FUNCTION)
    # The library's own retries would hold the worker for minutes.
    assert len(warehouse.queries) == 1


@pytest.mark.parametrize("table", ["orders", "sales.orders`; drop", "sales.orders where true", "a.b.c"])
def test_a_name_that_is_none_does_not_get_into_a_statement(table):
    from pydantic import ValidationError

    from onceward_apps.alerts.sync.bigquery import BigQuerySettings

    with pytest.raises(ValidationError, match="table"):
        BigQuerySettings.model_validate({**SETTINGS, "table": table, "target": "orders"})


def test_a_column_of_times_that_is_no_name_does_not_get_into_a_statement():
    from pydantic import ValidationError

    from onceward_apps.alerts.sync.bigquery import BigQuerySettings

    columns = {**SETTINGS["columns"], "updated_at": "x` or true -- "}
    with pytest.raises(ValidationError, match="column"):
        BigQuerySettings.model_validate({**SETTINGS, "columns": columns, "target": "orders"})


def test_amounts_are_exact(syncs, warehouse):
    warehouse.rows = [row(1, total="99999999999999999999.999999999")]
    source(syncs)
    run(syncs)

    assert [Decimal(amount) for _, amount in syncs.orders()] == [Decimal("99999999999999999999.999999999")]
