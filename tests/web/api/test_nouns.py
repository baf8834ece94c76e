"""Lanes, schedules, limits, events, dead letters, deliveries, alerts and the audit log over HTTP."""

from __future__ import annotations

import json

import pytest

from onceward import Onceward
from onceward.audit.verifier import problem as proof_problem
from tests.support.watch import Watch

NOWHERE = "01936f00-0000-7000-8000-000000000000"


def test_lanes_show_what_waits_in_them(db, everything):
    db.enqueue()
    (lane,) = everything.get("/lanes")["lanes"]
    assert (lane["name"], lane["ready"], lane["paused"]) == ("default", 1, False)
    assert everything.post("/lanes/default/pause") == {"changed": True}
    assert everything.post("/lanes/default/resume") == {"changed": True}
    assert everything.post("/lanes/nowhere/pause", status=404)["code"] == "OW002"


def test_a_lane_is_made_and_changed(db, everything, program):
    assert everything.put("/lanes/mail", {"max_running": 5, "fair": False}) == {"changed": True}
    assert everything.put("/lanes/mail", {"max_wait": 60}) == {"changed": True}
    mail = next(lane for lane in everything.get("/lanes")["lanes"] if lane["name"] == "mail")
    assert (mail["max_running"], mail["running"], mail["fair"], mail["max_wait"]) == (5, 0, False, 60.0)
    assert everything.put("/lanes/mail", {}) == {"changed": False}
    everything.put("/lanes/mail", {"max_running": 0})
    assert db.value("select max_running from onceward.lanes where name = 'mail'") is None
    for wrong in ({"max_running": -1}, {"max_running": "5"}, {"max_payload_bytes": 3}, {"cap": 5}):
        everything.put("/lanes/mail", wrong, 422)
    assert program("operate", tenant="acme").put("/lanes/mail", {"max_running": 1}, 403)["code"] == "shared"


def test_a_schedule_is_added_changed_paused_run_and_dropped(db, everything):
    sent = {
        "task": "report",
        "spec": "0 7 * * mon-fri",
        "zone": "Europe/Berlin",
        "payload": {"a": 1},
        "jitter": 30,
    }
    assert everything.put("/schedules/eu/report", sent)["outcome"] == "created"
    assert everything.put("/schedules/eu/report", sent)["outcome"] == "unchanged"
    assert (
        everything.put("/schedules/eu/report", {**sent, "lane": "default", "priority": 3})["outcome"]
        == "changed"
    )
    (schedule,) = everything.get("/schedules", name="eu/report")["schedules"]
    assert (schedule["priority"], schedule["jitter"], schedule["payload"]) == (3, 30.0, {"a": 1})
    assert everything.post("/schedules/eu/report/pause", {"reason": "holiday"}) == {"changed": True}
    assert everything.post("/schedules/eu/report/resume") == {"changed": True}
    fired = everything.post("/schedules/eu/report/run", key="once")["job_id"]
    assert everything.post("/schedules/eu/report/run", key="once")["job_id"] == fired
    assert db.value("select count(*) from onceward.jobs") == 1
    everything.ask("DELETE", "/schedules/eu/report", 204)
    assert everything.ask("DELETE", "/schedules/eu/report", 404).json()["code"] == "OW020"
    wrong = everything.put("/schedules/x", {**sent, "spec": "every now and then"}, 422)
    assert wrong["errors"][0]["field"] == "spec"


def test_a_spec_is_tried_before_it_is_scheduled(everything):
    ticks = everything.get(
        "/next-ticks", spec="30 2 * * *", zone="Europe/Berlin", after="2026-03-28T12:00:00Z", count=2
    )["ticks"]
    assert [tick["fire_at"] for tick in ticks] == ["2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"]
    assert everything.get("/next-ticks", 422, spec="61 * * * *")["errors"]


def test_a_limit_is_set_taken_of_settled_paused_and_dropped(db, everything):
    assert everything.put(
        "/limits/openai", {"requests": 2, "burst": 2, "tokens": 100, "tokens_burst": 100, "slots": 1}
    ) == {"changed": True}
    hold = everything.post("/limits/openai/acquire", {"tokens": 60}, 200, key="call-1")
    assert hold["hold_id"]
    assert everything.post("/limits/openai/acquire", {"tokens": 60}, 200, key="call-1") == hold
    none = everything.post("/limits/openai/acquire", {"tokens": 10})
    assert none["hold_id"] is None
    assert none["reason"]
    everything.post(f"/holds/{hold['hold_id']}/settle", {"tokens": 10})
    assert everything.post(f"/holds/{hold['hold_id']}/release") == {"changed": True}
    assert everything.post(f"/holds/{hold['hold_id']}/release") == {"changed": False}
    (limit,) = everything.get("/limits", name="openai")["limits"]
    assert (limit["weight_left"], limit["slots_held"]) == (90, 0)
    assert everything.post("/limits/openai/pause", {"seconds": 30, "reason": "429"})["until"]
    assert everything.post("/limits/openai/resume") == {"changed": True}
    assert everything.post("/limits/openai/acquire", {"tokens": 1000}, 422)["code"] == "OW031"
    everything.ask("DELETE", "/limits/openai", 204)
    assert everything.post("/limits/openai/acquire", {}, 404)["code"] == "OW030"
    assert "needs requests" in everything.put("/limits/none", {}, 422)["errors"][0]["message"]


def test_an_event_is_emitted_once(db, everything):
    assert everything.post("/events", {"name": "payment:17", "payload": {"paid": True}}) == {"created": True}
    assert everything.post("/events", {"name": "payment:17"}) == {"created": False}
    assert db.value("select payload from onceward.events") == {"paid": True}


def test_dead_letters_are_grouped_requeued_and_resolved(db, everything):
    for number in range(3):
        db.dead_letter(payload={"n": number})
    (group,) = everything.get("/dead-letters/groups")["groups"]
    assert (group["count"], group["task"]) == (3, "ocr")
    listed = everything.get("/dead-letters", fingerprint=group["fingerprint"], limit=2)
    assert (listed["count"], len(listed["dead_letters"])) == (3, 2)
    assert "payload" not in listed["dead_letters"][0]
    assert everything.post("/dead-letters/requeue", {}, 422)["errors"][0]["field"] == "everything"
    done = everything.post("/dead-letters/resolve", {"task": "ocr", "most": 1, "note": "paid by hand"})
    assert (done["done"], done["gone"], done["failed"]) == (1, 0, 0)
    assert everything.post("/dead-letters/requeue", {"everything": True, "per_minute": 1})["done"] == 2
    assert sorted(db.states().values()) == ["ready", "resolved", "scheduled"]


def test_deliveries_are_listed_and_decided_about(db, everything):
    db.run(
        'select onceward.deliver(\'email\', \'receipt-1\', \'{"to": "a@example.com", "subject": "s", "text": "t"}\')'
    )
    (delivery,) = everything.get("/deliveries", kind="email")["deliveries"]
    assert (delivery["key"], delivery["state"]) == ("receipt-1", "pending")
    assert everything.get("/deliveries", state="uncertain") == {"deliveries": [], "next": None}
    refused = everything.post(
        f"/deliveries/{delivery['id']}/decide", {"decision": "sent", "note": "seen"}, 409
    )
    assert refused["code"] == "OW007"
    everything.post(f"/deliveries/{NOWHERE}/decide", {"decision": "sent", "note": "seen"}, 404)


def test_dead_letters_are_read_page_by_page_also_when_some_go_meanwhile(db, everything):
    for n in range(5):
        db.dead_letter("ocr", {"n": n})
        db.clock.advance("1 s")
    first = everything.get("/dead-letters", limit=2)
    db.requeue(first["dead_letters"][1]["id"])
    second = everything.get("/dead-letters", limit=2, before=first["next"])
    third = everything.get("/dead-letters", limit=2, before=second["next"])

    seen = [letter["id"] for page in (first, second, third) for letter in page["dead_letters"]]
    assert len(seen) == len(set(seen)) == 5
    assert third["next"] is None
    assert everything.get("/dead-letters", 422, before="yesterday")["errors"][0]["field"] == "before"


def test_dead_letters_are_assigned_and_talked_about(db, everything):
    job = db.dead_letter("ocr")
    mark = db.value("select fingerprint from onceward.dead_letters")
    kind = {"task": "ocr", "fingerprint": mark}
    assert everything.post("/dead-letters/assign", {**kind, "to": "ana"}) == {"changed": True}
    assert everything.post("/dead-letters/assign", {**kind, "to": "ana"}) == {"changed": False}
    said = everything.post("/dead-letters/comment", {**kind, "comment": "known", "job": str(job)})["id"]

    care = everything.get("/dead-letters/care", **kind)
    assert [(each["assigned_to"], each["assigned_by"]) for each in care["assignments"]] == [
        ("ana", "token ci")
    ]
    assert [(each["id"], each["body"], each["job_id"]) for each in care["comments"]] == [
        (said, "known", str(job))
    ]
    assert everything.post("/dead-letters/assign", {**kind, "to": None}) == {"changed": True}
    wrong = {"task": "ocr", "fingerprint": "none", "comment": "hello"}
    assert everything.post("/dead-letters/comment", wrong, 404)["code"] == "OW006"
    assert (
        everything.post("/dead-letters/comment", {**kind, "comment": " "}, 422)["errors"][0]["field"]
        == "comment"
    )


def test_alerts_are_read_page_by_page_the_worst_first(db, everything):
    watch = Watch(db)
    watch.probe()
    watch.look(*({"key": f"k{n}", "severity": s} for n, s in enumerate(["warning", "critical", "info"] * 2)))
    seen, before = [], {}
    while True:
        page = everything.get("/alerts", limit=2, **before)
        seen += page["alerts"]
        if page["next"] is None:
            break
        before = {"before": page["next"]}

    assert [alert["severity"] for alert in seen] == ["critical"] * 2 + ["warning"] * 2 + ["info"] * 2
    assert len({alert["id"] for alert in seen}) == 6


def test_alerts_are_listed_acknowledged_and_closed(db, everything):
    assert everything.get("/alerts") == {"alerts": [], "next": None}
    assert everything.post(f"/alerts/{NOWHERE}/ack", status=404)["code"] == "OW039"
    for _ in range(2):
        db.dead_letter()
        db.run("select onceward.run_monitor(name) from onceward.monitors where name = 'dead_letters'")
        db.clock.advance("1 hour")
    alerts = everything.get("/alerts")["alerts"]
    assert alerts, "no monitor raised anything"
    assert everything.post(f"/alerts/{alerts[0]['id']}/ack", {"note": "mine"}) == {"changed": True}
    assert everything.get("/alerts", state="acknowledged")["alerts"][0]["acked_by"] == "token ci"
    assert everything.post(f"/alerts/{alerts[0]['id']}/close", {"note": "over"}) == {"changed": True}


def test_the_audit_log_is_searched_and_an_entry_is_proved(db, everything, program):
    job = everything.post("/jobs", {"task": "t", "delay": 60}, 201)["id"]
    everything.post(f"/jobs/{job}/cancel", {"reason": "no need"})
    page = everything.get("/audit", limit=1)
    entry = everything.get(f"/jobs/{job}/audit")["entries"][-1]
    assert entry["actor"] == "token ci"
    assert page["next"] is None or page["next"] == page["entries"][0]["seq"]
    assert everything.get(f"/audit/{entry['seq']}/proof", 409)["code"] == "OW007"
    db.clock.advance("1 hour")
    db.run("select onceward.seal()")
    proved = everything.get(f"/audit/{entry['seq']}/proof")
    assert proof_problem(proved["proof"], proved["checkpoint"], None) is None
    forged = json.loads(json.dumps(proved["proof"]).replace("no need", "a need"))
    assert proof_problem(forged, proved["checkpoint"], None) is not None
    everything.get("/audit/999999/proof", 404)
    program("read", tenant="acme").get(f"/audit/{entry['seq']}/proof", 403)


@pytest.mark.parametrize("method", ["PUT", "DELETE", "GET", "PATCH"])
@pytest.mark.parametrize(
    "path",
    [
        *(f"/limits/open/ai/{verb}" for verb in ("pause", "resume", "acquire")),
        *(f"/schedules/nightly/{verb}" for verb in ("pause", "resume", "run")),
        "/jobs/many",
        "/dead-letters/requeue",
    ],
)
def test_the_address_of_a_verb_takes_nothing_else(everything, db, method, path):
    answer = everything.ask(method, path, 405, json={"slots": 1, "task": "t", "spec": "1 hour"})

    assert answer.headers["allow"] == "POST"
    assert db.run("select name from onceward.limits where name like 'open/%%'") == []
    assert db.run("select name from onceward.schedules") == []


def test_names_have_slashes_and_may_be_verbs(everything, db):
    for name in ("open/ai", "pause", "pause/ai", "x/run"):
        assert everything.put(f"/limits/{name}", {"slots": 1})["changed"]
        everything.post(f"/limits/{name}/pause", {"seconds": 5})
    for name in ("night/ly", "run", "x/acquire"):
        everything.put(f"/schedules/{name}", {"task": "t", "spec": "1 hour"})

    assert db.value("select count(*) from onceward.schedules") == 3


def test_payloads_fit_the_task_where_its_application_is_served(db, program, serve_api):
    app = Onceward()

    @app.task
    def report(region: str) -> None: ...

    letter = db.dead_letter("report", {"region": "eu"})
    asking = program("read", "operate", site=serve_api(app=app))
    for path, sent in (
        ("/schedules/eu", {"task": "report", "spec": "1 day", "payload": {"region": 7}}),
        ("/schedules/eu", {"task": "report", "spec": "1 day", "payload": {}}),
    ):
        assert "region" in str(asking.put(path, sent, 422))
    assert "region" in str(asking.post(f"/jobs/{letter}/requeue", {"payload": {"region": 7}}, 422))
    assert db.value("select count(*) from onceward.schedules") == 0
    assert db.state(letter) == "dead_letter"

    asking.put("/schedules/eu", {"task": "report", "spec": "1 day", "payload": {"region": "eu"}})
    asking.put("/schedules/other", {"task": "of_another_program", "spec": "1 day", "payload": {"n": 1}})
    assert asking.post(f"/jobs/{letter}/requeue", {"payload": {"region": "us"}})["state"] == "ready"
