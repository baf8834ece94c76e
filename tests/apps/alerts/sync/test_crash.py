"""Killed in the middle, and two at once: each row once, and the cursor where the rows are."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading

import pytest

from tests.apps.alerts.sync.conftest import FUNCTION
from tests.apps.alerts.sync.shop import order

AT = "2026-02-06T10:00:00+00:00"


@contextlib.contextmanager
def worker(syncs):
    """A real process; killed at the end of the block."""
    process = subprocess.Popen(
        [sys.executable, "-m", "onceward.cli", "worker", "onceward_apps.alerts.app:app", "--lanes", "alerts", "--lease", "30s"],
        env=os.environ | {"ONCEWARD_DSN": syncs.place.kit.dsn, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
@pytest.mark.crash
def test_a_worker_that_is_killed_between_two_pages_is_gone_on_from_there(syncs, shop):
    shop.orders = [order(number, AT) for number in range(6)]
    syncs.shop_source(shop, page_size=2)
    asked, go_on = threading.Event(), threading.Event()

    def hang(number):
        if number == 2:
            asked.set()
            go_on.wait(60)

    shop.trouble = hang
    job_id = syncs.begin()
    with worker(syncs):
        assert asked.wait(60), "the worker did not get to its second page"
    go_on.set()
    assert len(syncs.orders()) == 2
    before = syncs.versions()

    syncs.place.clock.advance("31 s")
    syncs.place.work()

    assert syncs.result(job_id)["shop"] == {"pages": 3, "rows": 6, "written": 6, "deleted": 0}
    assert syncs.versions()[:2] == before
    # Pages 1 and 2 by the first, 2 and 3 by the second: what was committed is not fetched again.
    assert len(shop.asked) == 4


@pytest.mark.slow
@pytest.mark.crash
def test_a_worker_that_is_killed_while_it_writes_a_page_leaves_nothing_of_it(syncs, shop):
    shop.orders = [order(number, AT) for number in range(4)]
    syncs.shop_source(shop, page_size=2)
    job_id = syncs.begin()
    blocker = syncs.place.kit.connect(autocommit=False)
    # Its cursor is written, its orders wait for this lock.
    blocker.execute("lock table alerts.orders in exclusive mode")
    with worker(syncs) as process:
        while not syncs.place.rows(
            "select from pg_locks where relation = 'alerts.orders'::regclass and not granted"
        ):
            assert process.poll() is None
    blocker.rollback()
    assert syncs.orders() == []
    assert syncs.place.rows("select from alerts.sync_cursors") == []

    syncs.place.clock.advance("31 s")
    syncs.place.work()

    assert syncs.result(job_id)["shop"] == {"pages": 2, "rows": 4, "written": 4, "deleted": 0}


def test_of_two_runs_at_once_one_reads_on_and_the_other_leaves_it(syncs, shop):
    shop.orders = [order(number, AT) for number in range(6)]
    syncs.shop_source(shop, page_size=2)
    first = syncs.begin()
    second: list = []

    def another(number):
        if number == 2:
            # While the first run waits for its second page, one of another window reads the source to its end.
            outcome, job_id, *_ = syncs.place.begin(FUNCTION, at=syncs.place.clock.now().replace(hour=0))
            assert outcome == "started"
            syncs.place.work()
            second.append(syncs.result(job_id)["shop"])

    shop.trouble = another
    syncs.place.work()

    assert second == [{"pages": 2, "rows": 4, "written": 4, "deleted": 0}]
    assert syncs.result(first)["shop"] == {
        "pages": 2,
        "rows": 4,
        "written": 2,
        "deleted": 0,
        "elsewhere": True,
    }
    assert len(syncs.orders()) == 6
    assert syncs.cursor() == {"since": AT}


def test_a_page_that_is_repeated_changes_nothing(syncs, shop):
    shop.orders = [order(number, AT) for number in range(4)]
    syncs.shop_source(shop)
    syncs.run()
    before = syncs.versions()
    syncs.place.conn.execute("delete from alerts.sync_cursors")

    tally = syncs.run()["shop"]

    assert (tally["rows"], tally["written"]) == (4, 0)
    assert syncs.versions() == before


def test_a_run_reads_no_more_than_its_pages_and_the_next_goes_on(syncs, shop, monkeypatch):
    monkeypatch.setattr("onceward_apps.alerts.sync.connector.MOST_PAGES", 2)
    shop.orders = [order(number, AT) for number in range(5)]
    syncs.shop_source(shop, page_size=2)

    assert syncs.run()["shop"] == {"pages": 2, "rows": 4, "written": 4, "deleted": 0, "more": True}
    assert syncs.run()["shop"]["written"] == 1


def test_a_tenant_reads_and_writes_its_own(syncs, shop):
    shop.orders = [order(1, AT)]
    source = syncs.shop_source(shop)

    assert syncs.run(tenant="kiwi") == {}
    assert shop.asked == []
    syncs.run()
    assert len(syncs.orders()) == 1
    assert syncs.orders(tenant="kiwi") == []
    for role in ("onceward_worker", None):
        with pytest.raises(Exception, match="does not exist"), syncs.place.acting("kiwi", role) as conn:
            conn.execute("select alerts.write_page(%s, null, '{}', '{}', '[]', null)", [source])
    with pytest.raises(Exception, match="tenant"), syncs.place.acting("kiwi", "onceward_operator") as conn:
        conn.execute("select alerts.accept_columns(%s)", [source])
    with (
        pytest.raises(Exception, match="permission denied"),
        syncs.place.acting("northwind", "onceward_producer") as conn,
    ):
        conn.execute("select alerts.write_page(%s, null, '{}', '{}', '[]', null)", [source])
