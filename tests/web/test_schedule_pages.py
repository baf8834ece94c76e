"""Schedules made, seen, changed, paused, run and removed by a person."""

from __future__ import annotations

import re

from onceward.app import Onceward


def test_a_schedule_is_made_seen_changed_paused_run_and_removed(ana, db):
    form = {"name": "night/ly", "task": "report", "spec": "0 3 * * *", "zone": "UTC", "lane": "default",
            "payload": '{"kind": "long"}', "missed": "latest", "overlap": "skip"}  # fmt: skip

    assert 'id="e-spec"' in ana.post("/schedules/new", 400, **{**form, "spec": "0 3"}).text
    assert "not JSON" in ana.post("/schedules/new", 400, **{**form, "payload": "{"}).text
    assert "This is needed" in ana.post("/schedules/new", 400, **{**form, "name": ""}).text
    preview = ana.post("/schedules/new", 200, **form, preview="1").text
    assert preview.count("03:00") >= 10
    assert db.run("select * from onceward.schedules") == []
    place = ana.post("/schedules/new", **form).headers["location"]
    assert "night/ly" in ana.get(place)
    ana.post(f"{place}/edit", **{**form, "spec": "30 4 * * *"})
    assert db.value("select spec from onceward.schedules") == "30 4 * * *"
    ana.post(f"{place}/pause", reason="holidays")
    assert db.value("select state from onceward.schedules") == "paused"
    ana.post(f"{place}/resume")
    job = ana.post(f"{place}/run-now").headers["location"]
    assert "long" in ana.get(job)
    ana.post(f"{place}/drop")
    assert db.run("select * from onceward.schedules") == []
    ana.get(place, 404)


def seen_in(text: str) -> str:
    return re.search(r'name="seen" value="(\w+)"', text)[1]


def test_a_new_schedule_changes_none_that_is_there(ana, db):
    db.call("add_schedule", name="daily", task="report", spec="0 7 * * *")
    text = ana.post("/schedules/new", 400, name="daily", task="other", spec="1 hour", payload="{}",
                    lane="default", missed="latest", overlap="skip").text  # fmt: skip

    assert "Schedule daily is there already." in text
    assert db.value("select task from onceward.schedules") == "report"


def test_a_schedule_that_was_changed_in_another_window_is_not_changed_back_unseen(ana, db):
    db.call("add_schedule", name="daily", task="report", spec="0 7 * * *")
    page = f"/schedules/{db.value('select id from onceward.schedules')}/edit"
    form = {"name": "daily", "task": "report", "spec": "0 7 * * *", "zone": "UTC", "lane": "default", "payload": "{}",
            "missed": "latest", "overlap": "skip"}  # fmt: skip
    seen = seen_in(ana.get(page))
    ana.post(page, seen=seen, **{**form, "spec": "0 8 * * *"})

    refused = ana.post(page, 409, seen=seen, **{**form, "payload": '{"n": 1}'}).text
    assert (
        "Somebody has changed it since you opened this page. Now spec is 0 8 * * *; payload is {}." in refused
    )
    assert db.value("select spec from onceward.schedules") == "0 8 * * *"
    ana.post(page, seen=seen_in(refused), **{**form, "payload": '{"n": 1}'})
    assert db.one("select spec, payload from onceward.schedules")[:] == ("0 7 * * *", {"n": 1})


def test_a_schedule_is_saved_only_with_a_payload_that_fits_its_task(serve, db):
    app = Onceward("shop")

    @app.task
    def charge(amount: int) -> None: ...

    ana = serve(apps=[app]).signed_in()
    form = {
        "name": "daily",
        "task": "charge",
        "spec": "1 hour",
        "lane": "default",
        "missed": "latest",
        "overlap": "skip",
    }

    text = ana.post("/schedules/new", 400, payload='{"amount": "lots"}', **form).text
    assert "Payload does not fit task charge: amount: " in text
    ana.post("/schedules/new", payload='{"amount": 3}', **form)
    assert "No worker has announced task charge yet." in ana.get("/schedules")


def test_what_a_schedule_form_does_not_show_stays_as_it_is(ana, db):
    db.call(
        "add_schedule",
        name="s",
        task="t",
        spec="1 hour",
        priority=7,
        max_attempts=3,
        jitter="5 s",
        timeout="1 min",
    )
    form = {"name": "s", "task": "t2", "spec": "2 hours", "zone": "UTC", "lane": "default", "payload": "{}",
            "missed": "none", "overlap": "allow"}  # fmt: skip
    ana.post(f"/schedules/{db.value('select id from onceward.schedules')}/edit", **form)

    row = db.one("select * from onceward.schedules")
    assert (row.task, row.spec, row.missed, row.priority, row.max_attempts) == ("t2", "2 hours", "none", 7, 3)
    assert (row.jitter.total_seconds(), row.timeout.total_seconds()) == (5, 60)
