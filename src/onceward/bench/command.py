"""`onceward bench`: progress on standard error, results on standard output."""

from __future__ import annotations

import contextlib
import json
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from onceward.bench import runner, table
from onceward.bench.measures import Bench
from onceward.bench.place import Place
from onceward.bench.runner import Step
from onceward.bench.sizes import FULL, QUICK
from onceward.bench.systems import LABELS, find_systems, peer_environment
from onceward.embedded import default_data_dir
from onceward.errors import InvalidArgument, OncewardError

INTERRUPTED = 130
MOST_REPEATS = 100


def run(
    *,
    as_json: bool,
    quick: bool,
    only: list[str] | None,
    repeats: int | None,
    output: Path | None,
    peers: bool,
) -> int:
    groups = runner.choose(only)
    console = Console(stderr=True)
    skipped: list[dict[str, str]] = []
    command = _command(as_json=as_json, quick=quick, only=only, repeats=repeats, output=output, peers=peers)
    sizes = QUICK if quick else FULL
    if repeats is not None:
        if not 1 <= repeats <= MOST_REPEATS:
            raise InvalidArgument(f"--repeats must be between 1 and {MOST_REPEATS}, got {repeats}")
        sizes = replace(sizes, repeats=repeats)
    began = time.monotonic()
    try:
        with _interruptible(), Place.opened() as place:
            peer = _peer(console, skipped, wanted=peers and any("pgqueuer" in g.systems for g in groups))
            bench = Bench(place, find_systems(peer), sizes)
            steps = runner.plan(groups, bench.systems, sizes.repeats)
            with _progress(console) as progress:
                bar = progress.add_task("", total=len(steps))

                def tell(step: Step, outcome: str) -> None:
                    what = f"{step.group.name} · {LABELS[step.system]}"
                    if outcome:
                        progress.console.print(
                            f"{what} · {step.repeat + 1}/{sizes.repeats}: {outcome}",
                            markup=False,
                            highlight=False,
                        )
                        progress.advance(bar)
                    else:
                        progress.update(bar, description=what)

                results = runner.measure(bench, steps, tell)
            document = runner.document(
                bench, results, command=command, seconds=time.monotonic() - began, skipped=skipped
            )
    except KeyboardInterrupt:
        console.print("interrupted; nothing was left behind", markup=False)
        return INTERRUPTED
    _write(document, as_json=as_json, output=output)
    return 1 if results.errors else 0


def _peer(console: Console, skipped: list[dict[str, str]], *, wanted: bool) -> Path | None:
    if not wanted:
        return None
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    folder = default_data_dir().with_name(f"bench-peers-{version}")
    try:
        with console.status("preparing the environment of the peers"):
            return peer_environment(folder)
    except OncewardError as error:
        skipped.append({"system": "pgqueuer", "why": error.message})
        console.print(f"PgQueuer is skipped: {error}", markup=False)
        return None


def _write(document: dict[str, Any], *, as_json: bool, output: Path | None) -> None:
    text = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
    if output is not None:
        output.write_text(text, encoding="utf-8")
    if as_json:
        sys.stdout.write(text)
    else:
        table.show(document, Console())


def _command(
    *,
    as_json: bool,
    quick: bool,
    only: Sequence[str] | None,
    repeats: int | None,
    output: Path | None,
    peers: bool,
) -> str:
    words = ["onceward", "bench"]
    words += ["--json"] if as_json else []
    words += ["--quick"] if quick else []
    words += ["--only", ",".join(only)] if only else []
    words += ["--repeats", str(repeats)] if repeats is not None else []
    words += [] if peers else ["--no-peers"]
    # The name alone: results are published, and folders are nobody's business.
    words += ["--output", output.name] if output else []
    return " ".join(words)


def _progress(console: Console) -> Progress:
    return Progress(
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}", markup=False),
        console=console,
    )


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """SIGTERM ends as Ctrl-C does: with everything cleaned up."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
