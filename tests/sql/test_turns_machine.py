"""Random jobs of several tenants in one lane, and random claims: whatever was drawn, turns and priorities are kept.

The model of test_machine.py tells which job comes next; here chance has a part, so what is checked are the rules.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import dataclass

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.support.engine import Engine

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

MAX_WAIT = 60
TENANTS = ("default", "acme", "umbrella")


@dataclass
class Waiting:
    """A ready job: its place among those of its tenant is priority, then number."""

    tenant: str
    priority: int
    number: int
    since: int

    def stands_before(self, other: Waiting) -> bool:
        return self.tenant == other.tenant and (-self.priority, self.number) < (-other.priority, other.number)


class Turns(RuleBasedStateMachine):
    server = None

    @initialize(is_fair=st.booleans(), is_patient=st.booleans())
    def open(self, is_fair, is_patient):
        self.stack = contextlib.ExitStack()
        database = self.stack.enter_context(self.server.cloned())
        self.db = self.stack.enter_context(Engine(database))
        self.db.clock.pin()
        self.is_fair = is_fair
        # Without one, higher priorities go first for ever.
        self.max_wait = None if is_patient else MAX_WAIT
        self.db.call(
            "add_lane", name="default", fair=is_fair, max_wait="0" if is_patient else f"{MAX_WAIT} s"
        )
        self.waiting: dict = {}
        self.now = self.made = 0

    def teardown(self):
        if hasattr(self, "stack"):
            self.stack.close()

    @rule(tenant=st.sampled_from(TENANTS), priority=st.integers(-1, 2), count=st.integers(1, 12))
    def enqueue(self, tenant, priority, count):
        for row in self.db.enqueue_many(payloads=[{}] * count, tenant=tenant, priority=priority):
            self.made += 1
            whose = tenant if self.is_fair else ""
            self.waiting[row.job_id] = Waiting(whose, priority, self.made, self.now)

    @rule(seconds=st.sampled_from([1, MAX_WAIT // 2, MAX_WAIT + 1]))
    def advance(self, seconds):
        self.db.clock.advance(f"{seconds} s")
        self.now += seconds

    @rule(tenant=st.sampled_from(TENANTS), count=st.integers(4, 12), most=st.integers(4, 20))
    def pass_over(self, tenant, count, most):
        """What chance alone seldom brings about: jobs that have waited too long, and a crowd before them."""
        self.enqueue(tenant, -1, count)
        self.advance(MAX_WAIT + 1)
        self.enqueue(tenant, 2, 30)
        self.claim(most)

    @precondition(lambda self: self.waiting)
    @rule(most=st.integers(1, 20))
    def claim(self, most):
        rows = self.db.claims(most)
        assert len(rows) == min(most, len(self.waiting))
        taken = [self.waiting.pop(row.job_id) for row in rows]
        self.check_order(taken)
        if self.is_fair:
            self.check_turns(taken, most)

    def check_order(self, taken):
        """Only who has waited too long goes before those of higher priority: a quarter of a tenant's jobs, rounded up.

        A claim that takes turns asks a line up to three times, and each of them is rounded.
        """
        left = list(self.waiting.values())
        early = [job for job in taken if any(other.stands_before(job) for other in left)]
        for job in early:
            assert self.max_wait is not None
            assert self.now - job.since > self.max_wait
            # Among equals, in their order.
            assert not any(other.priority == job.priority for other in left if other.stands_before(job))
        share = Counter(job.tenant for job in taken)
        for tenant, count in Counter(job.tenant for job in early).items():
            assert count <= share[tenant] / 4 + (3 if self.is_fair else 1)

    def check_turns(self, taken, most):
        """Who has more waiting has got nearly as much as any other: shares are rounded up, and the last in turn gets the rest."""
        got = Counter(job.tenant for job in taken)
        unserved = {job.tenant for job in self.waiting.values()}
        if len(taken) == most:
            for tenant in unserved:
                assert all(got[tenant] + len(TENANTS) >= got[other] for other in TENANTS)


def test_turns_and_priorities_are_kept(onceward_server):
    Turns.server = onceward_server
    # A failure is short enough to read as it is; to shrink it would take minutes.
    chosen = settings(
        max_examples=15, stateful_step_count=10, deadline=None, database=None, phases=[Phase.generate]
    )
    run_state_machine_as_test(Turns, settings=chosen)
