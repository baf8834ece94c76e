"""What steps and waiting cost, in statements, each of which is a round trip.  Counted by the proxy, in a worker process."""

from __future__ import annotations

from collections import Counter

import pytest

from onceward import Client
from tests.crash.proxy import Proxy
from tests.crash.waiting import until

pytestmark = [pytest.mark.crash, pytest.mark.slow]

# What a worker does whatever its jobs are.
UPKEEP = {
    "exchange", "promote", "heartbeat", "tick", "rescue", "ensure_partitions", "tidy", "adopt", "seal", "begin_checks",
    "run_check", "finish_check", "retain_due",
}  # fmt: skip
# A check of a monitor, or a removal of what is old: each in a transaction that begins with its time limit.
WATCH = ("begin_checks", "run_check", "finish_check", "retain_due")
JOBS = 40
# Each connection for work prepares a statement, once, which is a round trip of its own.
LINKS = 2


@pytest.fixture
def proxy(arena):
    with Proxy(arena.server.port, arena.seed) as proxy:
        yield proxy


@pytest.fixture
def worker(arena, proxy):
    """Started, and through with its first words."""
    life = arena.spawn(dsn=proxy.dsn(arena.name), handlers_dsn=arena.dsn, lease=30.0, poll=0.2)
    arena.until_registered(life)
    until(lambda: proxy.calls["promote"] >= 2, what="a worker at rest")
    return life


def cost(arena, proxy, client, task):
    """What the worker sends for so many jobs of a task, apart from its upkeep."""
    before, again = proxy.calls.copy(), _repetitions(arena)
    done = arena.done()
    client.enqueue_many(task, [{"token": f"{task}-{n}"} for n in range(JOBS)])
    arena.until_done(done + JOBS)
    calls = proxy.calls - before
    watched = sum(calls[kind] for kind in WATCH)
    calls -= Counter(begin=watched, select=watched, commit=watched)
    sent = Counter({kind: count for kind, count in calls.items() if kind not in UPKEEP})
    # On a crowded machine, a call may find its row locked for too long.
    return sent, _repetitions(arena) - again


def _repetitions(arena):
    return arena.output().count("call_put_off") + arena.output().count("connection_lost")


def test_a_job_of_five_steps_costs_five_statements_more_than_one_without(arena, proxy, worker):
    with Client(arena.dsn) as client:
        assert cost(arena, proxy, client, "work")[0] == {}
        sent, repeated = cost(arena, proxy, client, "five")

    assert set(sent) == {"finish_step"}
    assert 5 * JOBS <= sent["finish_step"] <= 5 * JOBS + LINKS + repeated, arena.output()


def test_jobs_that_wait_cost_no_statement(arena, proxy, worker):
    def calls_of_rest(rounds=3):
        before = proxy.calls.copy()
        until(lambda: proxy.calls["promote"] >= before["promote"] + rounds, what="some rounds of upkeep")
        return proxy.calls - before

    none = calls_of_rest()
    with Client(arena.dsn) as client:
        asleep = client.enqueue("waits", {"token": "first", "how": "sleep"})
        for how in ("sleep", "event", "join"):
            client.enqueue_many(
                "waits",
                [{"token": f"{how}-{n}", "how": how, "other": str(asleep.id)} for n in range(100)],
            )
    until(
        lambda: (
            arena.value("select count(*) from onceward.jobs where state in ('scheduled', 'blocked')") == 301
        ),
        what="all of them wait",
    )
    # The look after the commit, at each that has begun to wait: once.
    until(
        lambda: arena.value("select count(*) from onceward.recheck_private") == 0, what="nothing to look at"
    )
    many = calls_of_rest()

    assert set(many) <= UPKEEP
    assert many.total() <= 2 * none.total() + 10
