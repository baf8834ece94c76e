"""Problems that the API answers: what is said, and where it is wrong."""

from __future__ import annotations

import pytest

from onceward.web.api.guard import LISTS
from onceward.web.api.problems import sentences


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        (b'{"task": "t", "payload" {}}', "Line 1, column 25: Expecting ':' delimiter."),
        (b'{\n  "task": "t",\n  "key": oops\n}', "Line 3, column 10: Expecting value."),
        (b"{", "Line 1, column 2: Expecting property name enclosed in double quotes."),
    ],
)
def test_broken_json_is_told_with_line_and_column(db, everything, body, detail):
    problem = everything.ask("POST", "/jobs", 422, content=body).json()

    assert (problem["code"], problem["detail"], problem["errors"]) == ("not-json", detail, [])
    assert problem["title"] == "The body is not JSON."
    assert "oops" not in str(problem)
    assert db.value("select count(*) from onceward.jobs") == 0


@pytest.mark.parametrize(
    ("body", "twice"),
    [
        (b'{"task": "t", "payload": {}, "task": "u"}', "task"),
        (b'{"task": "t", "payload": {"items": [{"sku": 1, "SKU": 2, "sku": 1}]}}', "sku"),
        (b'{"task": "t", "payload": {"name": 1, "n\\u0061me": 2}}', "name"),
    ],
)
def test_a_member_that_comes_twice_is_refused_wherever_it_stands(db, everything, body, twice):
    problem = everything.ask("POST", "/jobs", 422, content=body).json()

    assert (problem["code"], problem["title"]) == ("not-json", "The body has a member twice.")
    assert problem["detail"] == f'Twice: "{twice}".'
    assert db.value("select count(*) from onceward.jobs") == 0


@pytest.mark.parametrize(
    ("body", "title"),
    [
        (b'{"task": "t", "payload": {"n": ' + b"[" * 100_000 + b"]" * 100_000 + b"}}", "The body is nested too deeply."),
        (b'{"task": "t", "payload": {"n": ' + b"7" * 5_000 + b"}}", "The body has a number that is too long."),
    ],
    ids=["deep", "long"],
)  # fmt: skip
def test_json_that_nobody_can_read_is_told_for_what_it_is(db, everything, body, title):
    problem = everything.ask("POST", "/jobs", 422, content=body).json()

    assert (problem["code"], problem["title"]) == ("not-json", title)
    assert "UTF-8" not in problem["hint"]
    assert db.value("select count(*) from onceward.jobs") == 0


def test_two_idempotency_keys_are_refused(db, everything):
    """Programs in between may go by the one or the other."""
    answer = everything.http.post(
        "/jobs", json={"task": "t"}, headers=[("Idempotency-Key", "a"), ("Idempotency-Key", "b")]
    )

    assert (answer.status_code, answer.json()["code"]) == (422, "invalid-request")
    assert [wrong["field"] for wrong in answer.json()["errors"]] == ["Idempotency-Key"]
    assert db.value("select count(*) from onceward.jobs") == 0


def test_a_parameter_of_the_address_that_comes_twice_is_refused(everything):
    answer = everything.http.get("/jobs?task=a&task=b&limit=1&limit=2")

    assert answer.status_code == 422
    assert [(wrong["field"], wrong["place"]) for wrong in answer.json()["errors"]] == [
        ("task", "query"),
        ("limit", "query"),
    ]
    assert everything.http.get("/jobs?state=ready&state=done").status_code == 200


def test_the_parameters_that_may_come_twice_are_the_lists(everything):
    paths = everything.ask("GET", "/openapi.json").json()["paths"]
    assert {
        (path, parameter["name"])
        for path, operations in paths.items()
        for operation in operations.values()
        for parameter in operation.get("parameters", [])
        if parameter["in"] == "query" and "array" in str(parameter["schema"])
    } == LISTS


def test_what_happened_and_the_facts_about_it_are_two_sentences(db, everything):
    job = db.complete(db.running()) or db.value("select id from onceward.jobs")
    problem = everything.ask("POST", f"/jobs/{job}/cancel", 409).json()

    assert problem["detail"] == f'cannot cancel job {job}. Job {job} is in state "done".'


@pytest.mark.parametrize(
    ("message", "detail", "said"),
    [
        ("it is late", None, "it is late"),
        ("it is late", "It is six.", "it is late. It is six."),
        ("is it late?", "It is six.", "is it late? It is six."),
    ],
)
def test_a_message_gets_a_full_stop_when_something_follows(message, detail, said):
    assert sentences(message, detail) == said
