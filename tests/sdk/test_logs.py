"""A log that cannot be written: the disk is full, the reader has gone, stderr is closed.  Work goes on."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import psutil
import pytest

from onceward import Client
from tests.sdk import stage
from tests.sdk.children import log_line, process, until

FULL = Path("/dev/full")
needs_full = pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")
ONCEWARD = [sys.executable, "-c", "from onceward.cli.start import main; main()"]


@pytest.fixture
def client(onceward_database):
    with Client(onceward_database, app=stage.app) as client:
        yield client


def works_and_stops(child, client):
    assert client.wait(client.enqueue(stage.echo, {"text": "on"}), timeout=timedelta(seconds=30)) == "on"
    child.send_signal(signal.SIGTERM)
    assert child.wait(30) == 0


@needs_full
@pytest.mark.parametrize("processes", [1, 2])
def test_a_worker_whose_log_disk_is_full_works_and_ends_as_ever(onceward_database, client, processes):
    with FULL.open("w") as full, process(onceward_database, stderr=full, processes=processes) as child:
        works_and_stops(child, client)


def test_a_worker_whose_log_has_lost_its_reader_works_and_ends_as_ever(onceward_database, client):
    with process(onceward_database) as child:
        log_line(child, "worker_started")
        child.stderr.close()
        failing = client.enqueue(stage.fails, {"secret": "x"})
        until(lambda: client.job(failing).last_error)
        works_and_stops(child, client)


def test_a_parent_whose_log_has_lost_its_reader_replaces_a_process_that_died(onceward_database, client):
    with process(onceward_database, processes=2) as child:
        log_line(child, "worker_started")
        log_line(child, "worker_started")
        child.stderr.close()
        killed = {one for one in psutil.Process(child.pid).children() if _is_worker(one)}
        for one in killed:
            one.kill()
        works_and_stops(child, client)


def test_a_worker_without_stderr_works_and_ends_as_ever(onceward_database, client):
    with process(onceward_database, stderr=None, shell='exec "$@" 2>&-') as child:
        works_and_stops(child, client)


def test_when_a_log_can_be_written_again_it_says_how_many_lines_were_lost(
    onceward_database, client, tmp_path
):
    log = tmp_path / "worker.log"
    no_limit = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    with log.open("w") as file, process(onceward_database, stderr=file) as child:
        until(lambda: "worker_started" in log.read_text())
        # No room but for the beginning of one more line, as on a disk that fills up.
        resource.prlimit(child.pid, resource.RLIMIT_FSIZE, (log.stat().st_size + 9, resource.RLIM_INFINITY))
        for _ in range(3):
            _fail(client)
        resource.prlimit(child.pid, resource.RLIMIT_FSIZE, no_limit)
        _fail(client)
        works_and_stops(child, client)

    lines = log.read_text().splitlines()
    torn = next(index for index, line in enumerate(lines) if not line.endswith("}"))
    lost, following = (json.loads(line) for line in lines[torn + 1 : torn + 3])
    assert (lost["event"], lost["level"], lost["count"]) == ("log_lines_lost", "warning", 3)
    assert lost.keys() == {"event", "level", "count", "timestamp"}
    assert following["event"] == "job_failed"
    assert sum('"log_lines_lost"' in line for line in lines) == 1


def test_an_error_that_nobody_reads_has_its_exit_status_all_the_same(tmp_path):
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as broken:
        command = [*ONCEWARD, "worker", "--nothing"]
        done = subprocess.run(command, check=False, stderr=broken, cwd=tmp_path, timeout=60)

    assert done.returncode == 2


@needs_full
def test_an_error_that_cannot_be_printed_has_its_exit_status_all_the_same(tmp_path):
    with FULL.open("w") as full:
        command = [*ONCEWARD, "worker", "--nothing"]
        done = subprocess.run(command, check=False, stderr=full, cwd=tmp_path, timeout=60)

    assert done.returncode == 2


def _fail(client):
    job = client.enqueue("fails", {"secret": "x"})
    until(lambda: client.job(job).last_error)


def _is_worker(one):
    return "resource_tracker" not in " ".join(one.cmdline())
