"""Worker processes as they run in production: started, asked for their health, signalled, killed."""

from __future__ import annotations

import json
import os
import signal
import sys
import urllib.error
import urllib.request
from datetime import timedelta

import psutil
import pytest

from onceward import Client
from onceward.worker import supervisor
from tests.sdk import stage
from tests.sdk.children import log_line, process, until
from tests.sdk.gate import WRONG_PASSWORD, Gate, refusing_server


@pytest.fixture
def client(onceward_database):
    with Client(onceward_database, app=stage.app) as client:
        yield client


def is_alive(one):
    return one.is_running() and one.status() != psutil.STATUS_ZOMBIE


def test_a_worker_tells_its_health_and_drains_on_sigterm(onceward_database, client):
    job = client.enqueue(stage.echo, {"text": "hi"})
    with process(onceward_database, health_port=0) as child:
        port = log_line(child, "health_port_open")["port"]
        log_line(child, "worker_started")
        assert client.wait(job) == "hi"
        for path, body in [("healthz", {"status": "alive"}), ("readyz", {"status": "ready"})]:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}") as answer:
                assert json.load(answer) == body
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/else")
        child.send_signal(signal.SIGTERM)
        assert log_line(child, "worker_stopped")["handed_back"] == 0
        assert child.wait(30) == 0


@pytest.mark.parametrize("task", ["hangs", "hangs_in_a_thread"])
def test_a_second_signal_stops_at_once_and_hands_the_job_back(onceward_database, client, task):
    job = client.enqueue(task)
    with process(onceward_database) as child:
        until(lambda: client.job(job).progress)
        child.send_signal(signal.SIGTERM)
        log_line(child, "signal_received", signal="SIGTERM")
        child.send_signal(signal.SIGTERM)
        assert child.wait(30) == 0
    found = client.job(job)
    assert (found.state, found.attempt) == ("ready", 0)


def test_log_lines_carry_job_task_attempt_and_worker_but_no_payload(onceward_database, client):
    job = client.enqueue(stage.fails, {"secret": "swordfish"})
    with process(onceward_database) as child:
        line = log_line(child, "job_failed")
        assert (line["job_id"], line["task"], line["attempt"]) == (str(job.id), "fails", 1)
        assert line["worker"]
        assert "swordfish" not in json.dumps(line)


def test_processes_that_die_are_replaced_and_all_stop_together(onceward_database, client):
    with process(onceward_database, processes=2) as child:
        log_line(child, "worker_started")
        log_line(child, "worker_started")
        workers = [
            one
            for one in psutil.Process(child.pid).children()
            if "resource_tracker" not in " ".join(one.cmdline())
        ]
        assert len(workers) == 2
        workers[0].kill()
        assert log_line(child, "process_died")["exit_code"] == -signal.SIGKILL
        log_line(child, "worker_started")
        job = client.enqueue(stage.echo, {"text": "still here"})
        assert client.wait(job) == "still here"
        child.send_signal(signal.SIGTERM)
        assert child.wait(30) == 0
    # Python's own helper among them ends a moment after the parent.
    until(lambda: not any(is_alive(one) for one in workers))


@pytest.mark.parametrize("processes", [1, 2])
def test_a_worker_that_could_never_work_says_why_once_and_ends(onceward_database, processes):
    with process(onceward_database, processes=processes, lanes={"nowhere": None}) as child:
        _, said = child.communicate(timeout=60)

    assert child.returncode == 1
    assert said.count('lane "nowhere" does not exist') == 1
    assert "process_died" not in said


@pytest.mark.parametrize("processes", [1, 2])
def test_a_worker_that_the_server_does_not_let_in_ends_at_once_without_its_password(processes):
    with (
        refusing_server(*WRONG_PASSWORD) as port,
        process(f"postgresql://ada:swordfish@127.0.0.1:{port}/shop", processes=processes) as child,
    ):
        _, said = child.communicate(timeout=60)

    assert child.returncode == 1
    assert said.count(f'could not connect to database "shop" on 127.0.0.1:{port} as "ada"') == 1
    assert "database_unreachable" not in said
    assert "swordfish" not in said


def test_a_worker_that_was_let_in_once_comes_back_when_its_password_is_valid_again(onceward_database, client):
    with Gate(onceward_database) as gate, process(gate.dsn) as child:
        log_line(child, "worker_started")
        gate.refuses = True
        gate.cut()
        log_line(child, "connection_lost")
        assert child.poll() is None
        gate.refuses = False
        log_line(child, "connection_restored")
        assert client.wait(client.enqueue(stage.echo, {"text": "back"})) == "back"


def test_a_process_that_cannot_start_again_does_not_end_the_others(onceward_database, client):
    with Gate(onceward_database) as gate, process(gate.dsn, processes=2) as child:
        log_line(child, "worker_started")
        log_line(child, "worker_started")
        gate.refuses = True
        victim = next(
            one
            for one in psutil.Process(child.pid).children()
            if "resource_tracker" not in " ".join(one.cmdline())
        )
        victim.kill()
        assert log_line(child, "process_died")["exit_code"] == -signal.SIGKILL
        assert "could not connect" in log_line(child, "process_died")["error"]
        assert client.wait(client.enqueue(stage.echo, {"text": "still here"})) == "still here"
        gate.refuses = False
        log_line(child, "worker_started")


def test_a_worker_waits_for_a_database_that_is_not_there_yet(onceward_database, client):
    with process("host=127.0.0.1 port=1 dbname=none connect_timeout=1") as child:
        assert "refused" in log_line(child, "database_unreachable")["error"]
        assert child.poll() is None


def test_an_error_tells_nothing_of_a_faster_loop_that_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "uvloop", None)

    async def main() -> None:
        raise ValueError("of the handler")

    with pytest.raises(ValueError, match="of the handler") as raised:
        supervisor._run(main())

    assert raised.value.__context__ is None


@pytest.mark.parametrize("processes", [1, 2])
def test_a_terminal_that_is_closed_and_says_so_twice_drains_every_process(
    onceward_database, client, processes
):
    job = client.enqueue("hangs")
    with process(
        onceward_database, own_session=True, processes=processes, grace=timedelta(seconds=2)
    ) as child:
        for _ in range(processes):
            log_line(child, "worker_started")
        until(lambda: client.job(job).progress)
        workers = psutil.Process(child.pid).children(recursive=True)
        # To the whole group, as terminals and shells do.
        os.killpg(child.pid, signal.SIGHUP)
        os.killpg(child.pid, signal.SIGHUP)
        _, said = child.communicate(timeout=30)
    assert child.returncode == 0
    assert said.count('"worker_stopped"') == processes
    assert not any(is_alive(one) for one in workers)
    found = client.job(job)
    assert (found.state, found.attempt) == ("ready", 0)


def test_sighup_to_the_parent_alone_ends_all(onceward_database, client):
    with process(onceward_database, processes=2) as child:
        log_line(child, "worker_started")
        log_line(child, "worker_started")
        workers = psutil.Process(child.pid).children(recursive=True)
        child.send_signal(signal.SIGHUP)
        assert child.wait(30) == 0
    # Python's own helper among them ends a moment after the parent.
    until(lambda: not any(is_alive(one) for one in workers))


@pytest.mark.parametrize("processes", [1, 2])
def test_a_worker_that_was_started_with_nohup_outlives_its_terminal(onceward_database, client, processes):
    ignoring = 'trap "" HUP; exec "$@"'
    with process(onceward_database, shell=ignoring, own_session=True, processes=processes) as child:
        for _ in range(processes):
            log_line(child, "worker_started")
        os.killpg(child.pid, signal.SIGHUP)
        assert client.wait(client.enqueue(stage.echo, {"text": "still here"})) == "still here"
        child.send_signal(signal.SIGTERM)
        assert child.wait(30) == 0
