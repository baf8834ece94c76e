"""Jobs of many steps, and a worker killed every 200 ms: no step is lost, none that is done runs again."""

from __future__ import annotations

import time
from collections import Counter, defaultdict

from onceward import Client
from tests.crash.arena import Arena
from tests.crash.flows import TABLES
from tests.crash.verdict import Verdict
from tests.crash.waiting import until

EVERY = 0.2
LEASE = 2.0
# Flows that need longer hang.
PATIENCE = 1_800.0
CHILDREN = 3
STEPS = "select payload ->> 'token', s.name, s.epoch from onceward.step_private as s join onceward.jobs as j on j.id = s.job_id"


def flows(arena: Arena, *, flows: int, steps: int, workers: int) -> Verdict:
    """Kill until every flow has ended."""
    arena.execute(TABLES)
    tokens = [f"f{number}" for number in range(flows)]
    with Client(arena.dsn) as client:
        for task in ("flow", "flow_sync"):
            mine = tokens[task == "flow_sync" :: 2]
            payloads = [{"token": token, "steps": steps, "children": CHILDREN} for token in mine]
            client.enqueue_many(task, payloads, max_attempts=1000)
    lives = [arena.spawn(lease=LEASE, poll=0.2, concurrency=10) for _ in range(workers)]
    kills = 0
    while arena.live() > 0 and time.monotonic() - arena.began < PATIENCE:
        time.sleep(EVERY)
        life = arena.random.choice([life for life in lives if life.alive])
        arena.signal(life, "kill")
        kills += 1
        lives[lives.index(life)] = arena.spawn(lease=LEASE, poll=0.2, concurrency=10)
    until(lambda: arena.live() == 0, what="every flow has ended")
    problems = arena.end_workers()
    return _judge(arena, tokens, steps, kills, problems)


def _judge(arena: Arena, tokens: list[str], steps: int, kills: int, problems: list[str]) -> Verdict:
    rows = Counter(arena.query("select token, step from public.flow_effect"))
    done_in: dict[tuple[str, str], int] = {(t, s): e for t, s, e in arena.query(STEPS)}
    ran: dict[tuple[str, str], list[int]] = defaultdict(list)
    for kind, token, step, epoch in arena.notes():
        assert kind == "step"
        ran[token, step].append(int(epoch))
    expected_rows = {(token, f"s{n}") for token in tokens for n in range(0, steps, 2)}
    expected_rows |= {(f"{token}-{n}", "leaf") for token in tokens for n in range(CHILDREN)}
    expected_runs = {(token, f"s{n}") for token in tokens for n in range(1, steps, 2) if n % 5 != 0}
    ledger = {
        "lost": len(expected_rows - set(rows)) + len(expected_runs - set(ran)),
        "phantom": len(set(rows) - expected_rows) + len(set(ran) - expected_runs),
        "dup_tx": sum(count - 1 for count in rows.values()),
        # In a later attempt than the one that finished it.
        "rerun": sum(epoch > done_in[key] for key, epochs in ran.items() for epoch in epochs),
        "stuck": arena.value("select count(*)::int from onceward.jobs where state <> 'done'"),
        "wrong": arena.value(
            "select count(*)::int from onceward.jobs where task like 'flow%%' and result is distinct from %s::jsonb",
            str(CHILDREN),
        ),
        "deadlocks": arena.deadlocks(),
    }
    return Verdict(
        "flows",
        arena.seed,
        {"flows": len(tokens), "steps": steps, "kills": kills},
        ledger,
        facts={
            "step_effects": sum(rows.values()) + len(ran),
            # Killed between the effect and its checkpoint: what `at least once` means.
            "repeated": sum(len(epochs) - 1 for epochs in ran.values()),
        },
        problems=problems,
        seconds=round(time.monotonic() - arena.began, 1),
    )
