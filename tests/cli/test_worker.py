"""`onceward worker` from the command line: options are read, targets are explained; what runs is tested elsewhere."""

from __future__ import annotations

from datetime import timedelta

import pytest

from onceward.worker import WorkerSettings


@pytest.fixture
def started(monkeypatch):
    """What the worker would have been started with."""
    calls = []

    def run_worker(target: str, settings: WorkerSettings) -> int:
        calls.append((target, settings))
        return 3

    monkeypatch.setattr("onceward.worker.run_worker", run_worker)
    return calls


def test_every_option_reaches_the_worker(cli, started, shop, db):
    answer = cli(
        "worker", shop, "--lanes", "mail,ocr=5", "--concurrency", 20, "--processes", 2, "--lease", "45s", "--grace", "1m",
        "--health-port", 8081, "--log-format", "json", "--name", "north-1",
    )  # fmt: skip

    assert answer.status == 3
    ((target, settings),) = started
    assert target == shop
    assert settings == WorkerSettings(
        dsn=db.dsn,
        lanes={"mail": None, "ocr": 5},
        concurrency=20,
        processes=2,
        lease=timedelta(seconds=45),
        grace=timedelta(minutes=1),
        health_port=8081,
        log_format="json",
        name="north-1",
    )


def test_without_options_the_defaults_of_the_worker_hold(cli_alone, started, shop):
    cli_alone("worker", shop)

    ((_, settings),) = started
    assert settings == WorkerSettings()


@pytest.mark.parametrize(
    ("arguments", "fragments"),
    [
        (["--lanes", "mail,mail"], ['--lanes names lane "mail" twice']),
        (["--lanes", "mail=many"], ['limit of lane "mail"', "got 'many'"]),
        (["--concurrency", "0"], ["--concurrency must be at least 1, got 0"]),
        (["--processes", "-1"], ["--processes must be at least 1, got -1"]),
        (["--lease", "500ms"], ["--lease must be between 1s and 1d, got 500ms"]),
        (["--lease", "-30s"], ["--lease must not be negative, got -30s"]),
        (["--health-port", "70000"], ["--health-port must be at most 65535, got 70000"]),
        (
            ["--log-format", "jsn"],
            ["--log-format must be one of text, json, got 'jsn'", 'Did you mean "json"?'],
        ),
    ],
)
def test_bad_options_are_refused_before_anything_starts(cli_alone, started, shop, arguments, fragments):
    error = cli_alone.refused(2, "worker", shop, *arguments)

    for fragment in fragments:
        assert fragment in error
    assert started == []


@pytest.mark.parametrize(
    ("target", "status", "fragments"),
    [
        ("shop_jobs", 2, ["package.module:app", "got 'shop_jobs'"]),
        ("shop_jobs.py", 2, ["Name the module, not the file: shop_jobs:app"]),
        ("jobs/shop.py:app", 2, ["Name the module, not the file: jobs.shop:app"]),
        ("shop_job:app", 1, ["shop_job", "does not exist"]),
        ("shop_jobs:ap", 1, ["ap", 'Did you mean "app"?']),
        ("shop_jobs:send", 1, ["shop_jobs:send", "is not an Onceward app"]),
        ("broken:app", 1, ['could not import "broken": ZeroDivisionError', "broken.py, line 1"]),
        ("needy:app", 1, ['could not import "needy": module "nosuchpackage" does not exist', "Install"]),
        ("typo:app", 1, ['could not import "typo": SyntaxError', "typo.py, line 2"]),
        ("script:app", 1, ['could not import "script"', "sys.exit(0)", "script.py, line 2", '"__main__"']),
        ("angry:app", 1, ['could not import "angry"', "sys.exit('no settings')", "angry.py, line 1"]),
    ],
)
def test_a_target_that_cannot_be_loaded_is_explained(
    cli_alone, started, shop, tmp_path, target, status, fragments
):
    (tmp_path / "broken.py").write_text("1 / 0\n")
    (tmp_path / "needy.py").write_text("import nosuchpackage\n")
    (tmp_path / "typo.py").write_text("\ndef (\n")
    (tmp_path / "script.py").write_text("import sys\nsys.exit(0)\n")
    (tmp_path / "angry.py").write_text("raise SystemExit('no settings')\n")

    error = cli_alone.refused(status, "worker", target)

    for fragment in fragments:
        assert fragment in error
    assert started == []
