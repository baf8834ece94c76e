"""What the demo shows: months of orders, a file that the first run reads, profiles in every segment."""

from __future__ import annotations

from onceward_apps.alerts.jobs import known
from onceward_apps.alerts.sync import sample
from tests.apps.alerts.place import NORTH
from tests.apps.alerts.sync.conftest import FUNCTION


def fill(place):
    with place.acting(NORTH, "onceward_owner") as conn:
        sample.fill(conn, NORTH, place.clock.now())


def test_the_functions_are_registered_with_their_frequencies():
    assert {name: known()[name].every for name in ("sync-bigquery", FUNCTION, "scheduled-cdp-build")} == {
        "sync-bigquery": "hour", FUNCTION: "hour", "scheduled-cdp-build": "day",
    }  # fmt: skip


def test_the_first_run_reads_what_is_new_and_the_profiles_have_every_segment(syncs):
    place = syncs.place
    fill(place)
    before = len(syncs.orders())
    assert before > 500

    tally = syncs.run()[sample.SOURCE]
    assert 0 < tally["written"] < 50
    assert tally["rows"] == before + tally["written"] == len(syncs.orders())
    place.begin("scheduled-cdp-build")
    place.work()
    assert {segment for (segment,) in place.rows("select distinct segment from alerts.customer_profiles")} == {
        "new", "active", "loyal", "vip", "at_risk", "lapsed",
    }  # fmt: skip


def test_a_second_fill_changes_nothing(syncs):
    fill(syncs.place)
    before = syncs.versions()
    fill(syncs.place)

    assert syncs.versions() == before
    assert syncs.place.value("select count(*) from alerts.sync_sources") == 1


def test_a_place_that_cannot_be_written_leaves_the_orders(syncs, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ALERTS_SYNC_FILES", str(tmp_path / "file"))

    fill(syncs.place)
    assert len(syncs.orders()) > 500
