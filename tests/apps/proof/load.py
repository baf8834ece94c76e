"""Many batches by many callers at once, and what became of each.

`python -m tests.apps.proof.load [BATCHES] [CALLERS]` prints a verdict and how many batches a minute were made; without
arguments, 1000 by 20.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from datetime import date
from pathlib import Path

import psycopg

from onceward.testing import DatabaseServer
from onceward_apps.proof import store
from onceward_apps.proof.sample import load
from tests.apps.proof.mortal import SECRET, Storage
from tests.deliveries.sinks import HttpSink

DAY = date(2026, 3, 20)
# A worker without a point to die at: it drains and ends.
WORKER = "import sys, json; from tests.apps.proof.mortal import live; live(**json.loads(sys.argv[1]), at='', tell=str)"


def create(dsn: str, batches: int, callers: int) -> list[dict]:
    start, answers = threading.Barrier(callers), []
    left = iter(range(batches))

    def operate() -> None:
        with psycopg.connect(dsn, autocommit=True) as conn:
            start.wait(60)
            # next() of a range's iterator is one step of the interpreter: no number is taken twice.
            while next(left, None) is not None:
                answers.append(conn.execute("select raw_ops.fn_create_batch_v1(%s, 1)", [DAY]).fetchone()[0])

    threads = [threading.Thread(target=operate) for _ in range(callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


def measure(dsn: str, folder: Path, *, batches: int, callers: int, workers: int = 2) -> dict:
    problems = []
    with HttpSink() as sink:
        began = time.monotonic()
        spec = json.dumps({"dsn": dsn, "folder": str(folder), "port": sink.port})
        answers = create(dsn, batches, callers)
        created = time.monotonic() - began
        processes = [subprocess.Popen([sys.executable, "-c", WORKER, spec]) for _ in range(workers)]
        codes = [process.wait() for process in processes]
        took = time.monotonic() - began
        # A worker that drains may leave before what another one holds has come back.
        if any(codes) or subprocess.run([sys.executable, "-c", WORKER, spec], check=False).returncode:
            problems.append(f"workers ended with {codes}")
        mails = Counter(hit.json["subject"].split()[3] for hit in sink.kept)
    made = sorted((answer["batch_code"] for answer in answers), key=lambda code: int(code.rpartition("-")[2]))
    if made != [f"PR-260320-{n:03}" for n in range(1, batches + 1)]:
        problems.append("codes have gaps or are doubled")
    if len({answer["public_batch_id"] for answer in answers}) != batches:
        problems.append("public ids are doubled")
    if mails != Counter(dict.fromkeys(made, 1)):
        problems.append(f"{mails.total()} emails for {len(mails)} batches")
    files = asyncio.run(Storage(folder.as_uri(), "http://127.0.0.1/", [SECRET]).names(""))
    if len(files) != 2 * batches:
        problems.append(f"{len(files)} files")
    with psycopg.connect(dsn) as conn:
        states = dict(conn.execute("select state, count(*) from raw_ops.proof_jobs group by 1").fetchall())
        attempts = conn.execute("select max(attempts) from raw_ops.proof_jobs").fetchone()[0]
    if states != {"done": batches}:
        problems.append(f"states: {states}")
    return {
        "batches": batches, "callers": callers, "workers": workers, "created_in_s": round(created, 2),
        "done_in_s": round(took, 2), "batches_per_minute": round(batches / took * 60), "most_attempts": attempts,
        "problems": problems,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.apps.proof.load", description=__doc__)
    parser.add_argument("batches", type=int, nargs="?", default=1000, help="how many (1000)")
    parser.add_argument("callers", type=int, nargs="?", default=20, help="who create them at once (20)")
    given = parser.parse_args()
    with (
        DatabaseServer.start() as server,
        server.cloned() as database,
        tempfile.TemporaryDirectory() as folder,
    ):
        store.install(database.dsn)
        load(database.dsn)
        verdict = measure(database.dsn, Path(folder), batches=given.batches, callers=given.callers)
    print(json.dumps(verdict, indent=2))
    print(
        f"{given.batches:,} batches by {given.callers} callers:"
        f" {verdict['batches_per_minute']} batches a minute with {verdict['workers']} workers;"
        + (
            f" {len(verdict['problems'])} problems"
            if verdict["problems"]
            else " codes without gaps, one email each"
        )
    )
    sys.exit(1 if verdict["problems"] else 0)


if __name__ == "__main__":
    main()
