"""Every example, run as its reader would run it: what it prints is what stands at its end.

All of them run on one database, in the random order of the tests: none may leave it so that another one fails.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
FILES = sorted(path.name for path in EXAMPLES.glob("*.py"))

pytestmark = pytest.mark.slow


def expected_output(text: str) -> list[str]:
    _, found, comment = text.partition("\n# Output:\n")
    assert found, "an example ends with '# Output:' and what it prints"
    return [line.removeprefix("#").removeprefix(" ") for line in comment.splitlines()]


def run(path: Path, dsn: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    return subprocess.run(
        [sys.executable, "-W", "error", str(path)],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        env={**environment, "ONCEWARD_DSN": dsn, "NO_COLOR": "1"},
    )


@pytest.fixture(scope="module")
def shared(onceward_server):
    with onceward_server.cloned() as database:
        yield database.dsn


@pytest.mark.parametrize("name", FILES)
def test_an_example_prints_what_it_says_whatever_ran_before(name, shared):
    path = EXAMPLES / name

    done = run(path, shared)

    assert done.returncode == 0, done.stdout + done.stderr
    assert [line.rstrip() for line in done.stdout.splitlines()] == expected_output(
        path.read_text(encoding="utf-8")
    )


def test_every_example_is_listed_in_the_readme():
    listed = re.findall(r"\]\((\w+\.py)\)", (EXAMPLES / "README.md").read_text(encoding="utf-8"))

    assert sorted(listed) == FILES
