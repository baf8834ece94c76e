"""A worker killed before and after each SQL call and each effect, also while another one recovers: nothing is lost or doubled."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from itertools import product

import psycopg
import pytest

from tests.deliveries.mortal import LEASE, application

pytestmark = [pytest.mark.crash, pytest.mark.slow]
STEPS = [f"{when} {what}" for what in ("begin", "effect", "settle") for when in ("before", "after")]
# One crash; and a second one during the recovery, when the outcome of the first try is unclear.
UNCLEAR = ["after begin", "after effect"]
SCENARIOS = [("after claim",), *((step,) for step in STEPS), *product(UNCLEAR, STEPS)]


class Nursery:
    """Starts mortal workers, one at a time."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.deliveries.mortal"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def live(self, **spec) -> int:
        self._process.stdin.write(json.dumps(spec) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def close(self) -> None:
        self._process.stdin.close()
        self._process.wait(10)
        self._process.stdout.close()


@pytest.fixture
def nursery():
    nursery = Nursery()
    yield nursery
    nursery.close()


@pytest.mark.parametrize("provider", ["smtp", "resend"])
def test_every_crash_point(onceward_kit, nursery, provider, mail_sink, http_sink):
    sink = mail_sink if provider == "smtp" else http_sink
    app = application(provider, sink.port)
    ledger = onceward_kit.client(app).deliveries
    made, reached = {}, Counter()
    for number, scenario in enumerate(SCENARIOS):
        to = f"n{number}@example.com"
        made[to] = ledger.email(to=to, subject="s", text="t", key=to), scenario
        for at in (*scenario, "no point"):
            code = nursery.live(dsn=onceward_kit.dsn, provider=provider, port=sink.port, at=at)
            reached[at] += code == -9
            assert code in {0, -9}
            onceward_kit.clock.advance(LEASE * 2)

    arrived = (
        Counter(mail.to for mail in sink.kept)
        if provider == "smtp"
        else Counter(hit.json["to"][0] for hit in sink.kept)
    )
    states = {to: ledger.get(delivery).state for to, (delivery, _) in made.items()}
    summary = Counter(states.values())
    print(
        json.dumps({"provider": provider, "scenarios": len(SCENARIOS), "kills": reached, "states": summary})
    )
    # Each point was really reached.
    assert {at for at, count in reached.items() if count} == {"after claim", *STEPS}
    for to, (_, scenario) in made.items():
        if provider == "resend" or scenario[0] in {"after claim", "before begin", "after settle"}:
            # Nothing was unclear, or asking again is harmless.
            assert (states[to], arrived[to]) == ("sent", 1), scenario
        else:
            # Begun, and never settled: whether it has arrived or not, only a person has it sent again.
            arrives = "effect" in scenario[0].removeprefix("before effect") or scenario[0] == "before settle"
            assert (states[to], arrived[to]) == ("uncertain", int(arrives)), scenario
    with psycopg.connect(onceward_kit.dsn) as conn:
        live = conn.execute(
            "select count(*) from onceward.jobs where state not in ('done', 'dead_letter')"
        ).fetchone()
    assert live == (0,)
