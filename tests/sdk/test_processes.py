"""Handlers in processes of their own, and what becomes of them when somebody dies."""

from __future__ import annotations

import os
import signal

import psutil
import pytest

from onceward import Client
from tests.sdk import shop, stage
from tests.sdk.children import log_line, process, until
from tests.sdk.test_worker import drain


@pytest.fixture
def client(onceward_database):
    with Client(onceward_database, app=stage.app) as client:
        yield client


@pytest.mark.parametrize(
    ("number", "how"),
    [
        (signal.SIGKILL, "killed by SIGKILL (-9); the system may have run out of memory"),
        (signal.SIGSEGV, "killed by SIGSEGV (-11)"),
    ],
)
def test_a_process_that_was_killed_is_recorded_with_the_signal(onceward_database, client, number, how):
    job = client.enqueue(stage.ends_itself, {"number": number})
    drain(onceward_database, stage.app)

    error = client.job(job).last_error
    assert (error["type"], error["message"]) == (
        "ProcessDied",
        f"the handler's process ended without an answer: {how}",
    )


def test_a_process_that_exits_is_recorded_with_its_status(onceward_database, plain):
    job = plain.enqueue(shop.dies, {"n": 3})
    drain(onceward_database)

    assert plain.job(job).last_error["message"].endswith("without an answer: exit status 3")


def test_a_process_whose_worker_was_killed_ends_without_a_word(onceward_database, client, tmp_path):
    told, go = tmp_path / "told", tmp_path / "go"
    client.enqueue(stage.computes, {"told": str(told), "go": str(go)})
    with process(onceward_database) as child:
        until(lambda: told.exists() and told.read_text())
        handler = psutil.Process(int(told.read_text()))
        child.kill()
        child.wait(30)
        go.touch()
        # Until all who could write have ended.
        said = child.stderr.read()
        handler.wait(30)

    assert "Traceback" not in said
    assert all(line.startswith("{") for line in said.splitlines())


def test_a_terminal_that_is_closed_lets_handlers_in_processes_finish(onceward_database, client, tmp_path):
    told, go = tmp_path / "told", tmp_path / "go"
    job = client.enqueue(stage.computes, {"told": str(told), "go": str(go)})
    with process(onceward_database, own_session=True) as child:
        until(lambda: told.exists() and told.read_text())
        os.killpg(child.pid, signal.SIGHUP)
        log_line(child, "signal_received", signal="SIGHUP")
        go.touch()
        assert child.wait(30) == 0
    found = client.job(job)
    assert (found.state, found.result, found.attempt) == ("done", "done", 1)
