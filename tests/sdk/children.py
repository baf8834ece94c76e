"""Worker processes of the tests: started as in production, and ended with the test."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager

import psutil

CODE = """
import datetime
from datetime import timedelta
import sys
from onceward.worker import WorkerSettings, run_worker
sys.exit(run_worker(sys.argv[1], WorkerSettings(log_format="json", **eval(sys.argv[2]))))
"""


@contextmanager
def process(
    dsn, *, target="tests.sdk.stage:app", stderr=subprocess.PIPE, shell=None, own_session=False, **settings
):
    """`shell`: the line of a shell that becomes the worker, with "$@" for it."""
    # Not with preexec_fn: what Python does between fork and exec waits for ever for a lock that another thread had.
    through = ["sh", "-c", shell, "sh"] if shell else []
    child = subprocess.Popen(
        [*through, sys.executable, "-c", CODE, target, repr({"dsn": dsn, **settings})],
        stderr=stderr,
        text=True,
        start_new_session=own_session,
        env=os.environ,
    )
    try:
        yield child
    finally:
        for one in (
            [*psutil.Process(child.pid).children(recursive=True), child] if child.poll() is None else []
        ):
            one.kill()
        child.wait()
        if child.stderr is not None:
            child.stderr.close()


def log_line(child, event, **fields):
    """The next log line of this event; lines before it are passed over."""
    for line in child.stderr:
        if line.startswith("{"):
            entry = json.loads(line)
            if entry["event"] == event and fields.items() <= entry.items():
                return entry
    raise AssertionError(f"no {event}")


def until(condition, *, seconds=30.0):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if value := condition():
            return value
    raise AssertionError("it never happened")
