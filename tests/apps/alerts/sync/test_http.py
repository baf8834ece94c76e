"""The API of a shop, over a real socket: pages, edges, trouble, and whose secret it is."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.apps.alerts.conftest import EVENING
from tests.apps.alerts.sync.shop import COLUMNS, Shop, order

AT = "2026-02-06T10:00:00+00:00"


def at(minutes: int) -> str:
    """So many minutes before the evening on which these tests begin."""
    return (EVENING - timedelta(minutes=minutes)).isoformat()


@pytest.mark.parametrize("paging", ["link", "cursor"])
def test_all_pages_are_read_and_then_only_what_changed(syncs, shop, paging):
    shop.paging = paging
    shop.orders = [order(number, at(100 - number)) for number in range(7)]
    syncs.shop_source(shop, page_size=3, paging=paging, cursor_path="meta.next", cursor_parameter="page_info")

    assert syncs.run()["shop"] == {"pages": 3, "rows": 7, "written": 7, "deleted": 0}
    assert syncs.orders("order_id, customer_id, email, amount::text, currency")[0] == (
        "0",
        "1000",
        "c0@example.com",
        "19.90",
        "EUR",
    )
    assert "updated_at_min" not in shop.asked[0]
    assert syncs.cursor() == {"since": at(94)}

    shop.orders[0] |= {"updated_at": at(-30), "financial_status": "refunded"}
    shop.asked.clear()
    tally = syncs.run()["shop"]
    # What lies within the overlap is read again, and not written.
    assert (tally["rows"], tally["written"]) == (8 - 1, 1)
    assert shop.asked[0]["updated_at_min"] == at(104).replace("+00:00", "Z")
    assert ("0", "refunded") in syncs.orders("order_id, status")


def test_rows_of_one_moment_at_the_edge_of_a_page_are_all_read(syncs, shop):
    shop.orders = [order(number, AT) for number in range(10)]
    syncs.shop_source(shop, page_size=3)

    assert syncs.run()["shop"]["written"] == 10
    # Another one of the same moment, which became visible after the run.
    shop.orders.append(order(10, AT))
    assert syncs.run()["shop"]["written"] == 1


def test_a_row_that_became_visible_late_is_found(syncs, shop):
    shop.orders = [order(1, at(1))]
    syncs.shop_source(shop)
    syncs.run()
    # Committed after the others, under an earlier time.
    shop.orders.append(order(2, at(9)))

    assert syncs.run()["shop"]["written"] == 1


def test_a_row_from_the_future_does_not_hide_the_present(syncs, shop):
    shop.orders = [order(1, "2999-01-01T00:00:00+00:00")]
    syncs.shop_source(shop)
    syncs.run()
    shop.orders.append(order(2, at(-60)))

    assert syncs.run()["shop"]["written"] == 1


def test_an_older_version_does_not_undo_a_newer_one(syncs, shop):
    shop.orders = [order(1, at(5), total_price="2.00"), order(1, at(9), total_price="1.00")]
    syncs.shop_source(shop)

    # Both in one page, the older one last; then the older one alone, as a stale replica would answer.
    syncs.run()
    assert syncs.orders() == [("1", "2.00")]
    del shop.orders[0]
    syncs.run()
    assert syncs.orders() == [("1", "2.00")]


def test_a_deletion_that_the_source_tells_is_done(syncs, shop):
    shop.orders = [order(1, at(9)), order(2, at(9))]
    syncs.shop_source(shop, deleted="deleted_at")
    syncs.run()
    # Of a deleted one, the shop tells no more than this.
    shop.orders[0] = {"id": 1, "customer": None, "created_at": None, "total_price": None, "updated_at": at(1), "deleted_at": at(1),
                      "contact_email": None, "financial_status": None, "currency": None}  # fmt: skip

    tally = syncs.run()["shop"]
    assert (tally["written"], tally["deleted"]) == (0, 1)
    assert syncs.orders() == [("2", "19.90")]
    assert syncs.run()["shop"]["deleted"] == 0


def test_an_empty_shop_is_no_error(syncs, shop):
    syncs.shop_source(shop)

    assert syncs.run()["shop"] == {"pages": 1, "rows": 0, "written": 0, "deleted": 0}
    shop.orders = [order(1, at(1))]
    assert syncs.run()["shop"]["written"] == 1


def test_amounts_keep_their_digits_and_ids_their_size(syncs, shop):
    shop.orders = [order(2**53 + 1, AT, total_price=0.1), order(2, AT, total_price="99999999999999999999.99")]
    syncs.shop_source(shop)
    syncs.run()

    assert syncs.orders() == [("2", "99999999999999999999.99"), ("9007199254740993", "0.1")]


# ---------------------------------------------------------------- trouble


def test_asked_to_wait_the_run_waits_as_long_and_uses_up_no_attempt(syncs, shop):
    shop.orders = [order(number, AT) for number in range(5)]
    shop.trouble = lambda number: (429, {"retry-after": "90"}, b"") if number == 2 else None
    syncs.shop_source(shop, page_size=3)

    job_id = syncs.begin()
    syncs.place.work()
    now = syncs.place.clock.now()
    assert syncs.place.rows(
        "select state, attempt, run_at - %s from onceward.jobs where id = %s", now, job_id
    ) == [("scheduled", 0, timedelta(seconds=90))]
    # The page before is committed, with its cursor.
    assert len(syncs.orders()) == 3
    syncs.place.clock.advance("89 s")
    syncs.place.work()
    assert len(shop.asked) == 2

    syncs.place.clock.advance("1 s")
    syncs.place.work()
    assert syncs.result(job_id)["shop"] == {"pages": 2, "rows": 5, "written": 5, "deleted": 0}
    # The first page was not fetched again.
    assert len(shop.asked) == 3


def test_errors_that_pass_are_retried_and_leave_no_sync_error(syncs, shop):
    shop.orders = [order(1, AT)]
    shop.trouble = lambda number: (500, {}, b"<html>oops") if number <= 2 else None
    syncs.shop_source(shop)

    job_id = syncs.begin()
    syncs.place.work()
    for wait in ("1 s", "5 s"):
        syncs.place.clock.advance(wait)
        syncs.place.work()

    assert syncs.result(job_id)["shop"]["written"] == 1
    assert syncs.errors(job_id) == []
    assert syncs.place.runs("sync-ecommerce-data")[0][1:] == ("completed", 2)


def test_errors_that_stay_are_a_sync_error_when_the_retries_are_used_up(syncs, shop):
    shop.trouble = lambda number: (502, {}, b"")
    syncs.shop_source(shop)

    job_id = syncs.begin()
    syncs.place.work()
    for wait in ("1 s", "5 s", "25 s"):
        assert syncs.errors(job_id) == []
        syncs.place.clock.advance(wait)
        syncs.place.work()

    ((code, message),) = syncs.errors(job_id)
    assert (code, message) == (
        "MAX_RETRIES_EXCEEDED",
        'could not read source "shop": the source answers with HTTP 502',
    )
    # Mended, and run again by a person: it is closed.
    shop.trouble = lambda number: None
    syncs.place.value("select alerts.retry_run(%s)::text", job_id)
    syncs.place.work()
    assert syncs.place.value("select is_resolved from alerts.sync_errors where id = %s", job_id) is True


def test_a_source_that_fails_does_not_keep_the_others_from_being_read(syncs, shop):
    shop.orders = [order(1, AT)]
    syncs.shop_source(shop)
    syncs.source("broken", "http", url=f"{shop.url}/orders.json", items="nothing.here", columns=COLUMNS)

    assert (
        'could not read source "broken": the answer has no list of objects at nothing.here' in syncs.refused()
    )
    assert len(syncs.orders()) == 1
    # Mended in its settings, the retry takes them, and does not read the other one's page again.
    syncs.source("broken", "http", url=f"{shop.url}/orders.json", items="orders", columns=COLUMNS)
    asked = len(shop.asked)
    syncs.place.clock.advance("1 s")
    syncs.place.work()
    assert syncs.place.runs("sync-ecommerce-data")[0][1:] == ("completed", 1)
    assert len(shop.asked) - asked == 2


def test_a_page_that_the_shop_has_forgotten_begins_the_pass_again(syncs, shop):
    shop.orders = [order(number, AT) for number in range(5)]
    syncs.shop_source(shop, page_size=2)
    shop.trouble = lambda number: (503, {}, b"") if number == 3 else None
    assert "HTTP 503" in syncs.refused()
    assert "next" in syncs.cursor()

    shop.trouble = lambda number: (410, {}, b"") if number == 4 else None
    syncs.place.clock.advance("1 s")
    syncs.place.work()

    assert len(syncs.orders()) == 5
    assert syncs.cursor() == {"since": AT}


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((200, {}, b"<html>maintenance"), "the answer is not JSON"),
        ((200, {}, b'{"orders": [{"id": NaN}]}'), "the answer contains NaN"),
        ((200, {}, b'{"orders": {}}'), "the answer has no list of objects at orders"),
        ((200, {}, b'{"orders": [1]}'), "the answer has no list of objects at orders"),
        ((200, {}, b"[" * 100_000), "the answer is not JSON"),
        ((401, {}, b"secret stuff"), "the source answers with HTTP 401"),
        ((302, {"location": "https://evil.example/"}, b""), "the source answers with HTTP 302"),
        ((200, {"link": '<https://evil.example/orders.json>; rel="next"'}, b'{"orders": []}'), "the next page is at another server, https://evil.example"),
    ],
)  # fmt: skip
def test_an_answer_that_cannot_be_used_is_told(syncs, shop, answer, said):
    shop.trouble = lambda number: answer
    syncs.shop_source(shop)

    error = syncs.refused()
    assert said in error
    assert "secret stuff" not in error


def test_a_server_that_is_not_there_is_told_without_its_address(syncs):
    with Shop() as gone:
        syncs.shop_source(gone)

    error = syncs.refused()
    assert "could not read a page: ConnectError" in error
    assert "127.0.0.1" not in error


# ---------------------------------------------------------------- secrets and settings


def test_the_secret_is_sent_and_stands_nowhere(syncs, shop, monkeypatch):
    monkeypatch.setenv("ALERTS_SYNC_SECRET_NORTHWIND", "canary-1f0e")
    shop.orders = [order(1, AT)]
    shop.trouble = lambda number: (500, {}, b"canary-1f0e") if number == 1 else None
    syncs.shop_source(shop, secret="NORTHWIND", secret_header="X-Shopify-Access-Token")

    assert "canary" not in syncs.refused()
    syncs.place.clock.advance("1 s")
    syncs.place.work()
    assert shop.seen_headers[-1]["x-shopify-access-token"] == "canary-1f0e"
    assert "canary" not in str(
        syncs.place.rows(
            "select s::text from onceward.steps as s union all select j::text from onceward.jobs as j"
        )
    )


def test_settings_name_no_other_part_of_the_environment(syncs, shop, monkeypatch):
    monkeypatch.setenv("PGPASSWORD", "canary-1f0e")
    syncs.shop_source(shop, secret="PGPASSWORD")

    assert 'secret "PGPASSWORD" is not set' in syncs.refused()
    assert shop.asked == []


def test_plain_http_is_refused_unless_it_is_allowed(syncs, shop, monkeypatch):
    monkeypatch.delenv("ALERTS_SYNC_HTTP")
    syncs.shop_source(shop)

    assert "url must begin with https://" in syncs.refused()
    assert shop.asked == []


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"url": "ftp://x"}, "url: String should match"),
        ({"colums": {}}, "colums: Extra inputs are not permitted"),
        ({"columns": {"prize": "x"}}, "orders has no field prize; its fields are order_id"),
        ({"page_size": 0}, "page_size: Input should be greater than or equal to 1"),
        ({"paging": "offset"}, "paging: Input should be 'link' or 'cursor'"),
    ],
)
def test_settings_that_cannot_be_used_are_named(settings, said):
    from uuid import uuid4

    from onceward_apps.alerts.sync.connector import settings_of
    from onceward_apps.alerts.sync.model import Misconfigured, Source

    source = Source(uuid4(), "shop", "http", "orders", {"url": "https://x.example", **settings}, None, {})
    with pytest.raises(Misconfigured, match='settings of source "shop" cannot be used') as refused:
        settings_of(source)
    assert said in refused.value.message
