"""The benchmark measures everything it promises.  How fast is not decided here."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from onceward.bench import main, runner, table
from onceward.bench.measures import GROUPS, Bench
from onceward.bench.metrics import BARS, METRICS, summary
from onceward.bench.place import Place
from onceward.bench.programs import engine, engine_tasks
from onceward.bench.programs.producer import Batch
from onceward.bench.sizes import TINY
from onceward.bench.systems import LABELS, find_systems
from onceward.errors import InvalidArgument
from onceward.testing.database import _folder

ROOT = Path(__file__).parents[2]


@pytest.fixture
def home(monkeypatch):
    # Not tmp_path: as root, the server runs as another user, and every new pytest session closes that folder to others.
    # In memory: a disk is half a minute busy with the files of sixty databases.
    with tempfile.TemporaryDirectory(prefix="onceward-bench-", dir=_folder()) as folder:
        monkeypatch.setenv("ONCEWARD_HOME", folder)
        yield Path(folder)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_tiny_run_gives_every_metric_and_leaves_nothing_behind(home):
    with Place.opened() as place:
        bench = Bench(place, find_systems(None), TINY)
        # The second raw loop differs in one number only.
        steps = [step for step in runner.plan(GROUPS, bench.systems, 1) if step.system != "raw_200"]
        results = runner.measure(bench, steps, lambda *_: None)
        assert results.errors == []
        document = runner.document(bench, results, command="onceward bench", seconds=1.0, skipped=[])

    document = json.loads(json.dumps(document))
    assert {metric["name"] for metric in document["metrics"]} == {metric.name for metric in METRICS}
    assert {metric["group"] for metric in document["metrics"]} == {group.name for group in GROUPS}
    for metric in document["metrics"]:
        assert "onceward" in metric["systems"], metric["name"]
        assert all(len(system["runs"]) == 1 for system in metric["systems"].values())
    assert document["server"]["settings"]["fsync"] == "on"
    assert document["server"]["settings"]["synchronous_commit"] == "on"
    assert set(document["machine"]) >= {"cores", "memory_gb", "python", "system"}
    assert str(home) not in json.dumps(document)
    assert list(home.iterdir()) == []


@pytest.mark.parametrize("repeats", [0, -1, 101])
def test_a_number_of_repeats_that_makes_no_sense_is_refused(repeats):
    with pytest.raises(InvalidArgument, match=f"--repeats must be between 1 and 100, got {repeats}"):
        main(as_json=True, quick=True, repeats=repeats)


@pytest.mark.slow
def test_an_interrupted_run_leaves_nothing_behind(home):
    program = "from onceward.bench import main; raise SystemExit(main(as_json=True, quick=True, only=['latency'], peers=False))"
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        env={**os.environ, "ONCEWARD_HOME": str(home)},
    )
    try:
        while not has_worker(home):
            assert process.poll() is None, process.communicate()[1]
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()

    assert process.returncode == 130, errors
    assert list(home.iterdir()) == []
    assert not processes_that_mention(str(home))


def has_worker(home):
    try:
        return any(home.glob("bench-run-*/tmp*/work.log"))
    except FileNotFoundError:
        return False  # A folder ended while we looked.


def processes_that_mention(text: str) -> list[str]:
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if text.encode() in (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes():
                found.append(entry.name)
        except OSError:
            continue
    return [pid for pid in found if int(pid) != os.getpid()]


def test_an_unknown_measurement_is_named_with_the_nearest_one():
    with pytest.raises(InvalidArgument) as caught:
        runner.choose(["latencies"])

    assert '"latencies"' in caught.value.message
    assert '"latency"' in (caught.value.hint or "")


def test_repeats_go_round_the_systems_and_leave_out_a_peer_that_is_missing():
    steps = runner.plan(runner.choose(["latency"]), find_systems(None), 2)

    assert [(step.repeat, step.system) for step in steps] == [
        (0, "raw"), (0, "onceward"), (1, "raw"), (1, "onceward"),
    ]  # fmt: skip


def test_bars_are_judged_by_medians_and_left_open_without_their_figures():
    found = summary({"drain_one": {"raw_1000": [100.0, 90.0, 300.0], "onceward": [60.0, 70.0, 50.0]}})

    (metric,) = found
    assert metric["systems"]["onceward"]["median"] == 60
    assert metric["systems"]["onceward"]["ratios"] == {"raw_1000": 0.6}
    verdicts = {(bar["kind"], bar["text"]): bar["passed"] for bar in metric["bars"]}
    assert verdicts == {
        ("first bar", "≥ 2 × PgQueuer"): None,
        ("first bar", "≥ 0.5 × raw loop, batch 1,000"): True,
        ("goal", "≥ 0.9 × raw loop, batch 1,000"): False,
    }


def test_every_name_is_known():
    metrics = {metric.name for metric in METRICS}
    assert {bar.metric for bar in BARS} <= metrics
    assert {system for group in GROUPS for system in group.systems} <= set(LABELS)
    assert {metric.group for metric in METRICS} == {group.name for group in GROUPS}


def test_published_results_are_complete_and_draw_the_page(tmp_path):
    results = ROOT / "benchmarks" / "results.json"
    document = json.loads(results.read_text())

    assert document["errors"] == []
    assert {metric["name"] for metric in document["metrics"]} == {metric.name for metric in METRICS}
    subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "report.py"), "--to", str(tmp_path / "page.md")],
        check=True,
    )
    assert (tmp_path / "page.md").read_text() == (ROOT / "docs" / "operations" / "performance.md").read_text()


def test_the_page_tells_of_both_orders_of_keys_once_both_are_measured(tmp_path):
    document = json.loads((ROOT / "benchmarks" / "results.json").read_text())
    kept = [metric for metric in document["metrics"] if not metric["name"].startswith("keys_apart")]
    results, page = tmp_path / "results.json", tmp_path / "page.md"
    for more, told in (([], False), (summary({"keys_apart": {"onceward": [5000.0]}}), True)):
        results.write_text(json.dumps({**document, "metrics": [*kept, *more]}))
        subprocess.run(
            [sys.executable, str(ROOT / "benchmarks" / "report.py"), str(results), "--to", str(page)],
            check=True,
        )
        assert (
            "each job that a batch of finishes lets in then lies on another page" in page.read_text()
        ) == told
        assert ("| 5,000 |" in page.read_text()) == told


def test_keys_come_in_turn_over_all_batches_or_one_for_each_batch():
    in_turn = [
        key
        for first in (0, 4)
        for key in engine.bulk_arguments(Batch(first, 4, keys_in_turn=3), engine_tasks.count)[2][
            "concurrency_keys"
        ]
    ]
    assert in_turn == [f"key {n}" for n in (0, 1, 2, 0, 1, 2, 0, 1)]

    options = engine.bulk_arguments(Batch(0, 4, concurrency_key="key 7"), engine_tasks.count)[2]
    assert (options["concurrency_key"], options["concurrency_keys"]) == ("key 7", None)


def test_the_bar_of_keys_is_held_against_keys_in_turn_and_says_so():
    found = summary({"keys_kept": {"onceward": [0.8]}, "keys_apart_kept": {"onceward": [0.5]}})

    bars = {metric["name"]: [(bar["text"], bar["passed"]) for bar in metric["bars"]] for metric in found}
    assert bars == {
        "keys_kept": [
            ("≥ 0.7 × the rate without, keys in turn", True),
            ("≥ 0.9 × the rate without, keys in turn", False),
        ],
        "keys_apart_kept": [],
    }


def test_the_table_shows_each_figure(capsys):
    from rich.console import Console

    document = json.loads((ROOT / "benchmarks" / "results.json").read_text())
    table.show(document, Console(width=160, force_terminal=False))

    shown = capsys.readouterr().out
    for metric in document["metrics"]:
        assert metric["title"] in shown
