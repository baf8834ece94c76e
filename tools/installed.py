"""A database with Onceward freshly installed, for tools that describe it; and writing what they generate."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psycopg
from psycopg.rows import dict_row

from onceward.install import upgrade
from onceward.testing import DatabaseServer

ROOT = Path(__file__).parent.parent
Connection = psycopg.Connection[dict[str, Any]]


@contextlib.contextmanager
def installed() -> Iterator[Connection]:
    """On the embedded PostgreSQL, so that everybody generates the same."""
    with DatabaseServer.start() as server:
        database = server.create("described")
        upgrade(database.dsn)
        with psycopg.connect(database.dsn, row_factory=dict_row) as connection:
            yield connection


def generate(name: str, files: Mapping[Path, str]) -> int:
    """Write the files, or with --check compare them; the exit status of the tool."""
    parser = argparse.ArgumentParser(prog=f"python -m tools.{name}")
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail when a file is not up to date"
    )
    check = parser.parse_args().check
    stale = False
    for path, text in files.items():
        place = path.relative_to(ROOT).as_posix()
        before = path.read_text(encoding="utf-8") if path.exists() else ""
        if before == text:
            continue
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            print(f"wrote {place}")
            continue
        stale = True
        changes = list(
            difflib.unified_diff(
                before.splitlines(), text.splitlines(), place, "as installed", lineterm="", n=1
            )
        )
        print(f"error: {place} is not up to date", *changes[:40], sep="\n", file=sys.stderr)
        if len(changes) > 40:
            print(f"... {len(changes) - 40} more lines", file=sys.stderr)
    if stale:
        print(f'hint: run "python -m tools.{name}" and commit the result', file=sys.stderr)
    return 1 if stale else 0
