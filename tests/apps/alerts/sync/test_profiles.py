"""scheduled-cdp-build: one profile per customer, the same however often a day is built."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest

from tests.apps.alerts.conftest import EVENING
from tests.apps.alerts.place import NORTH, SOUTH

CDP = "scheduled-cdp-build"


def put(place, number, customer, days_ago, amount="10", *, tenant=NORTH, **more):
    """An order of so many days before the evening."""
    at = EVENING - timedelta(days=days_ago)
    fields = {"tenant_id": place.tenants[tenant], "order_id": str(number), "customer_id": customer, "ordered_at": at, "updated_at": at,
              "amount": Decimal(amount), **more}  # fmt: skip
    place.conn.execute(
        f"insert into alerts.orders ({', '.join(fields)}) values ({', '.join(['%s'] * len(fields))})",
        list(fields.values()),
    )


def build(place, tenant=NORTH, *, at=None):
    outcome, job_id, *_ = place.begin(CDP, tenant, at=at)
    assert outcome == "started", outcome
    place.work()
    return place.value("select result from alerts.job_runs where id = %s and status = 'completed'", job_id)


def profiles(place, columns="customer_id, orders, revenue::text, segment", tenant=NORTH):
    return place.rows(
        f"select {columns} from alerts.customer_profiles where tenant_id = %s order by customer_id",
        place.tenants[tenant],
    )


def again(place, tenant=NORTH, *, day=None):
    """The same day once more, past the lock key, as a person may in SQL."""
    with place.acting(tenant, "onceward_worker") as conn:
        return conn.execute(
            "select b.changed, b.removed from alerts.window_at(%s, 'day', null, %s) as w, alerts.build_profiles(w.grain_date, w.starts_at) as b",
            [CDP, day or place.clock.now()],
        ).fetchone()


def test_orders_totals_first_and_last_and_segment(place):
    put(place, 1, "anna", 40, "10.50", email="old@example.com", name="Anna")
    put(place, 2, "anna", 10, "20", email="anna@example.com")
    put(place, 3, "ben", 5, "7")
    put(place, 4, "cleo", 120, "50")
    put(place, 5, "dov", 400, "50")
    for number in range(10, 15):
        put(place, number, "eva", number, "5")
    put(place, 20, "fay", 3, "900")
    put(place, 21, "fay", 4, "900")

    result = build(place)

    assert profiles(place) == [
        ("anna", 2, "30.50", "active"),
        ("ben", 1, "7", "new"),
        ("cleo", 1, "50", "at_risk"),
        ("dov", 1, "50", "lapsed"),
        ("eva", 5, "25", "loyal"),
        ("fay", 2, "1800", "vip"),
    ]
    assert result == {
        "profiles": 6, "changed": 6, "removed": 0,
        "segments": {"active": 1, "new": 1, "at_risk": 1, "lapsed": 1, "loyal": 1, "vip": 1},
    }  # fmt: skip
    assert profiles(place, "email, name, first_order_at, last_order_at, built_on::text")[0] == (
        "anna@example.com", "Anna", EVENING - timedelta(days=40), EVENING - timedelta(days=10), "2026-02-06",
    )  # fmt: skip


def test_the_same_day_built_again_changes_nothing(place):
    put(place, 1, "anna", 40)
    put(place, 2, "ben", 3)
    build(place)
    before = profiles(place, "customer_id, ctid::text, xmin::text")

    assert place.begin(CDP)[0] == "completed"
    assert again(place) == (0, 0)
    # An order of the day itself belongs to the day after, in which it can be complete.
    put(place, 3, "ben", 0)
    assert again(place) == (0, 0)
    assert profiles(place, "customer_id, ctid::text, xmin::text") == before

    place.clock.advance("1 day")
    assert build(place)["changed"] == 2
    assert profiles(place, "orders") == [(1,), (2,)]


def test_a_day_of_the_past_does_not_undo_a_later_one(place):
    put(place, 1, "anna", 40)
    put(place, 2, "anna", 3)
    put(place, 3, "zoe", 2)
    build(place)
    before = profiles(place)

    assert build(place, at=EVENING - timedelta(days=10))["changed"] == 0
    assert profiles(place) == before


def test_cancelled_orders_do_not_count_and_customers_without_orders_go(place):
    put(place, 1, "anna", 3)
    put(place, 2, "anna", 2, "99", status="cancelled")
    put(place, 3, "ben", 2)
    build(place)
    assert profiles(place) == [("anna", 1, "10", "new"), ("ben", 1, "10", "new")]

    place.conn.execute("update alerts.orders set status = 'refunded' where order_id = '3'")
    assert again(place) == (0, 1)
    assert profiles(place, "customer_id") == [("anna",)]


def test_amounts_of_different_currencies_are_not_added(place):
    put(place, 1, "anna", 3, "10", currency="EUR")
    put(place, 2, "anna", 3, "20", currency="EUR")
    put(place, 3, "anna", 3, "5000", currency="JPY")
    build(place)

    assert profiles(place, "revenue::text, attributes -> 'revenue'") == [("30", {"EUR": 30, "JPY": 5000})]


def test_a_tenant_without_orders_has_no_profiles(place):
    assert build(place) == {"profiles": 0, "changed": 0, "removed": 0, "segments": {}}


@pytest.mark.parametrize(("tenant", "orders"), [(NORTH, 1), (SOUTH, 2)])
def test_the_day_begins_where_the_tenant_is(place, tenant, orders):
    # In California Friday has begun eighteen hours ago, in New Zealand Saturday fourteen and a half.
    put(place, 1, "anna", 2, tenant=tenant)
    put(place, 2, "anna", 16 / 24, tenant=tenant)
    build(place, tenant)

    assert profiles(place, "orders", tenant) == [(orders,)]
    assert profiles(place, tenant=SOUTH if tenant == NORTH else NORTH) == []
