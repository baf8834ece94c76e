"""Poison in arguments, results and errors: every job ends, and nothing is changed without a word."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import psycopg

from onceward import Client
from onceward.errors import InvalidPayload
from tests.crash import poison
from tests.crash.arena import Arena, stream
from tests.crash.verdict import Verdict

BATCH = 200
# Async, in a thread and in a process, by how often.
TASKS = {"poisoned": 24, "poisoned_sync": 24, "poisoned_process": 2}
# Of the text of an error, the worker sends so much and the database keeps so much.
SENT, KEPT = 4000, 2000
ENQUEUE = "select job_id from onceward.enqueue(%s, %s::jsonb, p_max_attempts => 1)"
ENDED = """
select (payload ->> 'case')::int, state, payload::text, result::text, last_error ->> 'category', last_error ->> 'message'
  from onceward.jobs
"""


class Poisoning:
    """Sends the cases and judges what became of them."""

    def __init__(self, arena: Arena) -> None:
        self.arena = arena
        self.sent: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.found = {
            "lost": 0,
            "phantom": 0,
            "stuck": 0,
            "changed": 0,
            "wrongly_refused": 0,
            "wrongly_taken": 0,
        }
        self.problems: list[str] = []
        # Cases that were acknowledged.
        self.taken: set[int] = set()

    def add(self, kind: str, number: int, what: str) -> None:
        self.found[kind] += 1
        if len(self.problems) < 10:
            self.problems.append(f"{kind}: case {number} ({poison.where(number)}): {what}"[:500])

    # ------------------------------------------------------------ sending

    def send(self, cases: int) -> None:
        with Client(self.arena.dsn) as client, psycopg.connect(self.arena.dsn, autocommit=True) as conn:
            batches: dict[str, list[dict[str, Any]]] = {task: [] for task in TASKS}
            for number in range(cases):
                self.sent[poison.where(number)] += 1
                payload, task = self._payload(number), self._task(number)
                match poison.where(number):
                    case "argument":
                        self._send_argument(client, number, task, payload)
                    case "sql":
                        self._send_text(conn, number, task, payload)
                    case _:
                        batches[task].append(payload)
                for name, waiting in batches.items():
                    if len(waiting) == BATCH or number == cases - 1:
                        client.enqueue_many(name, waiting, max_attempts=1)
                        self.taken.update(payload["case"] for payload in waiting)
                        waiting.clear()

    def _payload(self, number: int) -> dict[str, Any]:
        return {"case": number, "seed": self.arena.seed}

    def _task(self, number: int) -> str:
        return poison.draw(self.arena.seed, -number).choices(list(TASKS), list(TASKS.values()))[0]

    def _send_argument(self, client: Client, number: int, task: str, payload: dict[str, Any]) -> None:
        item = poison.value(poison.draw(self.arena.seed, number), objects=True)
        # One level down in the payload.
        fits = poison.is_json(item, depth=1)
        try:
            client.enqueue(task, {**payload, "value": item}, max_attempts=1)
        except InvalidPayload as error:
            self.refused["argument"] += 1
            if fits:
                self.add("wrongly_refused", number, repr(error))
        else:
            self.taken.add(number)
            if not fits:
                self.add("wrongly_taken", number, _shown(item))

    def _send_text(
        self, conn: psycopg.Connection[Any], number: int, task: str, payload: dict[str, Any]
    ) -> None:
        item = poison.value(poison.draw(self.arena.seed, number))
        text = f'{{"case": {number}, "seed": {payload["seed"]}, "value": {poison.as_sql(item)}}}'
        try:
            conn.execute(ENQUEUE, [task, text])
        except psycopg.DatabaseError as error:
            # By the types, by the bound on levels, by the server's stack: a refusal, unless the connection is gone.
            if conn.closed:
                raise
            self._refused_text(number, item, error)
        else:
            self.taken.add(number)

    def _refused_text(self, number: int, item: Any, error: psycopg.Error) -> None:
        self.refused["sql"] += 1
        if poison.is_json(item, depth=1):
            self.add("wrongly_refused", number, repr(error))

    # ------------------------------------------------------------ judging

    def judge(self) -> Counter[str]:
        states: Counter[str] = Counter()
        seen: set[int] = set()
        for number, state, payload, result, category, message in self._ended():
            seen.add(number)
            states[f"{poison.where(number)}: {state}"] += 1
            if state in {"ready", "running", "scheduled", "blocked"}:
                self.add("stuck", number, state)
                continue
            match poison.where(number):
                case "argument" | "sql":
                    self._judge_echo(number, state, payload, result, category)
                case "result":
                    self._judge_result(number, state, result, category)
                case _:
                    self._judge_error(number, state, message)
        for number in self.taken - seen:
            self.add("lost", number, "acknowledged and not there")
        for number in seen - self.taken:
            self.add("phantom", number, "refused and there")
        return states

    def _ended(self) -> Iterator[tuple[Any, ...]]:
        with psycopg.connect(self.arena.dsn) as conn:
            yield from stream(conn, ENDED)

    def _judge_echo(
        self, number: int, state: str, payload: str, result: str | None, category: str | None
    ) -> None:
        """The handler returns what it was given: the result must be what was sent, and so must the stored payload."""
        item = poison.value(poison.draw(self.arena.seed, number), objects=poison.where(number) == "argument")
        if state != "done":
            # Only SQL lets such a thing in, and Python cannot read it, or not send it back: a person decides.
            if poison.is_json(item, depth=1) or category not in {"payload", "result"}:
                self.add("changed", number, f"ended as {state}, {category}")
            return
        if poison.where(number) == "sql":
            # As JSON reads it: two escaped surrogates may be one character.
            item = json.loads(poison.as_sql(item))
        if not poison.same(item, json.loads(payload)["value"]):
            self.add("changed", number, f"stored payload {payload[:100]}, sent {_shown(item)}")
        if result is None or not poison.same(item, json.loads(result)["echo"]):
            self.add("changed", number, f"came back as {result!s:.100}, sent {_shown(item)}")

    def _judge_result(self, number: int, state: str, result: str | None, category: str | None) -> None:
        item = poison.value(poison.draw(self.arena.seed, number), objects=True)
        if poison.is_json(item):
            # A handler that returns None has no result.
            kept = None if result is None else json.loads(result)
            if state != "done" or not poison.same(item, kept):
                self.add("changed", number, f"{state}, {category}: {result!s:.100}, returned {_shown(item)}")
        elif item in poison.ENDS:
            if state not in {"dead_letter", "cancelled"}:
                self.add("wrongly_taken", number, f"{state}: {_shown(item)}")
        elif (state, category) != ("dead_letter", "result"):
            self.add(
                "wrongly_taken", number, f"{state}, {category}: {result!s:.100}, returned {_shown(item)}"
            )

    def _judge_error(self, number: int, state: str, message: str | None) -> None:
        raised = poison.error(poison.draw(self.arena.seed, number))
        if state != "dead_letter":
            self.add("changed", number, f"{raised!r:.100} made the job {state}")
        elif (
            isinstance(raised, poison.Poisoned) and len(raised.args) == 1 and isinstance(raised.args[0], str)
        ):
            text = raised.args[0] or "Poisoned"
            if message != poison.written_out(text[:SENT], KEPT):
                self.add("changed", number, f"kept as {message!r:.200}, raised {text!r:.200}")


def _shown(item: Any) -> str:
    try:
        return f"{item!r:.100}"
    except (RecursionError, ValueError):
        return "something that Python cannot print"


def poisoned(arena: Arena, *, cases: int, workers: int) -> Verdict:
    """Everything that JSON, jsonb and Unicode disagree about, in arguments (by client and by SQL), results and errors."""
    for _ in range(workers):
        arena.spawn(concurrency=20, lease=10.0, poll=0.2)
    poisoning = Poisoning(arena)
    poisoning.send(cases)
    arena.until_quiet(within=60)
    identities = arena.value("select count(*) from onceward.workers")
    if identities != workers:
        poisoning.problems.append(f"{workers} workers took {identities} identities")
    return arena.verdict(
        "poison",
        {"cases": cases, **poisoning.sent},
        facts={"refused": dict(poisoning.refused), "ended": dict(sorted(poisoning.judge().items()))},
        problems=poisoning.problems,
        ledger=poisoning.found,
    )
