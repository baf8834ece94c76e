"""Requests made from the description, and answers held against it: no defect, nothing that the description does not say."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from tests.support import dice

HERE = Path(__file__).parent
SECONDS = os.environ.get("ONCEWARD_TEST_SCHEMA_SECONDS", "40")


@pytest.mark.slow
def test_the_api_is_what_its_description_says(api, everything, db, tmp_path):
    """Schemathesis with all of its checks; the seed of a failure is in the output."""
    some_of_everything(db, everything)
    done = schemathesis(api, everything, tmp_path, *(["--seed", str(dice.seed())] if dice.REPEATED else []))
    if done.returncode and all_fit(done.stdout, everything.ask("GET", "/openapi.json").json()):
        return
    assert done.returncode == 0, f"{done.stdout[-20_000:]}\n{done.stderr[-2000:]}"
    assert json.loads((tmp_path / "report.json").read_text()), "nothing was tried"


def schemathesis(api, everything, tmp_path, *more: str) -> subprocess.CompletedProcess[str]:
    token = everything.http.headers["authorization"]
    return subprocess.run(
        [
            sys.executable, "-m", "schemathesis.cli", "--config-file", HERE / "schemathesis.toml",
            "run", f"{api.address}/api/v1/openapi.json", "--url", f"{api.address}/api/v1",
            "--header", f"Authorization: {token}", "--checks", "all", "--max-time", SECONDS, "--max-examples", "20",
            # Waiting for a job is answered after a minute at most, on purpose.
            "--request-timeout", "70", "--max-response-time", "65", "--no-color", "--generation-database", "none", "--warnings", "off",
            "--report", "json", "--report-json-path", tmp_path / "report.json", *more,
        ],
        capture_output=True, text=True, timeout=280, check=False, cwd=tmp_path,
    )  # fmt: skip


def all_fit(output: str, openapi: dict[str, Any]) -> bool:
    """Whether nothing but ST201 was found ("a value that the schema forbids was taken"), each with a body that fits the schema.

    It blames a field for the bound of another at times.
    """
    found = re.split(r"^\d+\. Test Case ID: ", output, flags=re.MULTILINE)[1:]
    return bool(found) and all(fits(case, openapi) for case in found)


def fits(case: str, openapi: dict[str, Any]) -> bool:
    sent = re.search(r"curl -X (PUT|POST) .*-d '(.*)' \S+/api/v1(/\S+)$", case, flags=re.MULTILINE)
    if (
        set(re.findall(r"- (ST\d+) ", case)) != {"ST201"}
        or "Invalid component: in body" not in case
        or sent is None
    ):
        return False
    method, body, path = sent.groups()
    schemas = [
        operations[method.lower()]["requestBody"]["content"]["application/json"]["schema"]
        for template, operations in openapi["paths"].items()
        if method.lower() in operations and re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", template), path)
    ]
    return len(schemas) == 1 and jsonschema_rs.is_valid(
        {**schemas[0], "components": openapi["components"]}, json.loads(body.replace("'\\''", "'"))
    )


REPORTED = """
1. Test Case ID: w24Hrv

- ST201 Schema-violating request accepted

    Invalid component: in body - allowance: Value greater than maximum

    curl -X PUT -H 'Content-Type: application/json' -d '{"allowance": %s, "slots": 4}' http://localhost:1/api/v1/limits/a
"""


@pytest.mark.parametrize(
    ("report", "expected"),
    [
        (REPORTED % 2, True),
        (REPORTED % 4000, False),
        (REPORTED % 2 + REPORTED % 4000, False),
        (REPORTED.replace("ST201", "ST501") % 2, False),
        (REPORTED.replace("in body", "in query") % 2, False),
        ("", False),
    ],
)
def test_only_a_body_that_fits_the_schema_was_blamed_wrongly(everything, report, expected):
    assert all_fit(report, everything.ask("GET", "/openapi.json").json()) is expected


def some_of_everything(db, everything) -> None:
    db.dead_letter()
    db.done(result={"sum": 3})
    everything.post("/jobs/many", {"task": "t", "payloads": [{"n": n} for n in range(3)]}, 201)
    everything.put("/schedules/nightly", {"task": "t", "spec": "0 3 * * *"})
    everything.put("/limits/openai", {"requests": 60, "tokens": 1000})
