"""Idempotency-Key: one effect for each key, under races, lost replies and crashes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

JOB = {"task": "t", "payload": {"order": 1}}


def test_the_same_request_again_gets_the_same_answer_and_has_no_second_effect(db, everything):
    first = everything.ask("POST", "/jobs", 201, json=JOB, key="k-1")
    again = everything.ask("POST", "/jobs", 201, json=JOB, key="k-1")
    # The same JSON, written otherwise.
    written = everything.ask(
        "POST", "/jobs", 201, content=b'{"payload": {"order": 1},  "task": "t"}', key="k-1"
    )
    assert first.json() == again.json() == written.json()
    assert "idempotent-replayed" not in first.headers
    assert again.headers["idempotent-replayed"] == written.headers["idempotent-replayed"] == "true"
    assert again.headers["location"] == first.headers["location"]
    assert db.value("select count(*) from onceward.jobs") == 1


def test_the_answer_stays_the_same_after_the_job_has_ended(db, everything):
    """A key of the engine whose window is the life of the job would be free again."""
    sent = {"task": "ocr", "key": "live"}
    first = everything.post("/jobs", sent, 201, key="k-1")
    db.complete(db.claim())
    assert everything.post("/jobs", sent, 201, key="k-1") == first
    assert everything.post("/jobs", sent, 201, key="k-2")["id"] != first["id"]


def test_the_same_key_with_another_body_is_refused(db, everything):
    everything.post("/jobs", JOB, 201, key="k-1")
    for other in ({**JOB, "payload": {"order": 2}}, {**JOB, "priority": 1}):
        problem = everything.post("/jobs", other, 422, key="k-1")
        assert problem["code"] == "key-reused"
        assert problem["errors"][0]["field"] == "Idempotency-Key"
    assert db.value("select count(*) from onceward.jobs") == 1


def test_a_key_belongs_to_its_route_and_its_tenant(db, program):
    one, other = program("enqueue", tenant="acme"), program("enqueue", tenant="globex")
    unbound = program("enqueue")
    ids = {
        one.post("/jobs", JOB, 201, key="k")["id"],
        other.post("/jobs", JOB, 201, key="k")["id"],
        unbound.post("/jobs", JOB, 201, key="k")["id"],
        unbound.post("/jobs", {**JOB, "tenant": "initech"}, 201, key="k")["id"],
    }
    assert len(ids) == 4
    assert one.post("/events", {"name": "paid"}, 200, key="k") == {"created": True}


def test_a_key_of_one_job_is_not_that_of_another(db, everything):
    one, other = (everything.post("/jobs", {**JOB, "delay": 60}, 201)["id"] for _ in range(2))
    everything.post(f"/jobs/{one}/run-now", key="k")
    assert everything.post(f"/jobs/{one}/run-now", key="k")["state"] == "ready"
    assert everything.post(f"/jobs/{other}/run-now", status=422, key="k")["code"] == "key-reused"


def test_a_request_that_failed_leaves_its_key_free(db, everything):
    everything.post("/jobs", {**JOB, "lane": "reports"}, 404, key="k")
    db.run("select onceward.add_lane('reports')")
    everything.post("/jobs", {**JOB, "lane": "reports"}, 201, key="k")


@pytest.mark.race
def test_one_job_for_each_key_whoever_asks_at_once(db, api, program):
    """Eight programs, each with its own connection, the same keys in another order."""
    programs = [program("enqueue") for _ in range(8)]
    keys = [f"k-{n}" for n in range(12)]

    def ask(index: int) -> dict[str, set[str]]:
        answers: dict[str, set[str]] = {}
        for key in keys[index:] + keys[:index]:
            while True:
                answer = programs[index].http.post("/jobs", json=JOB, headers={"Idempotency-Key": key})
                if answer.status_code != 409:
                    break
            assert answer.status_code == 201, answer.text
            answers.setdefault(key, set()).add(answer.json()["id"])
        return answers

    with ThreadPoolExecutor(8) as pool:
        told = list(pool.map(ask, range(8)))
    for key in keys:
        assert len(set.union(*(answers[key] for answers in told))) == 1, key
    assert db.value("select count(*) from onceward.jobs") == len(keys)


@pytest.mark.race
def test_a_request_whose_twin_is_still_running_hears_so(db, everything):
    """The twin is a transaction that has the key and does not end."""
    with db.connect(autocommit=False) as twin:
        key = "http:POST /jobs:k"
        twin.execute("select onceward.begin_run(%s, 'twin', p_tenant => 'default')", [key])
        problem = everything.ask("POST", "/jobs", 409, json=JOB, key="k")
        assert problem.json()["code"] == "still-running"
        assert problem.headers["retry-after"] == "1"
        twin.rollback()
    # It died: neither a key nor a job is left of it.
    everything.post("/jobs", JOB, 201, key="k")
    assert db.value("select count(*) from onceward.jobs") == 1


@pytest.mark.parametrize("key", ["", "a b", "ü".encode().decode("latin-1"), "x" * 201])
def test_a_key_that_is_none_is_refused(everything, key):
    headers = {b"Idempotency-Key": key.encode("latin-1")}
    answer = everything.http.post("/jobs", json=JOB, headers=headers)
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["field"] == "Idempotency-Key"
