"""Every crash point of the pipeline: a worker dies there, another one goes on, and each batch has one of everything.

`python -m tests.apps.proof.points` tries all of them, also a second death during the recovery, and prints a verdict.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import subprocess
import sys
import tempfile
from collections import Counter
from datetime import date
from pathlib import Path

import psycopg

from onceward.testing import Clock, DatabaseServer
from onceward_apps.kit.storage import Storage
from onceward_apps.proof import store
from onceward_apps.proof.sample import load
from tests.apps.proof.mortal import LEASE, SECRET
from tests.deliveries.sinks import HttpSink

NEVER = ""
# Where an effect has happened and nobody knows yet.
VITAL = [
    "after put qr-codes 1", "after put batch-labels 1", "after transaction qr_recorded 1", "after transaction email_entered 1",
    "after begin_delivery 1", "after email 1", "after settle_delivery 1", "after join_jobs 1",
]  # fmt: skip
# Calls that a worker makes now and then.
IDLE = {
    "promote",
    "tick",
    "exchange",
    "rescue",
    "ensure_partitions",
    "tidy",
    "declare_schedules",
    "declare_lanes",
}


class Nursery:
    """Starts mortal workers, one at a time."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.apps.proof.mortal"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self):
        return self

    def __exit__(self, *unused: object) -> None:
        self._process.stdin.close()
        self._process.wait(10)
        self._process.stdout.close()

    def live(self, **spec) -> tuple[int, str]:
        self._process.stdin.write(json.dumps(spec) + "\n")
        self._process.stdin.flush()
        return tuple(json.loads(self._process.stdout.readline()))


def exhaust(dsn: str, folder: Path, *, most: int | None, seed: int) -> dict:
    """Die at every point, or at the vital ones and `most` others, and now and then once more during the recovery."""
    chance = random.Random(seed)
    died, problems, missed = Counter(), [], []
    clock = Clock(dsn)
    with HttpSink() as sink, Nursery() as nursery, psycopg.connect(dsn, autocommit=True) as conn:

        def run(at: str) -> tuple[bool, list[str]]:
            code, names = nursery.live(dsn=dsn, folder=str(folder), port=sink.port, at=at)
            if code not in {0, -9}:
                problems.append(f"a worker ended with {code} after {names[-3:]}")
            if code == -9:
                died[at] += 1
            clock.advance(LEASE * 2)
            return code == -9, names

        def create() -> dict:
            return conn.execute("select raw_ops.fn_create_batch_v1(%s, 1)", [date(2026, 3, 20)]).fetchone()[0]

        def finish(batch: dict, story: list[str]) -> None:
            for _ in range(8):
                run(NEVER)
                state = conn.execute(
                    "select state from raw_ops.proof_jobs where batch_id = %s", [batch["batch_id"]]
                ).fetchone()[0]
                if state == "done":
                    return
                clock.advance("31 s")
            problems.append(f"{state} after {story}")

        create()
        _, every = run(NEVER)
        points = every
        if most is not None:
            others = [point for point in every if point not in VITAL]
            points = [*VITAL, *chance.sample(others, min(most, len(others)))]
        for point in points:
            batch = create()
            story = [point]
            is_dead, _ = run(point)
            if not is_dead:
                missed.append(point)
            elif chance.random() < 0.4:
                story.append(chance.choice(every))
                run(story[-1])
            finish(batch, story)
        problems += _check(conn, sink, folder)
    # Which of the worker's own calls come how often depends on its timing; those of the pipeline do not.
    problems += [f"never died {point}" for point in missed if point.split()[1] not in IDLE]
    return {
        "points": len(points), "not_reached": missed, "deaths": sum(died.values()), "seed": seed, "problems": problems,
        "died_at": dict(sorted(died.items())),
    }  # fmt: skip


def _check(conn, sink, folder: Path) -> list[str]:
    """One QR code, one label and one email for every batch, and everything done."""
    problems = []
    codes = [row[0] for row in conn.execute("select batch_code from raw_ops.batches order by 1")]
    states = Counter(row[0] for row in conn.execute("select state from raw_ops.proof_jobs"))
    if set(states) != {"done"}:
        problems.append(f"states: {dict(states)}")
    storage = Storage(folder.as_uri(), "http://127.0.0.1/", [SECRET])
    files = asyncio.run(storage.names(""))
    if files != sorted(
        [f"qr-codes/{code}.png" for code in codes] + [f"batch-labels/{code}.pdf" for code in codes]
    ):
        problems.append("files differ")
    mails = Counter(hit.json["subject"] for hit in sink.kept)
    if mails != Counter(f"Protocol Raw Batch {code} - Label Artwork" for code in codes):
        problems.append(f"emails differ: {[item for item in mails.items() if item[1] != 1]}")
    for what in ("QR assets set", "Label PDF set", "Proof job completed"):
        lines = conn.execute(
            "select count(*) from raw_ops.ops_events where message like %s", [f"{what}%"]
        ).fetchone()[0]
        if lines != len(codes):
            problems.append(f"{lines} lines {what!r} for {len(codes)} batches")
    return problems


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.apps.proof.points", description=__doc__)
    parser.add_argument(
        "seed", type=int, nargs="?", help="which second deaths there are; another one each time"
    )
    seed = parser.parse_args().seed
    if seed is None:
        seed = random.randrange(10**6)
    with (
        DatabaseServer.start() as server,
        server.cloned() as database,
        tempfile.TemporaryDirectory() as folder,
    ):
        store.install(database.dsn)
        load(database.dsn)
        verdict = exhaust(database.dsn, Path(folder), most=None, seed=seed)
    print(json.dumps(verdict, indent=2))
    print(
        f"{verdict['points']} points, {verdict['deaths']} deaths;"
        + (
            f" {len(verdict['problems'])} problems"
            if verdict["problems"]
            else " one QR code, one label, one email per batch"
        )
    )
    sys.exit(1 if verdict["problems"] else 0)


if __name__ == "__main__":
    main()
