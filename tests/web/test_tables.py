"""Tables: sorted by their heads, with an address that says so; and each of them as CSV."""

from __future__ import annotations

import re

import pytest

from tests.support.limits import fill, limit


def names(text: str) -> list[str]:
    return re.findall(r'<tr data-line><td class="main-cell"><a [^>]*>([^<]+)<', text)


def test_lanes_are_sorted_by_what_waits_in_them(ana, db):
    for lane, jobs in (("busy", 3), ("calm", 1)):
        db.call("add_lane", name=lane)
        for _ in range(jobs):
            db.enqueue(lane=lane)

    assert names(ana.get("/lanes")) == ["busy", "calm", "default"]
    assert names(ana.get("/lanes?sort=ready")) == ["default", "calm", "busy"]
    text = ana.get("/lanes?sort=-ready")
    assert names(text) == ["busy", "calm", "default"]
    assert 'aria-sort="descending"><a class="sorts" href="/lanes?sort=ready"' in text
    # What has no age comes last, from whichever end.
    assert names(ana.get("/lanes?sort=oldest"))[-1] == names(ana.get("/lanes?sort=-oldest"))[-1] == "default"
    ana.get("/lanes?sort=colour", 400)


def test_pages_of_a_sorted_table_follow_each_other(ana, db):
    for n in range(60):
        limit(db, f"api/{n:02}", slots=1)
    fill(db, 2, "api/33")
    first = ana.get("/limits?sort=-waiting")
    assert names(first)[0] == "api/33"
    following = re.search(r'href="([^"]+)" rel="next"', first)[1].replace("&amp;", "&")
    assert "sort=-waiting" in following

    every = names(first) + names(ana.get(following))
    assert len(every) == len(set(every)) == db.value("select count(*) from onceward.limits")


@pytest.mark.parametrize(
    "path", ["/schedules?sort=-next", "/monitors?sort=state", "/monitors?sort=-ran", "/limits?sort=state"]
)
def test_other_tables_are_sorted_too(ana, db, path):
    db.call("add_schedule", name="soon", task="t", spec="1 minute")
    db.call("add_schedule", name="late", task="t", spec="1 day")
    found = names(ana.get(path))
    if path.startswith("/schedules"):
        assert found == ["late", "soon"]
    assert found


def test_smaller_tables_are_had_as_csv_too(ana, db):
    claim = db.running("pack")
    db.finish_step(claim, "label", {"pages": 2})
    db.call("add_schedule", name="daily", task="report", spec="1 day")
    db.call("run_schedule_now", name="daily")
    schedule = db.value("select id from onceward.schedules")
    db.call("set_bound", lane="default", max_depth=100)
    db.call("set_share", lane="default", tenant="acme", share=3)
    limit(db, "bank", slots=2)
    db.call("tidy")

    for path, expected in {
        f"/jobs/{claim.job_id}/steps.csv": "label",
        f"/schedules/{schedule}/ticks.csv": "fired",
        "/lanes/default/bounds.csv": "100",
        "/lanes/default/shares.csv": "acme",
        "/limits.csv?limit=bank": "bank",
        "/limits/history.csv/bank": "bank",
        "/doctor.csv": "schema",
    }.items():
        text = ana.get(path)
        assert expected in text, path
        assert text.count("\n") > 1
    assert "openai" not in ana.get("/limits.csv?limit=bank")
