"""Requests made from the description, and answers held against it: no defect, nothing that the description does not say."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import dice

HERE = Path(__file__).parent
SECONDS = os.environ.get("ONCEWARD_TEST_SCHEMA_SECONDS", "40")


@pytest.mark.slow
def test_the_api_is_what_its_description_says(api, everything, db, tmp_path):
    """Schemathesis with all of its checks; the seed of a failure is in the output."""
    some_of_everything(db, everything)
    done = schemathesis(api, everything, tmp_path, *(["--seed", str(dice.seed())] if dice.REPEATED else []))
    if set(re.findall(r"- (ST\d+) ", done.stdout)) == {"ST201"}:
        # "A value that the schema forbids was taken": it has blamed a field for the bound of another, with a value that fits.
        # What is taken depends on nothing but the value, so what is true of it is found again with the same seed.
        (seed,) = re.findall(r"Seed: (\d+)", done.stdout)
        done = schemathesis(api, everything, tmp_path, "--seed", seed)
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


def some_of_everything(db, everything) -> None:
    db.dead_letter()
    db.done(result={"sum": 3})
    everything.post("/jobs/many", {"task": "t", "payloads": [{"n": n} for n in range(3)]}, 201)
    everything.put("/schedules/nightly", {"task": "t", "spec": "0 3 * * *"})
    everything.put("/limits/openai", {"requests": 60, "tokens": 1000})
