"""What `onceward new function` writes is held to what we hold our own code to: linter, types, and its own tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


def tool(folder: Path, *arguments: str) -> None:
    """A program of this environment, as a user would run it; nothing of this project's settings."""
    done = subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=folder,
        check=False,
        capture_output=True,
        text=True,
        env={name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "ONCEWARD_"))}
        | {"ONCEWARD_HOME": str(folder / "home")},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_what_is_written_passes_its_own_tests_for_short_and_long_windows(cli_alone, tmp_path):
    answer = cli_alone.ok("new", "function", "detect-alerts", "--directory", tmp_path / "jobs")

    source, test = tmp_path / "jobs/detect_alerts.py", tmp_path / "jobs/test_detect_alerts.py"
    assert answer.out.split() == [str(source), str(test)]
    assert "onceward worker detect_alerts:app" in answer.err
    assert "my-function" not in source.read_text() + test.read_text()
    assert "my_function" not in source.read_text() + test.read_text()
    assert "EVERY = timedelta(minutes=5)\n" in source.read_text()
    # All three at once: most of the time goes into the server that they share.
    for every in ("1s", "1d"):
        cli_alone.ok("new", "function", f"sum-up-{every}", "--every", every, "--directory", source.parent)
    tool(source.parent, "pytest", "-q", "-W", "error", "-p", "no:randomly", "-p", "no:cacheprovider")


@pytest.mark.slow
def test_what_is_written_is_clean_whatever_its_name(cli_alone, tmp_path, pytestconfig):
    for name in ("f", "detect-alerts", "a" + 13 * "-bc"):
        cli_alone.ok("new", "function", name, "--every", "90s", "--directory", tmp_path)

    tool(tmp_path, "ruff", "check", "--isolated", "--extend-select", "I,B,UP,SIM,RUF,PT,DTZ,ANN,SLF")
    tool(tmp_path, "ruff", "format", "--isolated", "--check")
    # What mypy knows of our packages is kept from one run to the next.
    known = pytestconfig.cache.mkdir("mypy")
    tool(tmp_path, "mypy", "--strict", "--cache-dir", str(known), ".")


@pytest.mark.parametrize(
    ("every", "written"),
    [
        ("5m", "timedelta(minutes=5)"),
        ("1h30m", "timedelta(minutes=90)"),
        ("2h", "timedelta(hours=2)"),
        ("1w", "timedelta(days=7)"),
        ("45s", "timedelta(seconds=45)"),
    ],
)
def test_the_interval_is_written_in_its_largest_unit(cli_alone, tmp_path, every, written):
    cli_alone.ok("new", "function", "f", "--every", every, "--directory", tmp_path)

    assert f"EVERY = {written}\n" in (tmp_path / "f.py").read_text()


def test_nothing_is_overwritten(cli_alone, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "test_my_job.py").write_text("mine")

    error = cli_alone.refused(1, "new", "function", "my-job")

    assert 'file "test_my_job.py" exists' in error
    assert "Nothing was written" in error
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"test_my_job.py": "mine"}


def test_a_folder_that_is_none_is_named(cli_alone, tmp_path):
    (tmp_path / "file").write_text("")

    error = cli_alone.refused(1, "new", "function", "my-job", "--directory", tmp_path / "file" / "jobs")

    assert str(tmp_path / "file") in error
    assert "could not write" in error


@pytest.mark.parametrize(
    "name", ["", "Detect", "detect_alerts", "1st", "-x", "a--b", "a-", "../x", "ünder", "a b", "a" * 41]
)
def test_a_name_that_cannot_be_a_file_and_a_table_is_refused(cli_alone, tmp_path, name):
    error = cli_alone.refused(2, "new", "function", "--directory", tmp_path, "--", name)

    assert "name of a function must be" in error
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["json", "class", "onceward", "pytest"])
def test_a_name_that_would_hide_a_module_is_refused(cli_alone, tmp_path, name):
    error = cli_alone.refused(2, "new", "function", name, "--directory", tmp_path)

    assert f"my-{name}" in error
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("every", ["0s", "500ms", "5", "-1m", "often"])
def test_an_interval_that_no_schedule_has_is_refused(cli_alone, tmp_path, every):
    error = cli_alone.refused(2, "new", "function", "f", f"--every={every}", "--directory", tmp_path)

    assert "--every" in error
    assert list(tmp_path.iterdir()) == []
