"""The demo, as somebody sees it whose output is not a terminal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import psycopg
import pytest

pytestmark = pytest.mark.slow


def start_demo(dsn: str) -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    return subprocess.Popen(
        [sys.executable, "-c", "from onceward.demo import run; raise SystemExit(run())"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**environment, "ONCEWARD_DSN": dsn, "COLUMNS": "200", "PYTHONUNBUFFERED": "1"},
    )


def states(dsn: str) -> dict[str, int]:
    with psycopg.connect(dsn) as connection:
        return dict(connection.execute("select state, count(*) from onceward.jobs group by state").fetchall())


def test_the_demo_runs_retries_rescues_and_mends(onceward_database):
    demo = start_demo(onceward_database)

    text, _ = demo.communicate(timeout=120)

    assert demo.returncode == 0, text
    for line in (
        "neither order nor job",
        "attempt 2  failed: the warehouse does not answer",
        "attempt 1  rescued",
        "dead_letter: the card has expired",
        "requeue with an edited payload",
        "None was lost.",
        "job list --lane demo",
    ):
        assert line in text
    assert states(onceward_database) == {"done": 24}


def test_a_demo_that_is_stopped_leaves_no_process_and_no_live_job(onceward_database):
    demo = start_demo(onceward_database)
    seen = []
    for line in demo.stdout:
        seen.append(line)
        # Once the first job is done, the worker runs.
        if "attempt 1  done" in line:
            break
    demo.send_signal(signal.SIGINT)
    rest, _ = demo.communicate(timeout=60)

    assert demo.returncode == 130, "".join(seen) + rest
    assert "Stopped." in rest
    assert set(states(onceward_database)) <= {"done", "cancelled", "resolved"}
    with psycopg.connect(onceward_database) as connection:
        live = connection.execute("select count(*) from onceward.workers where state = 'live'").fetchone()
    assert live == (0,)
