"""A thousand mails against receivers that misbehave in every way: none lost, none doubled but what a person had sent again.

ONCEWARD_TEST_MAILS says how many, if not a thousand.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections import Counter
from dataclasses import replace
from datetime import timedelta

import psycopg
import pytest

from onceward import Onceward
from onceward.deliveries import Deliveries, Resend
from onceward.worker import Worker
from tests.support import dice

pytestmark = [pytest.mark.crash, pytest.mark.slow]
# Long enough that what is slow on a crowded machine does not hang.
TIMEOUT = timedelta(seconds=3)
MAILS = int(os.environ.get("ONCEWARD_TEST_MAILS", "1000"))
BY_API = MAILS * 2 // 5
# Command → share.  Most of them pass at a later try.
BY_SMTP = {
    "": 70, "rcpt_450__1": 5, "rcpt_450__3": 2, "rcpt_550": 3, "data_451__2": 3, "data_552": 1, "drop_at_data__2": 4,
    "drop_after_dot__1": 3, "drop_after_dot_lost__1": 3, "hang_rcpt__1": 2, "hang_after_dot__1": 2,
    "hang_after_dot_lost__1": 2,
}  # fmt: skip
BY_HTTP = {
    "": 70, "s429__2": 5, "s500__1": 4, "s503__3": 3, "s422": 3, "s502__1": 2, "drop__1": 4, "drop_after__2": 4,
    "hang__1": 2, "hang_after__1": 2, "s401__1": 1,
}  # fmt: skip


class Load:
    """Mails in the ledger, and how often each has arrived."""

    def __init__(self, kit, email, seed: int) -> None:
        self.kit = kit
        self.app = Onceward()
        Deliveries(self.app, email=email, environ={})
        self.ledger = kit.client(self.app).deliveries
        self.random = random.Random(seed)

    def enter(self, count: int, commands: dict[str, int], make) -> None:
        drawn = self.random.choices(list(commands), list(commands.values()), k=count)
        with self.kit.connect(autocommit=False) as conn:
            for number, command in enumerate(drawn):
                self.ledger.email(
                    key=f"{number} {command}", text="t", connection=conn, **make(number, command)
                )
            conn.commit()

    def run(self) -> None:
        """Until nothing waits any more, hours of waiting included."""
        while True:
            asyncio.run(
                Worker(self.app, dsn=self.kit.dsn, concurrency=100, lease=timedelta(hours=12)).drain()
            )
            with self.kit.connect() as conn:
                waiting = conn.execute(
                    "select max(run_at) - onceward.now() from onceward.jobs where state = 'scheduled'"
                ).fetchone()[0]
            if waiting is None:
                return
            self.kit.clock.advance(waiting + timedelta(seconds=1))

    def states(self) -> dict[str, str]:
        with psycopg.connect(self.kit.dsn) as conn:
            return dict(conn.execute("select key, state from onceward.deliveries"))


def verdict(load: Load, arrived: Counter[str], **more) -> dict[str, object]:
    states = load.states()
    found = {
        "mails": len(states),
        "states": Counter(states.values()),
        # Said to be sent, and not there; or neither sent nor in anybody's hands.
        "lost": sum(arrived[key] == 0 for key, state in states.items() if state == "sent")
        + sum(state in {"pending", "sending", "cancelled"} for state in states.values()),
        # Said not to have been sent, and there.
        "lies": sum(arrived[key] > 0 for key, state in states.items() if state == "abandoned"),
        "repeats": sum(count > 1 for count in arrived.values()),
        **more,
    }
    print(json.dumps(found))
    return found


@pytest.fixture
def seed():
    return dice.seed()


def test_mails_by_smtp(onceward_kit, smtp, mail_sink, seed):
    load = Load(onceward_kit, replace(smtp, timeout=TIMEOUT), seed)
    load.enter(
        MAILS - BY_API,
        BY_SMTP,
        lambda n, command: {"to": f"n{n}{'+' * bool(command)}{command}@example.com", "subject": str(n)},
    )

    def arrived() -> Counter[str]:
        found = (mail.to.partition("@")[0].partition("+") for mail in mail_sink.kept)
        return Counter(f"{number[1:]} {command}" for number, _, command in found)

    load.run()
    first = verdict(load, arrived(), seed=seed, by="smtp")
    assert (first["mails"], first["lost"], first["lies"], first["repeats"]) == (MAILS - BY_API, 0, 0, 0)
    uncertain = {key for key, state in load.states().items() if state == "uncertain"}
    assert {key.partition(" ")[2] for key in uncertain} >= {"drop_after_dot__1", "hang_after_dot_lost__1"}

    # A person who does not know either has them sent again.
    mail_sink.healed = True
    doubled = {key for key in uncertain if arrived()[key]}
    with onceward_kit.connect() as conn:
        conn.execute(
            "select onceward.decide_delivery(id, 'send_again', 'risk it') from onceward.deliveries where state = 'uncertain'"
        )
    load.run()
    second = verdict(load, arrived(), seed=seed, by="smtp", decided=len(uncertain))
    assert (second["lost"], second["lies"], second["repeats"]) == (0, 0, len(doubled))
    assert {key for key, count in arrived().items() if count > 1} == doubled
    assert set(second["states"]) == {"sent", "abandoned"}


def test_mails_by_an_api_with_idempotency_keys(onceward_kit, http_sink, seed):
    load = Load(onceward_kit, Resend("key", "s@example.com", http_sink.url, TIMEOUT), seed)
    load.enter(
        BY_API,
        BY_HTTP,
        lambda n, command: {"to": f"n{n}@example.com", "subject": f"{n} {'#' * bool(command)}{command}"},
    )

    load.run()

    arrived = Counter(hit.json["subject"].replace("#", "") for hit in http_sink.kept)
    found = verdict(load, arrived, seed=seed, by="resend", requests=len(http_sink.hits))
    assert (found["mails"], found["lost"], found["lies"], found["repeats"]) == (BY_API, 0, 0, 0)
    assert set(found["states"]) == {"sent", "abandoned"}
