"""`demo` and `bench` hand their options on; what they do is tested with them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture
def measured(monkeypatch):
    calls = []
    monkeypatch.setattr("onceward.bench.main", lambda **options: calls.append(options) or 1)
    return calls


def test_bench_hands_its_options_on_and_ends_with_its_status(cli_alone, measured):
    answer = cli_alone(
        "bench",
        "--json",
        "--quick",
        "--only",
        "drain, latency",
        "--repeats",
        "2",
        "--output",
        "b.json",
        "--no-peers",
    )

    assert answer.status == 1
    assert measured == [
        {
            "as_json": True,
            "quick": True,
            "only": ["drain", "latency"],
            "repeats": 2,
            "output": Path("b.json"),
            "peers": False,
        }
    ]


def test_bench_without_options_measures_everything(cli_alone, measured):
    cli_alone("bench")

    assert measured == [
        {"as_json": False, "quick": False, "only": None, "repeats": None, "output": None, "peers": True}
    ]


def test_demo_uses_the_database_that_is_named(cli_alone, monkeypatch):
    monkeypatch.setenv("ONCEWARD_DSN", "")
    seen = []
    monkeypatch.setattr("onceward.demo.run", lambda: seen.append(os.environ["ONCEWARD_DSN"]) or 0)

    assert cli_alone.ok("demo", dsn="dbname=shop")
    assert seen == ["dbname=shop"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--only", "latencies"], 'there is no measurement "latencies"'),
        (["--repeats", "0"], "--repeats must be between 1 and 100, got 0"),
    ],
)
def test_bench_that_is_asked_for_what_it_cannot_measure_is_a_usage_error(cli_alone, options, said):
    assert f"error: {said}" in cli_alone.refused(2, "bench", *options)
