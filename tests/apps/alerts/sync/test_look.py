"""Looking at a source before it is read."""

from __future__ import annotations

from onceward_apps.alerts.sync.__main__ import main
from tests.apps.alerts.sync.test_files import HEADER, line


def test_the_first_page_is_shown_and_nothing_is_written(syncs, capsys, monkeypatch):
    monkeypatch.setenv("ONCEWARD_DSN", syncs.place.kit.dsn)
    syncs.source("export", "csv", path="orders.csv")
    syncs.write("orders.csv", HEADER + line(1) + line(2, "?"))

    assert main(["look", "northwind", "export"]) == 0
    out = capsys.readouterr().out
    assert "columns    amount text, customer_id text" in out
    assert 'first row  {"order_id": "1"' in out
    assert 'problem    line 3 of "orders.csv", column "amount" must be a number' in out
    assert "2 rows in the first page, 1 of them cannot be used" in out
    assert syncs.orders() == []
    assert syncs.place.rows("select from alerts.sync_cursors") == []


def test_what_is_wrong_is_told_without_a_traceback(syncs, capsys, monkeypatch):
    monkeypatch.setenv("ONCEWARD_DSN", syncs.place.kit.dsn)
    syncs.source("export", "csv", path="orders.csv")
    syncs.write("orders.csv", "a,b\n1,2\n")

    assert main(["look", "northwind", "export"]) == 1
    error = capsys.readouterr().err
    assert 'error: source "export" has no column "amount"' in error
    assert "hint: Mend the source" in error
    assert main(["look", "kiwi", "export"]) == 1
    assert 'tenant "kiwi" has no source "export"' in capsys.readouterr().err
