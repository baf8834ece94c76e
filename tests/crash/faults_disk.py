"""The disk fills up.  Needs root, to mount a file system that is small enough."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg

from onceward.errors import OncewardError
from tests.crash import clients
from tests.crash.arena import Arena
from tests.crash.server import Server
from tests.crash.verdict import CannotInject, Verdict
from tests.crash.waiting import until

MEGABYTES = 320
LEASE = 6.0
# From the moment when there is room again, also when the server had given up and is started by the harness.
BUSY_WITHIN = 5.0
# So that the disk fills with data and not only with the log of writes.
SETTINGS = {"max_wal_size": "64MB", "min_wal_size": "32MB"}
LOG = "select pg_logical_emit_message(true, 'ballast', repeat('x', 1048576))"
PROBE = """
create table public.probe as select string_agg(md5(random()::text), '') as filler from generate_series(1, 40000);
drop table public.probe;
"""


def disk_full(arena: Arena, *, fills: int, workers: int) -> Verdict:
    """Fill the disk under the server's feet, make room again: what was acknowledged is there, and work goes on."""
    with _small_disk(arena.folder / "disk") as disk:
        server = Server(disk=disk, **SETTINGS)
        try:
            # Its ledgers lie with those of the arena outside: on a disk that has room, and where they are kept.
            with server.arena(arena.seed, folder=arena.folder / "small") as small:
                return _fill(small, server, disk / "ballast", fills=fills, workers=workers)
        finally:
            with contextlib.suppress(OncewardError):
                server.close()


def _fill(arena: Arena, server: Server, ballast: Path, *, fills: int, workers: int) -> Verdict:
    for _ in range(workers):
        arena.spawn(concurrency=20, lease=LEASE, grace=5.0, poll=0.5)
    producers = clients.produce(arena, 100_000_000, backlog=300)
    slowest = 0.0
    crashed = gave_up = 0
    for count in range(fills):
        arena.until_done(arena.done() + 300)
        _write(ballast)
        until(lambda: _is_in_trouble(arena), what="a server without room")
        if count % 2:
            crashed += _fill_log(arena)
        # Sometimes for so long that the leases cannot be kept.
        time.sleep(arena.random.uniform(0, 1.5 * LEASE))
        ballast.unlink()
        freed = time.monotonic()
        # When there is no room to recover either, the server gives up; whoever runs it starts it again.
        gave_up += server.embedded.pid is None
        until(lambda: _starts(server), what="the server back")
        arena.until_more(arena.done(), "work after there was room again")
        slowest = max(slowest, time.monotonic() - freed)
    for producer in producers:
        producer.stop()
    problems = clients.finish(producers)
    arena.until_quiet()
    if slowest > BUSY_WITHIN:
        problems.append(f"work went on {slowest:.1f} s after there was room again")
    return arena.verdict(
        "disk full",
        {"fills": fills, "server_crashed": crashed, "server_gave_up": gave_up},
        facts={"slowest_until_busy_s": round(slowest, 2), **clients.told(producers)},
        problems=problems,
    )


def _write(ballast: Path) -> None:
    """Take all room that is left."""
    block = b"\0" * 65536
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(block)


def _fill_log(arena: Arena) -> bool:
    """Use up the log that was made beforehand: without room for more of it, the server crashes.  Returns whether it did."""
    try:
        conn = psycopg.connect(arena.dsn, autocommit=True)
    except psycopg.Error:
        return True
    with contextlib.closing(conn):
        with contextlib.suppress(psycopg.Error):
            for _ in range(MEGABYTES):
                conn.execute(LOG)
        try:
            conn.execute("select 1")
        except psycopg.Error:
            return True
    return False


def _is_in_trouble(arena: Arena) -> bool:
    """Whether the server refuses to write, or has given up.  Its log does not tell: that is on the same disk."""
    try:
        arena.execute(PROBE)
    except psycopg.Error:
        return True
    return False


def _starts(server: Server) -> bool:
    try:
        server.start()
    except OncewardError:
        return False
    return True


@contextlib.contextmanager
def _small_disk(folder: Path) -> Iterator[Path]:
    if os.geteuid() != 0 or shutil.which("mount") is None:
        raise CannotInject("filling a disk needs root and mount, to make a small one")
    folder.mkdir(mode=0o755)
    options = f"size={MEGABYTES}m,mode=0755"
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], check=False, capture_output=True, text=True
    )
    if mounted.returncode:
        raise CannotInject(f"a small disk could not be mounted: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)
