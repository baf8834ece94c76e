"""Jobs over HTTP: enqueue, find, look, wait, act."""

from __future__ import annotations

import threading

import pytest

from onceward import Onceward

NOWHERE = "01936f00-0000-7000-8000-000000000000"


def test_a_job_is_enqueued_with_every_option_and_found_again(db, everything):
    first = everything.post("/jobs", {"task": "prepare"}, 201)
    sent = {
        "task": "send_receipt", "payload": {"order": 1, "items": [1.5, None, "ü"]}, "lane": "default", "priority": 5,
        "delay": 60, "expires_in": 600, "timeout": 30, "key": "r-1", "key_window": 86400, "concurrency_key": "c",
        "concurrency_limit": 2, "max_attempts": 3, "retry": {"waits": [1, 2.5]}, "headers": {"a": "b"},
        "after": [first["id"]], "after_policy": "ignore",
    }  # fmt: skip
    answer = everything.ask("POST", "/jobs", 201, json=sent)
    made = answer.json()
    assert answer.headers["location"] == f"/api/v1/jobs/{made['id']}"
    assert (made["created"], made["answer"]) == (True, "accepted")

    job = everything.get(f"/jobs/{made['id']}")["job"]
    assert job["payload"] == sent["payload"]
    assert (job["priority"], job["timeout"], job["key"]) == (5, 30.0, "r-1")
    assert (job["concurrency_key"], job["concurrency_limit"], job["max_attempts"]) == ("c", 2, 3)
    assert job["retry"] == {"waits": [1.0, 2.5]}
    assert (job["headers"], job["after"], job["after_policy"]) == ({"a": "b"}, [first["id"]], "ignore")
    assert everything.get("/jobs", key="r-1")["jobs"][0]["id"] == made["id"]

    again = everything.post("/jobs", sent, 200)
    assert (again["id"], again["created"]) == (made["id"], False)
    assert everything.post("/jobs", {**sent, "payload": {}}, 422)["code"] == "OW005"


def test_many_jobs_are_enqueued_together_or_not_at_all(db, everything):
    sent = {"task": "t", "payloads": [{"n": n} for n in range(3)], "keys": ["a", None, "b"]}
    made = everything.post("/jobs/many", sent, 201)["jobs"]
    assert [job["created"] for job in made] == [True, True, True]
    refused = everything.post(
        "/jobs/many", {**sent, "payloads": [{"n": 9}, {}, {}], "keys": ["c", "d", "a"]}, 422
    )
    assert refused["code"] == "OW005"
    assert db.value("select count(*) from onceward.jobs") == 3
    short = everything.post("/jobs/many", {**sent, "keys": ["a"]}, 422)
    assert "as many as payloads" in short["errors"][0]["message"]


def test_many_jobs_may_each_have_a_concurrency_key(db, everything):
    sent = {
        "task": "t",
        "payloads": [{"n": n} for n in range(3)],
        "concurrency_keys": ["a", None, "b"],
        "concurrency_limit": 2,
    }
    made = everything.post("/jobs/many", sent, 201)["jobs"]
    found = [db.job(job["id"]) for job in made]
    assert [(job.concurrency_key, job.concurrency_limit) for job in found] == [
        ("a", 2),
        (None, None),
        ("b", 2),
    ]

    for key, given, said in (
        ("concurrency_keys", ["a"], "concurrency_keys must be as many as payloads (3)"),
        ("concurrency_keys", ["a", "", "b"], "at least 1 character"),
        ("concurrency_keys", ["a", 5, "b"], "valid string"),
        ("concurrency_key", "k", "concurrency_key and concurrency_keys cannot be given together"),
    ):
        assert said in str(everything.post("/jobs/many", {**sent, key: given}, 422)), key
    assert db.value("select count(*) from onceward.jobs") == 3


def test_a_list_is_read_page_by_page_and_filtered(everything):
    ids = [everything.post("/jobs", {"task": f"t{n % 2}", "payload": {}}, 201)["id"] for n in range(7)]
    seen, before = [], None
    while True:
        page = everything.get("/jobs", limit=3, **({"before": before} if before else {}))
        seen += [job["id"] for job in page["jobs"]]
        before = page["next"]
        if before is None:
            break
    assert seen == ids[::-1]
    assert {job["task"] for job in everything.get("/jobs", task="t1")["jobs"]} == {"t1"}
    assert len(everything.get("/jobs", state=["ready", "done"])["jobs"]) == 7
    assert everything.get("/jobs", state="dead_letter") == {"jobs": [], "next": None}


def test_a_job_comes_with_attempts_steps_and_why(db, everything):
    job = everything.post("/jobs", {"task": "t", "payload": {}, "delay": 3600}, 201)["id"]
    story = everything.get(f"/jobs/{job}")
    assert story["job"]["state"] == "scheduled"
    assert (story["attempts"], story["steps"]) == ([], [])
    assert story["explain"][0]["sentence"]
    missing = everything.get(f"/jobs/{NOWHERE}", 404)
    assert (missing["code"], missing["type"]) == ("OW006", "urn:onceward:problem:OW006")


def test_waiting_ends_with_the_job(db, everything):
    job = everything.post("/jobs", {"task": "ocr", "payload": {}}, 201)["id"]
    assert everything.get(f"/jobs/{job}/wait", timeout=0)["ended"] is False
    answers = []
    waiting = threading.Thread(target=lambda: answers.append(everything.get(f"/jobs/{job}/wait", timeout=60)))
    waiting.start()
    db.complete(db.claim(), {"sum": 3})
    waiting.join(30)
    assert not waiting.is_alive(), "the wait did not end"
    assert (answers[0]["ended"], answers[0]["state"], answers[0]["result"]) == (True, "done", {"sum": 3})
    everything.get(f"/jobs/{NOWHERE}/wait", 404)
    everything.get(f"/jobs/{job}/wait", 422, timeout=61)


def test_people_act_on_jobs(db, everything):
    waits = everything.post("/jobs", {"task": "t", "delay": 3600}, 201)["id"]
    assert everything.post(f"/jobs/{waits}/run-now")["state"] == "ready"
    assert everything.post(f"/jobs/{waits}/run-now", status=409)["code"] == "OW007"
    assert everything.post(f"/jobs/{waits}/cancel", {"reason": "no need"})["outcome"] == "cancelled"
    assert everything.post(f"/jobs/{waits}/requeue", {"payload": {"n": 2}})["state"] == "ready"
    assert everything.get(f"/jobs/{waits}")["job"]["payload"] == {"n": 2}
    assert everything.get(f"/jobs/{waits}/audit")["entries"], "the audit log says nothing"
    refused = everything.post(f"/jobs/{waits}/resolve", {"note": " "}, 422)
    assert refused["errors"][0]["field"] == "note"


def test_a_task_of_the_served_application_has_its_own_schema_and_defaults(serve_api, program):
    app = Onceward()

    @app.task(lane="mail", max_attempts=2)
    def send_receipt(order: int) -> None: ...

    asking = program("read", "enqueue", site=serve_api(app=app))
    made = asking.post("/jobs", {"task": "send_receipt", "payload": {"order": 1}}, 201)
    job = asking.get(f"/jobs/{made['id']}")["job"]
    assert (job["lane"], job["max_attempts"]) == ("mail", 2)
    refused = asking.post("/jobs", {"task": "send_receipt", "payload": {"order": "x"}}, 422)
    assert "order" in refused["detail"]
    asking.post("/jobs", {"task": "of_another_program", "payload": {"any": "thing"}}, 201)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "task"),
        ({"task": "a b"}, "task"),
        ({"task": "t", "payload": [1]}, "payload"),
        ({"task": "t", "payload": {"x": "\x00"}}, "payload"),
        ({"task": "t", "priority": "1"}, "priority"),
        ({"task": "t", "priority": 1001}, "priority"),
        ({"task": "t", "delay": -1}, "delay"),
        ({"task": "t", "run_at": "2026-01-01T00:00:00"}, "run_at"),
        ({"task": "t", "run_at": 5}, "run_at"),
        ({"task": "t", "run_at": "2199-01-01T00:00:00Z"}, "run_at"),
        ({"task": "t", "delay": 1, "run_at": "2026-12-01T00:00:00Z"}, "delay"),
        ({"task": "t", "retries": 3}, "retries"),
        ({"task": "t", "key_window": "1 day"}, "key_window"),
        ({"task": "t", "concurrency_limit": 3}, "concurrency_limit"),
    ],
)
def test_a_wrong_field_is_named_and_nothing_is_written(db, everything, body, field):
    problem = everything.post("/jobs", body, 422)
    assert any(error["field"].split(".")[0] == field for error in problem["errors"]), problem
    assert all(error["message"] and error["hint"] for error in problem["errors"])
    assert db.value("select count(*) from onceward.jobs") == 0


def test_an_unknown_lane_is_not_found(everything):
    assert everything.post("/jobs", {"task": "t", "lane": "nowhere"}, 404)["code"] == "OW002"


@pytest.mark.parametrize("levels", [300, 900, 5000])
def test_a_job_with_a_value_that_is_nested_without_end_is_shown_without_it(db, everything, levels):
    job = db.dead_letter()
    db.run(
        "update onceward.job_private set payload = ('{\"a\":' || repeat('[', %s) || repeat(']', %s) || '}')::jsonb where id = %s",
        levels, levels, job,
    )  # fmt: skip

    assert everything.get(f"/jobs/{job}")["job"]["payload"].startswith("<JSON of ")
