"""The schema check: what vanished or changed its type is refused by name, what is new is reported."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.apps.alerts.sync.shop import order
from tests.apps.alerts.sync.test_files import HEADER, line, table

AT = "2026-02-06T10:00:00+00:00"


def test_a_column_of_a_file_that_vanished_is_refused_by_name(syncs):
    syncs.source("export", "csv", path="*.csv")
    syncs.write("1.csv", HEADER.replace("\n", ",channel\n") + line(1).replace("\n", ",web\n"))
    assert syncs.run()["export"]["written"] == 1

    # Not one that we read, but whoever exports has changed something.
    syncs.write("2.csv", HEADER + line(2))
    assert 'source "export" has no column "channel"' in syncs.refused()
    assert len(syncs.orders()) == 1


def test_a_column_that_a_target_needs_is_refused_from_the_beginning(syncs):
    syncs.source("export", "csv", path="*.csv")
    syncs.write("1.csv", HEADER.replace("amount", "ammount") + line(1))

    assert 'source "export" has no column "amount"' in syncs.refused()


def test_a_new_column_is_reported_and_known_from_then_on(syncs):
    syncs.source("export", "csv", path="*.csv")
    syncs.write("1.csv", HEADER + line(1))
    assert "new_columns" not in syncs.run()["export"]
    syncs.write("2.csv", HEADER.replace("\n", ",channel\n") + line(2).replace("\n", ",web\n"))
    assert syncs.run()["export"]["new_columns"] == ["channel"]

    syncs.write("3.csv", HEADER + line(3))
    assert 'no column "channel"' in syncs.refused()


def test_a_column_that_changed_its_type_is_refused_with_both(syncs):
    syncs.source("lake", "parquet", path="*.parquet")
    folder = syncs.folder / "northwind"
    pq.write_table(table([1]), folder / "1.parquet")
    syncs.run()
    changed = table([2])
    changed = changed.set_column(4, "amount", pa.array(["12.30"]))
    pq.write_table(changed, folder / "2.parquet")

    assert 'column "amount" of source "lake" was number and is text now' in syncs.refused()
    assert len(syncs.orders()) == 1


def test_a_change_that_a_person_accepts_is_taken_by_the_retry(syncs):
    source = syncs.source("lake", "parquet", path="*.parquet")
    folder = syncs.folder / "northwind"
    pq.write_table(table([1]), folder / "1.parquet")
    syncs.run()
    pq.write_table(table([2]).set_column(4, "amount", pa.array(["12.30"])), folder / "2.parquet")
    syncs.refused()

    with syncs.place.acting("northwind", "onceward_operator") as conn:
        conn.execute("select alerts.accept_columns(%s)", [source])
    syncs.place.clock.advance("1 s")
    syncs.place.work()

    assert [Decimal(amount) for _, amount in syncs.orders()] == [Decimal("12.3")] * 2


def test_rows_of_an_api_may_leave_out_what_nobody_reads(syncs, shop):
    shop.orders = [order(1, AT, note="gift"), order(2, AT)]
    syncs.shop_source(shop)
    syncs.run()
    shop.orders = [order(3, AT)]

    assert syncs.run()["shop"]["written"] == 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"total_price": None}, 'column "total_price" is empty'),
        ({"total_price": 19.9}, 'column "total_price" of source "shop" was text and is number now'),
        ({"customer": {"id": "1"}}, 'column "customer.id" of source "shop" was number and is text now'),
        ({"contact_email": ...}, 'source "shop" has no column "contact_email"'),
        ({"customer": ...}, 'source "shop" has no column "customer.id"'),
    ],
)
def test_what_changes_in_an_api_is_refused_by_name(syncs, shop, change, said):
    shop.orders = [order(1, AT)]
    syncs.shop_source(shop)
    syncs.run()
    changed = order(2, AT) | change
    shop.orders = [{name: value for name, value in changed.items() if value is not ...}]

    assert said in syncs.refused()
    assert [number for number, _ in syncs.orders()] == ["1"]


def test_a_column_that_holds_nothing_for_a_while_is_no_change(syncs, shop):
    shop.orders = [order(1, AT, contact_email=None)]
    syncs.shop_source(shop)
    syncs.run()
    for email in ("a@example.com", None):
        shop.orders = [order(2, AT, contact_email=email)]
        syncs.run()

    # The latest that the source says.
    assert syncs.orders("order_id, email") == [("1", None), ("2", None)]
