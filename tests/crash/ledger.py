"""What clients, handlers and the harness saw, in files outside PostgreSQL.

Every writer has a file of its own.  A line is one `os.write` to a descriptor opened with O_APPEND, so a process that is
killed leaves whole lines, and whatever it had written stays written.

client     invoke OP DUE TOKEN...        before the call; DUE is the wall clock in ns before which nothing may start, or 0
           ok OP JOB:CREATED...          the answer, one per token, CREATED is 1 or 0
           fail OP WHY                   certainly nothing happened (rolled back, refused)
           unknown OP WHY                the answer was lost
handler    begin JOB EPOCH LIFE MONO WALL TOKEN
           end JOB EPOCH LIFE MONO WALL HOW         HOW: ok, failed, snoozed, cancelled
           tx JOB EPOCH LIFE MONO WALL HOW          HOW: try (before it), then ok, refused or unknown
harness    kill|stop|cont|term|exit LIFE MONO       what was done to a process, and when it was gone

LIFE numbers processes (their ids are used again).  MONO is CLOCK_MONOTONIC in ns, the same for all processes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path


class Ledger:
    """One append-only file."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(self, *fields: object) -> None:
        line = " ".join(map(str, fields)) + "\n"
        written = os.write(self._descriptor, line.encode())
        assert written == len(line.encode()), "short write to a ledger"

    def close(self) -> None:
        os.close(self._descriptor)


class ClientLedger:
    """The file of one client: every call is announced before it is made."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        self._file = Ledger(folder / f"client-{name}.log")
        self._count = 0

    def invoke(self, tokens: Iterable[str], *, due_ns: int = 0) -> str:
        self._count += 1
        op = f"{self.name}.{self._count}"
        self._file.write("invoke", op, due_ns, *tokens)
        return op

    def ok(self, op: str, refs: Iterable[tuple[object, bool]]) -> None:
        self._file.write("ok", op, *(f"{job}:{int(created)}" for job, created in refs))

    def fail(self, op: str, why: object) -> None:
        self._file.write("fail", op, _word(why))

    def unknown(self, op: str, why: object) -> None:
        self._file.write("unknown", op, _word(why))

    def close(self) -> None:
        self._file.close()


@dataclass(slots=True)
class Op:
    """One call of a client."""

    tokens: list[str]
    due_ns: int = 0
    # open (the client never came back), ok, fail or unknown
    result: str = "open"
    refs: list[tuple[str, bool]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Mark:
    """One line of a handler; `word` is the token of a begin, else how it went."""

    job: str
    epoch: int
    life: int
    mono: int
    wall: int
    word: str


@dataclass(frozen=True, slots=True)
class JobRow:
    """One row of the view `jobs`."""

    state: str
    epoch: int
    attempt: int
    token: str
    mode: str = "plain"
    # Its concurrency key and the limit of that.
    place: str | None = None
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """One row of the view `attempts`; times in microseconds of the wall clock."""

    job: str
    epoch: int
    attempt: int
    started: int
    ended: int | None
    outcome: str
    retry_at: int | None = None


@dataclass(slots=True)
class History:
    """Everything that is known about a run."""

    ops: dict[str, Op] = field(default_factory=dict)
    begins: list[Mark] = field(default_factory=list)
    ends: list[Mark] = field(default_factory=list)
    txs: list[Mark] = field(default_factory=list)
    # life → (what, when), in order
    processes: dict[int, list[tuple[str, int]]] = field(default_factory=dict)
    jobs: dict[str, JobRow] = field(default_factory=dict)
    attempts: list[AttemptRow] = field(default_factory=list)
    # token, job and epoch of each transactional effect that was committed
    effects: list[tuple[str, str, int]] = field(default_factory=list)

    def read(self, folder: Path) -> History:
        """Add every ledger of a folder."""
        for path in sorted(folder.glob("*.log")):
            for words in _lines(path):
                self._add(words)
        return self

    def _add(self, words: list[str]) -> None:
        match words:
            case ["invoke", op, due, *tokens]:
                self.ops[op] = Op(tokens, int(due))
            case ["ok", op, *refs]:
                self.ops[op].result = "ok"
                self.ops[op].refs = [(ref[:-2], ref[-1] == "1") for ref in refs]
            case ["fail" | "unknown" as result, op, *_]:
                self.ops[op].result = result
            case ["begin" | "end" | "tx" as kind, job, epoch, life, mono, wall, word]:
                mark = Mark(job, int(epoch), int(life), int(mono), int(wall), word)
                {"begin": self.begins, "end": self.ends, "tx": self.txs}[kind].append(mark)
            case ["kill" | "stop" | "cont" | "term" | "exit" as what, life, mono]:
                self.processes.setdefault(int(life), []).append((what, int(mono)))
            case _:
                raise ValueError(f"not a line of a ledger: {' '.join(words)!r}")


def now() -> int:
    """CLOCK_MONOTONIC: one clock for every process of the machine, and never set."""
    return time.monotonic_ns()


def _lines(path: Path) -> Iterator[list[str]]:
    with path.open() as file:
        for line in file:
            if line.endswith("\n"):
                yield line.split()


def _word(why: object) -> str:
    return "_".join(str(why).split())[:200] or "-"
