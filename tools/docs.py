"""Execute every block of README.md and docs/: what a page shows is what happens.

Each page runs in a process and a temporary directory of its own, with ONCEWARD_DSN naming a new database in which
`onceward db init` has been run. Its blocks run from top to bottom:

python   in one namespace. With title="app.py" after the language, the block is saved under that name first, so that
         a command can import it.
console  lines after "$ " are commands ("> " continues one that ends in a backslash), the lines below are their
         output: "..." stands for anything within a line and, alone on a line, for any lines. Without lines below, the
         output is not compared. Directory and exported variables carry over. A command may fail only if
         "$ echo $?" follows.
sql      over one connection, in autocommit mode.

Other languages are not executed. <!-- not run: reason --> before a block excludes it; the reasons are printed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from onceward.embedded import EmbeddedServer
from onceward.testing.database import _folder
from tools.pages import EXECUTED, Block, PageError, parse

TEMPLATE = "docs_template"
PAGE_SECONDS = 600
AT_ONCE = 2


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.docs", description="Execute the blocks of the docs."
    )
    parser.add_argument("pages", nargs="*", type=Path, help="pages to execute (default: README.md and docs/)")
    pages = parser.parse_args(arguments).pages or all_pages(Path())
    blocks: dict[Path, list[Block]] = {}
    failed = False
    for page in pages:
        try:
            blocks[page] = parse(page, page.read_text(encoding="utf-8"))
        except PageError as error:
            failed = True
            print(f"error: {error}", file=sys.stderr)
    report_excluded([block for found in blocks.values() for block in found])
    runnable = {page: sum(block.runs for block in found) for page, found in blocks.items()}
    runnable = {page: count for page, count in runnable.items() if count}
    if runnable:
        failed = not run_pages(runnable) or failed
    print(f"{sum(runnable.values())} blocks on {len(runnable)} pages executed")
    return 1 if failed else 0


def all_pages(root: Path) -> list[Path]:
    readme = root / "README.md"
    return [*([readme] if readme.exists() else []), *sorted((root / "docs").rglob("*.md"))]


def report_excluded(blocks: Sequence[Block]) -> None:
    for block in blocks:
        if block.language in EXECUTED and block.excluded is not None:
            print(f"{block.where}: not run: {block.excluded}")


def run_pages(pages: dict[Path, int]) -> bool:
    # In memory: forty databases are copied, and nobody keeps them.  With default settings, of which pages tell.
    with tempfile.TemporaryDirectory(prefix="onceward-docs-", dir=_folder()) as directory:
        server = EmbeddedServer.start(Path(directory) / "pg")
        try:
            server.create_database(TEMPLATE)
            command = [str(Path(sys.executable).parent / "onceward"), "db", "init"]
            if subprocess.run(command, check=False, env=environment(server.dsn(TEMPLATE))).returncode != 0:
                print("error: could not install the schema for the docs", file=sys.stderr)
                return False
            # One after the other: a template must not be in use while it is copied.
            dsns = []
            for number, _ in enumerate(pages):
                server.create_database(f"docs_{number}", template=TEMPLATE)
                dsns.append(server.dsn(f"docs_{number}"))
            with ThreadPoolExecutor(AT_ONCE) as executor:
                return all(list(executor.map(run_page, pages, dsns)))
        finally:
            server.stop("immediate")


def run_page(page: Path, dsn: str) -> bool:
    with tempfile.TemporaryDirectory(prefix="onceward-page-") as directory:
        command = [sys.executable, "-m", "tools.pages", str(page), directory]
        try:
            done = subprocess.run(
                command,
                check=False,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=PAGE_SECONDS,
                env=environment(dsn),
            )
        except subprocess.TimeoutExpired as error:
            print(
                f"error: {page}: still running after {PAGE_SECONDS} s\n{error.output or ''}", file=sys.stderr
            )
            return False
    if done.returncode != 0:
        print(done.stdout, file=sys.stderr)
    return done.returncode == 0


def environment(dsn: str) -> dict[str, str]:
    programs = str(Path(sys.executable).parent)
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("PG")},
        "ONCEWARD_DSN": dsn,
        "PATH": os.pathsep.join([programs, os.environ.get("PATH", os.defpath)]),
        # Plain text of a known width, so that output can be compared.
        "COLUMNS": "100",
        "NO_COLOR": "1",
        "TERM": "dumb",
    }


if __name__ == "__main__":
    sys.exit(main())
