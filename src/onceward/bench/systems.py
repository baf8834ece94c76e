"""What is measured beside what."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from onceward.errors import OncewardError

ONCEWARD, RAW, PGQUEUER = "onceward", "raw", "pgqueuer"
PEER_PACKAGES = ("pgqueuer", "asyncpg", "uvloop")
PIP_SECONDS = 300

# How systems and their variants are called in tables and pictures.
LABELS = {
    "onceward": "Onceward",
    "onceward_sync": "Onceward, sync client",
    "onceward_keys": "Onceward, with keys",
    "raw": "raw loop",
    "raw_psycopg": "raw loop, psycopg",
    "raw_200": "raw loop, batch 200",
    "raw_1000": "raw loop, batch 1,000",
    "raw_unnest": "raw INSERT … unnest",
    "raw_copy": "raw COPY",
    "pgqueuer": "PgQueuer",
}


@dataclass(frozen=True, slots=True)
class System:
    """One way to produce and work jobs."""

    # Of LABELS.
    name: str
    # Module of the programs, and the interpreter that has what it needs.
    program: str
    python: str
    # True while a job is unfinished.
    unfinished: str
    produce: Mapping[str, Any] = field(default_factory=dict)
    work: Mapping[str, Any] = field(default_factory=dict)
    # onceward, raw or pgqueuer: variants share its template.
    family: str = ""


@dataclass(frozen=True, slots=True)
class Systems:
    """Those that can be measured here."""

    raw_python: str
    peer_python: str | None

    @property
    def has_peer(self) -> bool:
        return self.peer_python is not None

    def find(self, name: str) -> System:
        if name.startswith(ONCEWARD):
            return self._onceward(name)
        if name.startswith(RAW):
            return self._raw(name)
        assert self.peer_python is not None
        return System(
            name=name,
            program="pgqueuer_peer",
            python=self.peer_python,
            unfinished="select exists (select from pgqueuer)",
            family=PGQUEUER,
        )

    def _onceward(self, name: str) -> System:
        produce: dict[str, Any] = {}
        if name == "onceward_sync":
            produce["client"] = "sync"
        return System(
            name=name,
            program="engine",
            python=sys.executable,
            unfinished="select exists (select from onceward.job_private)",
            produce=produce,
            family=ONCEWARD,
        )

    def _raw(self, name: str) -> System:
        _, _, variant = name.partition("_")
        produce = {"psycopg": {"driver": "psycopg"}, "copy": {"bulk": "copy"}}.get(variant, {})
        return System(
            name=name,
            program="raw",
            python=sys.executable if variant == "psycopg" else self.raw_python,
            unfinished="select exists (select from work)",
            produce=produce,
            work={"batch": int(variant) if variant.isdigit() else 200},
            family=RAW,
        )


def find_systems(peer: Path | None) -> Systems:
    """`peer`: the interpreter of the peers' environment, or None when there is none."""
    # The raw limit deserves the fastest driver at hand.
    if importlib.util.find_spec("asyncpg") is None and peer is not None:
        return Systems(str(peer), str(peer))
    return Systems(sys.executable, None if peer is None else str(peer))


def peer_environment(folder: Path) -> Path:
    """The interpreter of an environment that holds the peer; made at the first run, kept for the next."""
    python = folder / "bin" / "python"
    ready = folder / "ready"
    if ready.exists() and python.exists():
        return python
    try:
        subprocess.run(
            [sys.executable, "-m", "venv", "--clear", str(folder)],
            check=True,
            capture_output=True,
            timeout=PIP_SECONDS,
        )
        subprocess.run(
            [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PEER_PACKAGES],
            check=True,
            capture_output=True,
            timeout=PIP_SECONDS,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise OncewardError(
            "could not install PgQueuer into an environment of its own",
            # Not pip's own words: they may name servers and files of this machine.
            detail=f"{type(error).__name__}.",
            hint=f"Try it by hand: python -m venv env; env/bin/pip install {' '.join(PEER_PACKAGES)}",
        ) from error
    ready.touch()
    return python


def versions(python: str, packages: tuple[str, ...]) -> dict[str, str | None]:
    program = (
        "import json, sys\nfrom importlib.metadata import PackageNotFoundError, version\n"
        "def find(name):\n try: return version(name)\n except PackageNotFoundError: return None\n"
        "print(json.dumps({name: find(name) for name in sys.argv[1:]}))"
    )
    shown = subprocess.run([python, "-c", program, *packages], check=True, capture_output=True, timeout=60)
    found: dict[str, str | None] = json.loads(shown.stdout)
    return found
