"""Every crash point of jobs that have steps, wait, and have children, while schedules tick every second.

A row that a transaction has written is there once.  An outside effect may be repeated by a later attempt, when nobody
knows whether it was heard: then under the same key, and never once its step is done.  Every slot fires once.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

from tests.crash.arena import Arena
from tests.crash.chains import CHILDREN, HEARD, ROWS, TABLES, children_of, event_of
from tests.crash.faults_points import Cast, Exhaustion, exhaust
from tests.crash.verdict import Verdict
from tests.crash.waiting import until

CHAINS = ("chain", "chain_sync")
SCHEDULES = 3
STEP_LEASE = 4.0
DONE_IN = """
select j.payload ->> 'token', s.name, s.epoch
  from onceward.step_private as s join onceward.jobs as j on j.id = s.job_id where s.state = 'done'
"""
# By schedule: slots that were fired, how many there are from the first to the last, jobs that are done, their rows.
TICKS = """
select t.schedule, count(*)::int, (extract(epoch from max(t.fire_at) - min(t.fire_at)) + 1)::int,
       (count(distinct t.job_id) filter (where j.state = 'done'))::int,
       (select count(*)::int from public.tick_effect as e
          join onceward.ticks as own on own.job_id = e.job_id and own.schedule = t.schedule)
  from onceward.ticks as t left join onceward.jobs as j on j.id = t.job_id
 where t.outcome = 'fired'
 group by t.schedule
"""


def step_points(arena: Arena, *, points: int, at_once: int) -> Verdict:
    """The first `points` of all crash points of jobs with steps; all of them, if there are not so many."""
    arena.execute(TABLES)
    arena.apart.append("ticked")
    for number in range(SCHEDULES):
        arena.execute(
            "select onceward.add_schedule(%s, 'ticked', '1 second', p_max_attempts => 100, p_missed => 'all', "
            "p_catch_up => 100000, p_overlap => 'allow')",
            f"second-{number}",
        )
    cast = Cast(_jobs, _offspring, ("default",), STEP_LEASE)
    found = exhaust(arena, cast, points=points, at_once=at_once)
    # Whoever ticks holds a lock for as long: what was due before the pause is fired before it, or skipped.
    arena.execute("select onceward.pause_schedule(name) from onceward.schedules")
    arena.spawn(lanes={"default": None}, lease=STEP_LEASE, poll=0.2)
    until(
        lambda: arena.value("select count(*) from onceward.jobs where state <> 'done'") == 0,
        what="what the schedules have enqueued is done",
    )
    ledger, facts = _judge(arena, found)
    verdict = arena.verdict(
        "every crash point of steps",
        found.injected,
        facts={**found.facts, **facts},
        problems=[] if found.deaths else ["nobody died"],
    )
    for kind, count in ledger.items():
        verdict.ledger[kind] = verdict.ledger.get(kind, 0) + count
    return verdict


def _jobs(lane: str) -> dict[str, tuple[str, dict[str, Any]]]:
    jobs: dict[str, tuple[str, dict[str, Any]]] = {}
    for task in CHAINS:
        token = f"{lane}-{task}"
        jobs[token] = (task, {"token": token})
        # One event is there before it is wanted, the other one is waited for.
        starter = {"token": f"{token}-starter", "event": event_of(token), "late": task == "chain"}
        jobs[f"{token}-starter"] = ("starter", starter)
    return jobs


def _offspring(token: str) -> list[str]:
    return children_of(token) if token.endswith(CHAINS) else []


def _judge(arena: Arena, found: Exhaustion) -> tuple[dict[str, int], dict[str, Any]]:
    lanes = [f"point-{number}" for number in range(len(found.tried) + 1)]
    tokens = [token for lane in lanes for token in _jobs(lane)]
    chains = [token for token in tokens if token.endswith(CHAINS)]
    writers = tokens + [name for token in chains for name in children_of(token)]

    rows = Counter(arena.query("select token, step from public.chain_effect"))
    expected_rows = {(token, step) for token in writers for step in ROWS}
    heard: dict[tuple[str, str], list[tuple[str, int]]] = defaultdict(list)
    for token, step, key, epoch in found.heard:
        heard[token, step].append((key, epoch))
    expected_heard = {(token, step) for token in chains for step in HEARD}
    done_in: dict[tuple[str, str], int] = {(t, s): e for t, s, e in arena.query(DONE_IN)}
    ticks = arena.query(TICKS)
    wrong = arena.value(
        "select count(*)::int from onceward.jobs where task = any (%s) and result is distinct from %s::jsonb",
        list(CHAINS),
        str(CHILDREN),
    )
    ledger = {
        "lost": len(expected_rows - rows.keys())
        + len(expected_heard - heard.keys())
        + sum(slots - fired for _, fired, slots, _, _ in ticks)
        + sum(fired - done for _, fired, _, done, _ in ticks)
        + (len(ticks) != SCHEDULES),
        "phantom": len(rows.keys() - expected_rows) + len(heard.keys() - expected_heard),
        "dup_tx": sum(count - 1 for count in rows.values())
        + sum(max(effects - done, 0) for *_, done, effects in ticks),
        # A key that was not the same in each attempt, or an effect of a step that was done before.
        "dup_ext": sum(len({key for key, _ in each}) - 1 for each in heard.values())
        + sum(epoch > done_in[where] for where, each in heard.items() for _, epoch in each),
        "wrong": wrong,
    }
    facts = {
        "step_effects": rows.total() + len(heard),
        # Under the same key, because nobody knew whether it had been heard.
        "repeated": sum(len(each) - 1 for each in heard.values()),
        "slots_fired": sum(fired for _, fired, *_ in ticks),
    }
    return ledger, facts
