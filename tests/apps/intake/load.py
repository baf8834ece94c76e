"""Many uploads at once, some clients cut in the middle, workers killed: python -m tests.apps.intake.load [uploads].

Every file that was acknowledged is processed once; there is no object without a row, and no row that is somebody else's.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

import psycopg

from onceward.testing.database import DatabaseServer
from onceward_apps.intake import store
from tests.apps.intake.stage import UPLOAD, Intake, png

PROFILES = 20
# Of the clients.
CUT = 0.05
# Until everything has to be processed, in seconds.
PATIENCE = 1800


@dataclass
class Outcome:
    acknowledged: dict[str, str] = field(default_factory=dict)
    cut: int = 0
    refused: list[str] = field(default_factory=list)
    took: list[float] = field(default_factory=list)
    seconds: float = 0.0
    kills: int = 0

    def report(self) -> str:
        ranked = sorted(self.took)
        p95 = ranked[int(len(ranked) * 0.95)] if ranked else 0.0
        return (
            f"{len(self.acknowledged)} acknowledged, {self.cut} cut, {len(self.refused)} refused, {self.kills} workers killed; "
            f"acknowledged after {statistics.median(ranked):.2f} s (median), {p95:.2f} s (p95)"
            + (f"; all processed once after {self.seconds:.0f} s" if self.seconds else "")
        )


async def upload(port: int, head: str, content: bytes, *, cut: bool) -> tuple[int, str]:
    """One request on a connection of its own; `cut` closes it in the middle of the file."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(head.encode())
        half = len(content) // 2
        writer.write(content[:half])
        await writer.drain()
        if cut:
            writer.transport.abort()
            return 0, ""
        writer.write(content[half:])
        await writer.drain()
        answer = (await reader.read(65536)).decode()
        return int(answer.split(" ")[1]), answer.partition("\r\n\r\n")[2]
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def everybody(intake: Intake, port: int, count: int, outcome: Outcome) -> None:
    people = [(owner := _uuid(n), intake.add_profile(owner, f"Person {n}")) for n in range(PROFILES)]
    rng = random.Random(7)

    async def one(number: int) -> None:
        owner, profile = people[number % PROFILES]
        content = png(f"Glucose {number} mmol/L", size=rng.choice([2_000, 60_000, 300_000]))
        head = (
            f"POST {UPLOAD}?profile_id={profile}&filename=scan-{number}.png HTTP/1.1\r\nhost: x\r\nconnection: close\r\n"
            f"authorization: Bearer {intake.token(owner)}\r\nidempotency-key: {number}\r\ncontent-length: {len(content)}\r\n\r\n"
        )
        began = time.monotonic()
        status, body = await upload(port, head, content, cut=number % round(1 / CUT) == 3)
        if status == 0:
            outcome.cut += 1
        elif status == 201:
            outcome.took.append(time.monotonic() - began)
            outcome.acknowledged[str(number)] = str(profile)
        else:
            outcome.refused.append(f"{status} {body[:200]}")

    await asyncio.gather(*(one(number) for number in range(count)))


def _uuid(number: int) -> UUID:
    return UUID(int=number + 1)


class Processes:
    """A server of the functions, and workers that are killed now and then."""

    def __init__(self, intake: Intake) -> None:
        self._environment = os.environ | {
            "ONCEWARD_DSN": intake.dsn, "INTAKE_LOAD_FOLDER": str(intake.folder), "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        }  # fmt: skip
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._server = self._start(
            "uvicorn", "--factory", "tests.apps.intake.mortal:functions", "--port", str(self.port), "--log-level", "error",
            "--backlog", "4096",
        )  # fmt: skip
        self._workers: list[subprocess.Popen[bytes]] = []

    def _start(self, *arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", *arguments],
            env=self._environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def start_worker(self) -> None:
        self._workers.append(
            self._start("onceward.cli", "worker", "tests.apps.intake.mortal:app", "--lease", "5s")
        )

    def kill_worker(self) -> None:
        doomed = self._workers.pop(0)
        doomed.kill()
        doomed.wait()
        self.start_worker()

    def wait(self) -> None:
        until = time.monotonic() + 60
        while time.monotonic() < until:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            time.sleep(0.05)
        raise RuntimeError("the server did not start")

    def close(self) -> None:
        for process in (*self._workers, self._server):
            process.kill()
            process.wait()


def run(dsn: str, folder: Path, count: int, *, workers: int = 2, kills: int = 5) -> Outcome:
    """Raises AssertionError when something was lost, done twice, or left behind."""
    outcome = Outcome()
    intake = Intake(dsn, folder)
    intake.conn.execute("select onceward.set_limit('intake:fast_queue', p_slots => 20)")
    processes = Processes(intake)
    try:
        processes.wait()
        for _ in range(workers):
            processes.start_worker()
        began = time.monotonic()
        asyncio.run(everybody(intake, processes.port, count, outcome))
        print(f"uploaded: {outcome.report()}", flush=True)
        _work(intake, processes, outcome, kills)
        outcome.seconds = time.monotonic() - began
    finally:
        processes.close()
    _check(intake, outcome)
    intake.close()
    return outcome


def _work(intake: Intake, processes: Processes, outcome: Outcome, kills: int) -> None:
    """Until every file has ended; workers are killed while there is work."""
    until = time.monotonic() + PATIENCE
    left = "select count(*) from intake.shell_files where status not in ('completed', 'rejected', 'failed')"
    total = max(1, len(outcome.acknowledged))
    while (open_ := intake.one(left)) and time.monotonic() < until:
        done = 1 - open_ / total
        if outcome.kills < kills and done > outcome.kills / (kills + 1):
            processes.kill_worker()
            outcome.kills += 1
        time.sleep(0.2)
    # The ends of the last jobs follow their files at once.
    while (
        intake.one("select count(*) from intake.job_queue where status in ('pending', 'processing')")
        and time.monotonic() < until
    ):
        time.sleep(0.2)


def _check(intake: Intake, outcome: Outcome) -> None:
    assert outcome.refused == [], outcome.refused[:3]
    files = {key: (str(profile), status, str(id_)) for key, profile, status, id_ in intake.all(
        "select idempotency_key, patient_id, status, id from intake.shell_files")}  # fmt: skip
    assert {key: profile for key, (profile, _, _) in files.items()} == outcome.acknowledged
    assert {status for _, status, _ in files.values()} == {"completed"}
    # Once: one entry, one set of facts, one account of each pass.
    assert intake.one("select count(*) from intake.timeline_entries") == len(files)
    assert intake.one("select count(*) from intake.clinical_facts") == len(files)
    assert intake.one("select count(*) from intake.api_calls") == 2 * len(files)
    assert intake.one("select sum(files_uploaded) from intake.user_usage_tracking") == len(files)
    assert intake.one("select sum(ai_tokens_used) from intake.user_usage_tracking") == intake.one(
        "select sum(actual_tokens) from intake.api_calls"
    )
    # No foreign row: everything of a file is its profile's.
    for table in ("file_pages", "ocr_words", "clinical_facts", "timeline_entries"):
        assert not intake.one(
            f"select count(*) from intake.{table} as t join intake.shell_files as f on f.id = t.shell_file_id "
            "where t.patient_id <> f.patient_id"
        ), table
    # No orphan: each object belongs to a row, and lies in its profile's folder.
    for path in intake.objects():
        profile, name = path.split("/", 1)
        assert (profile, name[:36]) in {(profile, id_) for profile, _, id_ in files.values()}, path


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    with (
        DatabaseServer.from_environment() as server,
        server.cloned() as database,
        tempfile.TemporaryDirectory() as folder,
    ):
        store.install(database.dsn)
        with psycopg.connect(database.dsn) as connection:
            version = connection.info.server_version // 10000
        outcome = run(database.dsn, Path(folder), count)
        print(f"{count} uploads at once on PostgreSQL {version}: {outcome.report()}")


if __name__ == "__main__":
    main()
